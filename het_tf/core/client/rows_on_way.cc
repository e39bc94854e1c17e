#include "het_tf/core/client/rows_on_way.h"

#include <algorithm>
#include <utility>

namespace het {

bool RowsOnWay::Waits(ReadOp* op, TableCache* cache, uint32_t partition, Key key, bool cached,
                      std::optional<uint32_t> fresh_until) {
  const auto table = tables_.find(cache);
  if (table == tables_.end() || (cached && !table->second.cached)) return false;
  const auto found = table->second.rows.find(key);
  if (found == table->second.rows.end()) return false;
  const PartitionReadPtr& of = found->second;
  // Those of a read follow each other, and keys come partition by partition: mostly it is the last
  // one.
  auto late = late_.rbegin();
  while (late != late_.rend() && late->ask->op == op && late->of != of) ++late;
  if (late == late_.rend() || late->ask->op != op) {
    auto ask = std::make_shared<PartitionRead>();
    op->parts.push_back(ask);
    late_.push_back({of, partition, ask});
    ask->op = op;
    ++op->open_parts;
    late = late_.rbegin();
  }
  Vector<TableRead>& tables = late->ask->tables;
  if (tables.empty() || tables.back().cache != cache) {
    tables.push_back({cache});
    tables.back().fresh_until = fresh_until;
  }
  tables.back().fetches.push_back(key);
  return true;
}

void RowsOnWay::Remove(const PartitionRead& part) {
  for (const TableRead& asked : part.tables) {
    const auto table = tables_.find(asked.cache);
    if (table == tables_.end()) continue;
    auto& rows = table->second.rows;
    for (const Vector<Key>* keys : {&asked.fetches, &asked.checks}) {
      for (Key key : *keys) {
        const auto found = rows.find(key);
        if (found != rows.end() && found->second.get() == &part) rows.erase(found);
      }
    }
    if (rows.empty()) tables_.erase(table);
  }
}

std::optional<RowsOnWay::Late> RowsOnWay::TakeReady() {
  late_.erase(
      std::remove_if(late_.begin(), late_.end(), [](const Late& late) { return !late.ask->wanted(); }),
      late_.end());
  const auto ready =
      std::find_if(late_.begin(), late_.end(), [](const Late& late) { return !late.of->wanted(); });
  if (ready == late_.end()) return std::nullopt;
  Late late = std::move(*ready);
  late_.erase(ready);
  return late;
}

}  // namespace het
