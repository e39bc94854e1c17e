// Rows that reads ahead (look_ahead.h) have asked for, or about, and whose answers are on their way; and
// reads that wait for them instead of asking a second time.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "het_tf/core/client/partition_read.h"

namespace het {

class RowsOnWay {
 public:
  // Keys of one partition that `ask->op` asks for once `of` is answered: all of ask's fetches.
  struct Late {
    PartitionReadPtr of;
    uint32_t partition;
    PartitionReadPtr ask;
  };

  // The answer to `part` has the row, or says (`cached`) whether the copy is within its bound.
  void Add(TableCache* cache, Key key, bool cached, const PartitionReadPtr& part) {
    OfTable& table = tables_[cache];
    table.rows[key] = part;
    table.cached |= cached;
  }
  // If that is on its way: `op` is not done before it has asked for the row, too. `fresh_until`: as of
  // TableRead, of a read ahead that begins now.
  bool Waits(ReadOp* op, TableCache* cache, uint32_t partition, Key key, bool cached,
             std::optional<uint32_t> fresh_until);
  size_t count(const TableCache* cache) const {
    const auto table = tables_.find(cache);
    return table == tables_.end() ? 0 : table->second.rows.size();
  }
  // The part is answered, or given up.
  void Remove(const PartitionRead& part);
  // One whose rows are here, or will not come, oldest first.
  std::optional<Late> TakeReady();
  // No row is on its way any more. Reads that wait for one are ready.
  void Clear() { tables_.clear(); }

 private:
  struct OfTable {
    boost::unordered_flat_map<Key, PartitionReadPtr, KeyHash> rows;
    bool cached = false;  // some are
  };
  std::map<const TableCache*, OfTable> tables_;
  std::vector<Late> late_;
};

}  // namespace het
