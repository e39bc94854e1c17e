// Rows that reads ahead (look_ahead.h) have on their way, and reads that wait for them instead of
// fetching them a second time.
#ifndef HET_TF_CORE_CLIENT_ROWS_ON_WAY_H_
#define HET_TF_CORE_CLIENT_ROWS_ON_WAY_H_

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

  // The row comes with the answer to `part`.
  void Add(TableCache* cache, Key key, const PartitionReadPtr& part) { rows_[cache][key] = part; }
  // If the row is on its way: `op` is not done before it has asked for it, too.
  bool Waits(ReadOp* op, TableCache* cache, uint32_t partition, Key key);
  // The part is answered, or given up.
  void Remove(const PartitionRead& part);
  // One whose rows are here, or will not come, oldest first.
  std::optional<Late> TakeReady();
  // No row is on its way any more. Reads that wait for one are ready.
  void Clear() { rows_.clear(); }

 private:
  using Rows = boost::unordered_flat_map<Key, PartitionReadPtr, KeyHash>;
  std::map<const TableCache*, Rows> rows_;
  std::vector<Late> late_;
};

}  // namespace het

#endif  // HET_TF_CORE_CLIENT_ROWS_ON_WAY_H_
