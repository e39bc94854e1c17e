#include "het_tf/core/client/look_ahead.h"

#include <algorithm>
#include <utility>

#include "het_tf/core/client/row_sink.h"

namespace het {

void LookAhead::Begin(const CachedRead& wanted) {
  auto op = std::make_unique<ReadOp>();
  op->step = ReadOp::kNoLookup;
  op->ahead = true;
  op->check_ahead = wanted.check_ahead;
  op->sink = std::make_unique<LineSink>(op.get(), pushes_);
  Asker asker(op.get(), &on_way_, subscriptions_);
  std::map<const TableCache*, size_t> taken;  // of the rows that may be beside the cache
  for (const CachedRead::Part& part : wanted.parts) {
    TableCache& cache = tables_->at(part.table);
    const size_t capacity = cache.config().capacity;
    if (cache.device() != nullptr || capacity == 0) continue;
    size_t& rows = taken.try_emplace(&cache, cache.ahead_lines() + on_way_.count(&cache)).first->second;
    cache.lines().FindBatch(part.keys, part.hashes, part.uniques, part.rows);
    for (size_t u = 0; u < part.uniques; ++u) {
      if (part.rows[u] == kNoRow && rows++ >= capacity) continue;
      asker.Key(&cache, part.partition, part.keys[u], part.rows[u]);
    }
  }
  reads_.push_back(std::move(op));
  asker.Ask(sessions_);
}

void LookAhead::Use(TableCache* cache, bool training, Span<const uint32_t> lines) {
  if (cache->ahead_lines() == 0) return;
  Vector<uint32_t> admitted;
  for (uint32_t line : lines) {
    if (line == kNoRow || !cache->ahead(line)) continue;
    cache->MarkUsed(line);
    if (!training) continue;
    if (cache->Admit(cache->lines().Hash(cache->lines().meta(line).key))) {
      admitted.push_back(line);
    } else {
      cache->Pass();
    }
  }
  if (admitted.empty()) return;
  cache->MakeRoom(admitted.size());
  for (uint32_t line : admitted) {
    if (cache->resident() < cache->config().capacity) cache->Settle(line);
  }
  if (cache->queued() > cache->config().write_back_rows) pushes_->Queues();
}

void LookAhead::SetFresh(const TableRead& answered) {
  if (!answered.fresh_until) return;
  TableCache* const cache = answered.cache;
  for (const Vector<Key>* keys : {&answered.checks, &answered.fetches}) {
    for (Key key : *keys) {
      const uint32_t line = cache->lines().Find(key);
      if (line != kNoRow) cache->SetFresh(line, *answered.fresh_until);
    }
  }
}

void LookAhead::Follow() {
  for (const auto& op : reads_) {
    const auto answered =
        std::partition(op->parts.begin(), op->parts.end(),
                       [&](const PartitionReadPtr& part) { return part->wanted() && op->error.ok(); });
    for (auto part = answered; part != op->parts.end(); ++part) on_way_.Remove(**part);
    op->parts.erase(answered, op->parts.end());
  }
  while (const auto late = on_way_.TakeReady()) AskLate(*late);
  reads_.erase(std::remove_if(reads_.begin(), reads_.end(), [](const auto& op) { return op->parts.empty(); }),
               reads_.end());
}

// The rows that a read waited for are here, or will not come: they are checked or fetched like any
// others.
void LookAhead::AskLate(const RowsOnWay::Late& late) {
  ReadOp* const op = late.ask->op;
  late.ask->op = nullptr;
  op->parts.erase(std::find(op->parts.begin(), op->parts.end(), late.ask));
  --op->open_parts;
  Asker asker(op, &on_way_, subscriptions_, /*waits=*/false);
  Vector<uint32_t> lines;
  for (const TableRead& waited : late.ask->tables) {
    TableCache* const cache = waited.cache;
    asker.Resume(&waited);
    lines.clear();
    for (Key key : waited.fetches) {
      const uint32_t line = cache->lines().Find(key);
      if (line != kNoRow && !op->ahead) lines.push_back(line);
      asker.Key(cache, late.partition, key, line);
    }
    Use(cache, op->training(), Span<const uint32_t>(lines.data(), lines.size()));
  }
  asker.Ask(sessions_);
}

// What is still on its way is for nobody then; reads that wait for it ask again.
void LookAhead::Drop() {
  reads_.clear();
  on_way_.Clear();
}

}  // namespace het
