// The follower's side of the live files (live_format.h): applies changes of rows, and flips versions.
//
//   auto writer = LiveWriter::Open(directory, base_files);
//   writer->SetPartitions(n);                        // then, for each page of changes of a partition:
//   writer->Remove(table, keys); writer->Put(table, keys, values);
//   writer->SetPosition(partition, position, sent);  // when the last page is applied
//   writer->Flip(version);                           // when every partition has reached the version's cut
//
// Memory: the files (page cache, shared with the readers), and 4 bytes for each free slot. A file has room
// for a quarter more rows than it began with. When it is full, Put writes a new one: until it returns, both
// take space, readers go on with the old one, and their age grows.
//
// Not thread-safe. A process that is killed leaves files that serve on, and the next writer continues.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "het_tf/core/base/span.h"
#include "het_tf/core/base/status.h"
#include "het_tf/ext/serving/cc/follow/live_base.h"
#include "het_tf/ext/serving/cc/follow/live_directory.h"
#include "het_tf/ext/serving/cc/follow/live_format.h"
#include "het_tf/ext/serving/cc/follow/live_table.h"
#include "het_tf/ext/serving/cc/follow/version.h"

namespace het::follow {

class LiveWriter {
 public:
  // Makes the directory if it is missing. Continues with its files if they are of this boot of the machine
  // and of this base, and intact; else begins anew: the base's rows, version 0, positions unknown, seen
  // never. FailedPrecondition: another process follows (names its ID). NotFound, DataLoss: a base file.
  // kFile: the system refuses, for example because the disk is full.
  static Result<std::unique_ptr<LiveWriter>> Open(const std::string& directory,
                                                  const std::vector<std::string>& base_files);

  size_t tables() const { return tables_.size(); }
  const TableSchema& schema(size_t table) const { return tables_[table]->schema(); }
  // Returns the table with this id (TableSchema::id), or -1.
  int Find(uint64_t table_id) const;

  // Writes rows; keys[i] gets values[i * dim...]. kFile: a new file was needed, and the system refused it.
  // InvalidArgument: float16 cannot represent a value. After an error the keys before it are written, and the
  // files serve on. Throws std::bad_alloc.
  Status Put(size_t table, Span<const Key> keys, const float* values);
  // Removes rows; a key without one is skipped.
  void Remove(size_t table, Span<const Key> keys);
  // Calls visit(key) for each key with a row. `visit` must not change the table.
  void ForEachKey(size_t table, const std::function<void(Key)>& visit) const;
  size_t rows(size_t table) const { return tables_[table]->rows(); }

  // Call it before the following two. If it is another number than before, all positions become unknown.
  Status SetPartitions(uint32_t partitions);
  // Returns the position of a partition; "": unknown.
  std::string position(uint32_t partition) const;
  // The partition's rows are those of `position`, which was asked for at `seen` (CLOCK_BOOTTIME in ns).
  // Readers see the oldest `seen` of all partitions. InvalidArgument: the position is longer than 47 bytes.
  Status SetPosition(uint32_t partition, const std::string& position, uint64_t seen);
  uint64_t seen() const;  // the oldest; 0: never

  // From now on, requests read the dense weights of `version`; their file must be complete. It must remain
  // until the next Flip; a reader that has mapped it keeps it. InvalidArgument: a path of over 239 bytes.
  Status Flip(const Version& version);
  Version version() const;
  // How far rows may be newer than the dense weights in force, in ns; absent: unknown. Call it before rows
  // get newer, and after Flip.
  void SetSkew(std::optional<uint64_t> skew);

 private:
  LiveWriter(std::unique_ptr<LiveDirectory> directory, Base base);

  Status Resume();  // continues; or an error that says why not
  Status Begin();   // anew
  // The head of the files of a table; LiveTable sets the rest.
  TableHead Like(size_t table, uint64_t number, uint64_t run) const;
  void TellSeen();
  Status Grow(size_t table, uint64_t more);
  // Removes the table files that Control does not name.
  void Clean() const;

  Span<const PositionRecord> positions() const {
    return {positions_.At<PositionRecord>(0), positions_.size() / sizeof(PositionRecord)};
  }
  Control* control() const { return control_.At<Control>(0); }
  uint64_t* files() const { return control_.At<uint64_t>(sizeof(Control)); }

  const std::unique_ptr<LiveDirectory> directory_;
  const Base base_;
  const uint64_t base_checksum_;
  uint64_t next_number_ = 1;  // of a table file
  WritableMap control_;
  WritableMap positions_;
  std::vector<std::unique_ptr<LiveTable>> tables_;
};

}  // namespace het::follow
