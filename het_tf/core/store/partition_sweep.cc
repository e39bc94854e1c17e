// Partition's sweeps: every removal is recorded for the partition's copies, or not made. So the memory for
// the records is allocated first, and afterwards nothing fails.
#include <algorithm>
#include <new>

#include "het_tf/core/store/chunk.h"
#include "het_tf/core/wire/layout.h"

namespace het {
namespace {

// A push may make a row for each of its rows, so its sweep must be able to drop as many. It looks at several
// for each, so that expired rows are found faster than rows are made.
constexpr size_t kRowsPerPush = 4;
constexpr size_t kMoreRows = 16;
constexpr size_t kFewPushed = 1024;  // a larger push takes long enough by itself
constexpr size_t kClientsPerPush = 2;
// Keeps a sweep short with any number of tables.
constexpr size_t kTablesAtOnce = 256;

}  // namespace

Swept Partition::SweepShard(Shard* shard, uint32_t now, size_t budget, std::vector<Bytes>* removals) {
  if (!shard->limits().any()) return Swept();
  budget = std::min<size_t>(budget, shard->rows().end());
  const uint32_t shares = Layout(id_).OfTable(shard->schema().id()).group;
  Vector<Key> keys;
  Bytes chunk;
  try {
    keys.reserve(2 * budget);
    if (removals != nullptr) {
      chunk.reserve(kChunkHead + 2 * budget * sizeof(Key));
      removals->reserve(removals->size() + 1);
    }
  } catch (const std::bad_alloc&) {
    return Swept();
  }
  const Swept swept = shard->Sweep(now, budget, shares, &keys);
  if (keys.empty()) return swept;
  changes_.Next();
  for (Key key : keys) {
    subscribers_.Removed(shard->schema().id(), key);
    changes_.Removed(shard->schema().id(), key);
  }
  if (removals == nullptr) return swept;
  EncodeRemove(shard->schema(), Span<const Key>(keys.data(), keys.size()), &chunk);
  removals->push_back(std::move(chunk));
  return swept;
}

Swept Partition::SweepTable(Shard* shard, uint32_t now, size_t pushed, std::vector<Bytes>* removals) {
  const size_t rows = std::max(pushed, kRowsPerPush * std::min(pushed, kFewPushed));
  return SweepShard(shard, now, kMoreRows + rows, removals);
}

Swept Partition::SweepPushed(const Request& request, uint32_t now, std::vector<Bytes>* removals) {
  Swept swept;
  swept.clients = clients_.Sweep(now, kClientsPerPush, removals);
  for (size_t i = 0; i < request.tables.size(); ++i) {
    const size_t pushed = request.tables[i].push_keys.size();
    if (pushed > 0) swept += SweepTable(named_[i], now, pushed, removals);
  }
  return swept;
}

Swept Partition::Sweep(uint32_t now, size_t budget, std::vector<Bytes>* removals) {
  subscribers_.ForgetSilent(now);
  names_.ForgetSilent(now);
  Swept swept;
  swept.clients = clients_.Sweep(now, budget, removals);
  const size_t tables = std::min(shards_.size(), kTablesAtOnce);
  auto at = shards_.lower_bound(table_at_);
  for (size_t i = 0; i < tables; ++i, ++at) {
    if (at == shards_.end()) at = shards_.begin();
    swept += SweepShard(at->second.get(), now, std::max<size_t>(1, budget / tables), removals);
  }
  table_at_ = at == shards_.end() ? 0 : at->first;
  return swept;
}

}  // namespace het
