// A serving process's side of the live files (live_format.h).
//
// While there are none (no follower has run yet), a reader reads the base's serving files: version 0, seen
// never. It looks for them at most once a second, and so it does while `seen` stands still, since a follower
// may have begun anew. Thread-safe; lookups share one mutex for the time of copying a pointer.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "het_tf/core/base/span.h"
#include "het_tf/core/base/status.h"
#include "het_tf/ext/serving/cc/follow/version.h"
#include "het_tf/ext/serving/cc/serve/serve_file.h"

namespace het::follow {

class LiveView;

struct LiveRead {
  size_t table;  // its place in base_files
  Span<const Key> ids;
  float* out;  // ids.size() rows of dim floats
};

class LiveReader {
 public:
  // Base: NotFound, DataLoss as ServeFile::Open. The live files are opened by the calls below.
  static Result<std::unique_ptr<LiveReader>> Open(const std::string& directory,
                                                  const std::vector<std::string>& base_files);
  ~LiveReader();

  size_t tables() const { return base_.size(); }
  const serve::ServeFile& base(size_t table) const { return *base_[table]; }

  // Reads rows that are at least those of the store at `*seen` (CLOCK_BOOTTIME in ns; 0: never), and of the
  // version in force when it is called. DataLoss: a file is damaged. kFile: a new file cannot be mapped.
  Status Lookup(Span<const LiveRead> reads, uint64_t* seen);
  struct State {
    bool live = false;  // whether a follower has run: else it is the base's
    // In force. A request must ask for it before its Lookup: then its rows are not older than its cut.
    Version version;
    uint64_t seen = 0;
    std::optional<double> skew;  // seconds by which rows may be newer than the version's dense weights
    uint64_t generation = 0;
  };
  Result<State> state();
  // Returns the number of rows of a table; reads its index if they are live.
  Result<uint64_t> CountRows(size_t table);

 private:
  LiveReader(std::string directory, std::vector<std::shared_ptr<const serve::ServeFile>> base);
  // The files in force: null if there are none.
  Result<std::shared_ptr<const LiveView>> View();

  const std::string directory_;
  const std::vector<std::shared_ptr<const serve::ServeFile>> base_;
  const uint64_t base_checksum_;

  std::mutex mutex_;  // guards the members below
  std::shared_ptr<const LiveView> view_;
  uint64_t looked_ = 0;  // CLOCK_BOOTTIME in ns of the last look at the directory
};

}  // namespace het::follow
