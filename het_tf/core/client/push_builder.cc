#include "het_tf/core/client/push_builder.h"

#include <algorithm>
#include <limits>

namespace het {
namespace {

bool PastBound(const TableCache& cache, const SyncPolicy& sync, uint32_t line) {
  return cache.lines().pending(line) > 0 &&
         sync.PushNow(cache.lines().pending(line), cache.lines().clock(line));
}

}  // namespace

size_t PushBuilder::RowBytes(const TableCache& cache) {
  return sizeof(Key) + cache.schema()->optimizer().wire_floats() * sizeof(float);
}

PushFrame* PushBuilder::NewFrame(uint32_t partition) {
  Session& session = (*sessions_)[partition];
  PushFrame* const frame = session.log().Append(next_frame_);
  frame->notified_ack = session.notified();
  ++next_frame_;
  return frame;
}

TablePush* PushBuilder::Add(uint32_t partition, PushFrame** frame, const TableCache& cache, size_t rows,
                            bool whole) {
  if (*frame == nullptr) *frame = NewFrame(partition);
  TablePush* const push =
      (*frame)->Add(cache.schema(), whole ? RowFormat::kFloat32 : cache.policy().push_format(), rows);
  const ClientId& client = (*sessions_)[partition].client();
  push->draw = PushDraw(cache.schema()->id(), client.high, client.low, (*frame)->seq);
  return push;
}

void PushBuilder::Move(TableCache* cache, Span<const uint32_t> lines, uint32_t partition, PushFrame** frame,
                       bool whole, uint64_t Counters::*counter) {
  if (lines.empty()) return;
  TablePush* const push = Add(partition, frame, *cache, lines.size(), whole);
  by_key_.clear();
  by_key_.reserve(lines.size());
  for (uint32_t line : lines) by_key_.push_back({cache->lines().meta(line).key, line});
  std::sort(by_key_.begin(), by_key_.end(), [](const Keyed& a, const Keyed& b) { return a.key < b.key; });
  const bool sorted = push->keys.empty();
  for (const Keyed& each : by_key_) cache->unsent().TakeUpdate(each.line, push);
  if (sorted) push->sorted = push->keys.size();
  cache->counters().*counter += lines.size();
}

void PushBuilder::OfStep(const CachedWrite& write, double now) {
  const TableCache* trimmed = nullptr;  // a table's parts come one after another
  for (const CachedWrite::Part& part : write.parts) {
    TableCache& cache = tables_->at(part.table);
    if (&cache != trimmed) cache.MakeRoom(0);
    trimmed = &cache;
  }
  Frames frames(tables_->partitions(), nullptr);
  Due(write, &frames);
  if (write.others != nullptr) {
    for (const OthersKeys& wanted : write.others->wanted) Wanted(wanted, &frames);
  }
  if (tables_->limits_ages()) Aged(now, kEarly, &frames);
  Queues(/*whole=*/false, &frames);
  if (tables_->limits_ages()) ForgetAged(now, kEarly);
}

void PushBuilder::PastAge(double now) {
  Frames frames(tables_->partitions(), nullptr);
  if (Aged(now, /*early=*/0, &frames)) Queues(/*whole=*/false, &frames);
  ForgetAged(now, /*early=*/0);
}

double PushBuilder::age_due() const {
  double due = std::numeric_limits<double>::infinity();
  if (!tables_->limits_ages()) return due;
  for (const auto& [table, cache] : *tables_) {
    if (cache->ages() != nullptr) due = std::min(due, cache->ages()->next_due());
  }
  return due;
}

bool PushBuilder::Aged(double now, double early, Frames* frames) {
  bool queued = false;
  for (const auto& [table, cache] : *tables_) {
    const UnsentAges* const ages = cache->ages();
    if (ages == nullptr) continue;
    const UnsentAges::Rows rows = ages->Due(now + early * ages->most());
    queued = queued || rows.queued;
    if (rows.lines.empty()) continue;
    PartitionLines lines(tables_->partitions());
    for (uint32_t line : rows.lines) {
      lines[tables_->PartitionOf(*cache, cache->lines().meta(line).key)].push_back(line);
    }
    PushLines(cache.get(), /*whole=*/false, lines, frames, &Counters::age_push);
  }
  return queued;
}

void PushBuilder::ForgetAged(double now, double early) {
  for (const auto& [table, cache] : *tables_) {
    UnsentAges* const ages = cache->ages();
    if (ages != nullptr) ages->Forget(now + early * ages->most());
  }
}

void PushBuilder::Wanted(const OthersKeys& wanted, Frames* frames) {
  TableCache& cache = tables_->at(wanted.table);
  cache.DropTransient();  // into the queue, which goes too
  const SyncPolicy sync = cache.policy().sync();
  Vector<uint32_t> lines(wanted.keys.size());
  cache.lines().FindBatch(wanted.keys.data(), wanted.hashes.data(), lines.size(), lines.data());
  const auto stays = [&](uint32_t line) { return line == kNoRow || !PastBound(cache, sync, line); };
  lines.erase(std::remove_if(lines.begin(), lines.end(), stays), lines.end());
  Move(&cache, lines, wanted.partition, &(*frames)[wanted.partition], /*whole=*/false, &Counters::bound_push);
}

void PushBuilder::Due(const CachedWrite& write, Frames* frames) {
  Vector<uint32_t> due;
  for (const CachedWrite::Part& part : write.parts) {
    TableCache& cache = tables_->at(part.table);
    const Bound unsent = write.others == nullptr ? cache.policy().sync().unsent() : OthersUse::kMostUnsent;
    if (unsent == kUnbounded) continue;
    due.clear();
    for (size_t u = 0; u < part.uniques; ++u) {
      const uint32_t line = part.rows[u];
      if (part.touched[u] && cache.lines().live(line) &&
          cache.lines().pending(line) > unsent.Of(cache.lines().clock(line)))
        due.push_back(line);
    }
    Move(&cache, due, part.partition, &(*frames)[part.partition], /*whole=*/false, &Counters::bound_push);
  }
}

void PushBuilder::Queues(bool whole, Frames* frames) {
  const uint32_t partitions = tables_->partitions();
  const bool any = std::any_of(tables_->begin(), tables_->end(),
                               [](const auto& table) { return table.second->unsent().queue().size() > 0; });
  if (!any) return;
  Vector<size_t> rows(partitions);
  Frames own(frames == nullptr ? partitions : 0, nullptr);
  if (frames == nullptr) frames = &own;
  for (const auto& [table, cache] : *tables_) {
    if (cache->unsent().queue().size() == 0) continue;
    std::fill(rows.begin(), rows.end(), 0);
    for (const WriteBackQueue::Queued& queued : cache->unsent().queue().entries()) {
      if (queued.ticks > 0) ++rows[tables_->PartitionOf(*cache, queued.key)];
    }
    Vector<PackedUpdates*> of_partition(partitions);
    for (uint32_t p = 0; p < partitions; ++p) {
      if (rows[p] == 0) continue;
      TablePush* const push = Add(p, &(*frames)[p], *cache, rows[p], whole);
      if ((*frames)[p]->notified_ack != 0) push->left += static_cast<uint32_t>(rows[p]);
      of_partition[p] = push;
    }
    cache->counters().evict_push += cache->unsent().queue().size();
    cache->unsent().TakeQueue(tables_->layout(), of_partition);
  }
}

void PushBuilder::All(bool whole) {
  for (const auto& [table, held] : *tables_) {
    TableCache* const cache = held.get();
    const SyncPolicy sync = cache->policy().sync();
    PartitionLines lines(tables_->partitions());
    cache->lines().ForEach([&](uint32_t line) {
      if (whole ? cache->unsent().Any(line) : PastBound(*cache, sync, line))
        lines[tables_->PartitionOf(*cache, cache->lines().meta(line).key)].push_back(line);
    });
    PushLines(cache, whole, lines, nullptr, &Counters::bound_push);
  }
  Queues(whole, nullptr);
}

void PushBuilder::PushLines(TableCache* cache, bool whole, const PartitionLines& lines, Frames* frames,
                            uint64_t Counters::*counter) {
  const size_t fit = std::max<size_t>(1, max_frame_bytes_ / RowBytes(*cache));
  for (uint32_t p = 0; p < lines.size(); ++p) {
    for (size_t begin = 0; begin < lines[p].size(); begin += fit) {
      PushFrame* own = nullptr;
      Move(cache, {lines[p].data() + begin, std::min(fit, lines[p].size() - begin)}, p,
           frames != nullptr && begin == 0 ? &(*frames)[p] : &own, whole, counter);
    }
  }
}

void PushBuilder::Trim() {
  bool full = false;
  for (const auto& [table, cache] : *tables_) {
    cache->DropTransient();
    cache->MakeRoom(0);
    full = full || cache->unsent().queue().size() > cache->policy().config().write_back_rows;
  }
  if (full) Queues();
}

}  // namespace het
