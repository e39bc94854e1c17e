// A native export, as a serving process reads it:
//
//   DIR/assets/follow.json         tables, dense weights, limits (ext/serving/python/export/native.py)
//       assets/rows-*.het          the base: rows and dense weights at the export
//       assets/dense.safetensors   if they follow; else they are in the graph
//       het_live/                  the live files, if a follower has run (live_format.h)
//
// A request calls Dense first and then Lookup. So its rows are never older than the cut of its dense weights:
// rows only move forward, and a version is in force only when they have reached its cut.
//
// max_age bounds the age of a row: seconds since the follower asked the store for the state that it shows. A
// request beyond it is served and reported on stderr (stale: "serve"), or fails ("fail"). Before a follower
// has shown the store's state, the age is unknown and counts as beyond. Without max_age no request is.
// Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "het_tf/core/base/mapped_file.h"
#include "het_tf/ext/serving/cc/follow/dense_file.h"
#include "het_tf/ext/serving/cc/follow/live_reader.h"

namespace het::follow {

struct FollowSpec {
  std::vector<std::string> files;   // of the base's tables, beside follow.json
  std::vector<std::string> tables;  // their names
  std::string dense;                // the file of the base's dense weights; "": they do not follow
  std::optional<double> max_age;    // seconds
  bool fail = false;                // beyond max_age
};

// InvalidArgument: it is not a follow.json.
Result<FollowSpec> ParseFollowSpec(const std::string& json);

class FollowedModel {
 public:
  // `path` of follow.json. The process shares one object for each file there while it is in use. NotFound,
  // DataLoss, FailedPrecondition: a file of the base is missing, damaged, of another version.
  // InvalidArgument: it is another table's.
  static Result<std::shared_ptr<FollowedModel>> Open(const std::string& path);

  const serve::ServeFile& base(size_t table) const { return reader_->base(table); }
  // Returns the place of the table that has this file. InvalidArgument: there is none.
  Result<size_t> Find(const std::string& file) const;

  struct Dense {
    uint64_t version;
    std::shared_ptr<const DenseFile> file;
  };
  // The dense weights in force. The export must have some.
  Result<Dense> ReadDense();
  // See LiveReader::Lookup. FailedPrecondition: the rows are older than max_age, and stale is "fail".
  Status Lookup(Span<const LiveRead> reads);

 private:
  static Result<std::shared_ptr<FollowedModel>> OpenNew(const std::string& path, MappedFile file);
  FollowedModel(MappedFile file, std::string directory, FollowSpec spec, std::unique_ptr<LiveReader> reader);
  Status CheckAge(uint64_t now, uint64_t seen);

  const MappedFile file_;        // follow.json: no other file gets its identity while it is mapped
  const std::string directory_;  // of the SavedModel
  const FollowSpec spec_;
  const std::unique_ptr<LiveReader> reader_;
  std::atomic<uint64_t> told_{0};  // time of the last notice

  std::mutex mutex_;  // guards dense_: the version that was read last
  Version dense_version_;
  std::shared_ptr<const DenseFile> dense_;
};

}  // namespace het::follow
