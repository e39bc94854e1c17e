// One file of rows as they were: each row that has changed since one moment, with what it had then.
//
//   UndoHead | PositionRecord of each partition | blocks: UndoBlock, keys [count], rows [count] if `present`
//
// A block is written before the rows change, with one write. So a process that is killed leaves either the
// whole block, or a part of one whose rows have not changed: Open cuts that off. A crash of the machine may
// lose any part, but the live files are not used after one. Not thread-safe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/base/span.h"
#include "het_tf/core/base/status.h"
#include "het_tf/ext/serving/cc/follow/live_directory.h"
#include "het_tf/ext/serving/cc/follow/live_format.h"

namespace het::follow {

struct UndoHead {
  char magic[8];
  uint32_t format;
  uint32_t partitions;
  uint64_t run;           // as Control's
  uint64_t number;        // of the file; a later journal has a larger one
  VersionRecord version;  // that came into force at this moment
  uint64_t checksum;      // XXH3-64 of the bytes before
  uint64_t in_force;      // 1: it did; 0: the process was killed before
};
static_assert(sizeof(UndoHead) == 304);

class UndoJournal {
 public:
  static constexpr uint64_t kBlockBytes = 24;  // without its keys and rows

  // Makes journal `number`, of the moment when `version` comes into force at `positions`. kFile: the system
  // refuses.
  static Result<std::unique_ptr<UndoJournal>> Create(const LiveDirectory& directory, uint64_t run,
                                                     uint64_t number, const VersionRecord& version,
                                                     Span<const PositionRecord> positions);
  // `row_bytes`: of each table. DataLoss: it is damaged, or of another run of the live files.
  static Result<std::unique_ptr<UndoJournal>> Open(const LiveDirectory& directory, uint64_t run,
                                                   uint64_t number, const std::vector<uint32_t>& row_bytes);
  ~UndoJournal();
  UndoJournal(const UndoJournal&) = delete;
  UndoJournal& operator=(const UndoJournal&) = delete;

  static std::string FileName(uint64_t number) { return "undo-" + std::to_string(number) + ".journal"; }
  // Returns the number in such a name; 0: it is another file's.
  static uint64_t NumberOf(const std::string& name);

  const UndoHead& head() const { return head_; }
  const std::vector<PositionRecord>& positions() const { return positions_; }
  uint64_t bytes() const { return bytes_; }

  // Notes that the version has come into force.
  Status SetInForce();
  // Appends what keys of a table have. `rows`: one after another; empty: the keys have none.
  Status Append(uint32_t table, Span<const Key> keys, Span<const uint8_t> rows);
  // Calls visit(table, key, row) for each row; null: the key had none.
  using Visit = std::function<Status(uint32_t, Key, const uint8_t*)>;
  Status ForEach(const std::vector<uint32_t>& row_bytes, const Visit& visit) const;

 private:
  explicit UndoJournal(int file) : file_(file) {}
  Status ReadHead(uint64_t run, uint64_t number);
  // Visits the blocks from the beginning to the first that is not whole; *end: where that one begins.
  Status Blocks(const std::vector<uint32_t>& row_bytes, const Visit& visit, uint64_t* end) const;

  const int file_;
  UndoHead head_ = {};
  std::vector<PositionRecord> positions_;
  uint64_t bytes_ = 0;
};

}  // namespace het::follow
