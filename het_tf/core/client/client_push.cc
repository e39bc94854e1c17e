// What a client pushes: rows past their bound, rows that left the cache, and everything in a flush.
#include <algorithm>

#include "het_tf/core/client/client.h"

namespace het {

PushFrame* Client::NewFrame(Link* link) {
  PushFrame* const frame = link->log.Append(next_frame_);
  ++next_frame_;
  return frame;
}

TablePush* Client::NewPush(Link* link, PushFrame** frame, TableCache* cache, size_t rows) {
  if (*frame == nullptr) *frame = NewFrame(link);
  return (*frame)->Add(cache->shared_schema(), rows);
}

void Client::PushDue(const CachedWrite& write) {
  PushFrame* frame = nullptr;
  uint32_t frame_of = 0;
  for (const CachedWrite::Part& part : write.parts) {
    TableCache* cache = caches_.at(part.table).get();
    const int64_t most = cache->config().most_unsent();
    if (most == kUnbounded) continue;
    auto due = [&](size_t u) { return part.touched[u] && cache->pending(part.rows[u]) > most; };
    size_t rows = 0;
    for (size_t u = 0; u < part.uniques; ++u) rows += due(u);
    if (rows == 0) continue;
    // Parts are in order of partition: one frame each.
    if (frame != nullptr && frame_of != part.partition) frame = nullptr;
    frame_of = part.partition;
    TablePush* const push = NewPush(&links_[part.partition], &frame, cache, rows);
    for (size_t u = 0; u < part.uniques; ++u) {
      if (!due(u)) continue;
      push->keys.push_back(part.keys[u]);
      cache->TakeUpdate(part.rows[u], &push->ticks, &push->wire);
    }
    cache->counters().bound_push += rows;
  }
}

void Client::PushQueues(bool whole) {
  const auto partitions = static_cast<uint32_t>(links_.size());
  bool any = false;
  for (auto& [table, cache] : caches_) any = any || cache->queued() > 0;
  if (!any) return;
  Vector<size_t> rows(partitions);
  std::vector<PushFrame*> frames(partitions, nullptr);
  for (auto& [table, cache] : caches_) {
    if (cache->queued() == 0) continue;
    std::fill(rows.begin(), rows.end(), 0);
    for (const TableCache::Queued& queued : cache->queue()) {
      if (queued.ticks > 0) ++rows[LinkOf(*cache, queued.key)->partition];
    }
    for (uint32_t p = 0; p < partitions; ++p) {
      if (rows[p] == 0) continue;
      TablePush* const push = NewPush(&links_[p], &frames[p], cache.get(), rows[p]);
      cache->TakeQueue(p, partitions, whole, &push->keys, &push->ticks, &push->wire);
      cache->counters().evict_push += rows[p];
    }
  }
}

uint64_t Client::UnappliedTicks(uint64_t table, Key key) {
  TableCache* cache = caches_.at(table).get();
  uint64_t ticks = 0;
  const uint32_t line = cache->lines().Find(key);
  if (line != kNoRow) ticks += cache->pending(line);
  if (const TableCache::Queued* queued = cache->FindQueued(key)) ticks += queued->ticks;
  return ticks + LinkOf(*cache, key)->log.UnappliedTicks(table, key);
}

Status Client::WaitForPushBound(const CachedWrite& write) {
  auto over_bound = [&](const CachedWrite::Part& part) {
    const int64_t bound = caches_.at(part.table)->config().push_bound;
    if (bound == kUnbounded || !links_[part.partition].log.unapplied()) return false;
    for (size_t u = 0; u < part.uniques; ++u) {
      if (part.touched[u] && UnappliedTicks(part.table, part.keys[u]) > static_cast<uint64_t>(bound))
        return true;
    }
    return false;
  };
  return Wait([&] { return std::none_of(write.parts.begin(), write.parts.end(), over_bound); }, "a push");
}

void Client::TrimCaches() {
  bool full = false;
  for (auto& [table, cache] : caches_) {
    cache->MakeRoom(0);
    full = full || cache->queued() > cache->config().write_back_rows;
  }
  if (full) PushQueues();
}

Status Client::Flush() {
  CheckFork();
  for (auto& [table, held] : caches_) {
    TableCache* cache = held.get();
    const size_t row_bytes = sizeof(Key) + cache->schema().optimizer().wire_floats() * sizeof(float);
    const size_t fit = std::max<size_t>(1, config_.max_frame_bytes / row_bytes);
    std::vector<Vector<uint32_t>> dirty(links_.size());
    cache->ForEachLine([&](uint32_t line) {
      if (cache->HasUnsent(line))
        dirty[LinkOf(*cache, cache->lines().meta(line).key)->partition].push_back(line);
    });
    for (uint32_t p = 0; p < links_.size(); ++p) {
      for (size_t begin = 0; begin < dirty[p].size(); begin += fit) {
        const size_t rows = std::min(fit, dirty[p].size() - begin);
        PushFrame* frame = nullptr;
        TablePush* const push = NewPush(&links_[p], &frame, cache, rows);
        for (size_t i = begin; i < begin + rows; ++i) {
          push->keys.push_back(cache->lines().meta(dirty[p][i]).key);
          cache->TakeWhole(dirty[p][i], &push->ticks, &push->wire);
        }
        cache->counters().bound_push += rows;
      }
    }
  }
  PushQueues(/*whole=*/true);
  const Status status = Wait(
      [this] {
        return std::none_of(links_.begin(), links_.end(), [](const Link& l) { return l.log.unapplied(); });
      },
      "a flush");
  if (!loss_.partitions.empty()) ReportLoss();
  return status;
}

}  // namespace het
