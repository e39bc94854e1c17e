#include "het_tf/core/client/look_ahead.h"

#include <algorithm>
#include <utility>

#include "het_tf/core/client/row_sink.h"

namespace het {
namespace {

// Any: reads with a token keep what they bring in the cache, and no lookup has this one.
constexpr uint64_t kAheadToken = ~uint64_t{0};
constexpr size_t kPatience = 64;
// Batches that may be held at once, of all layers: many layers, several batches each.
constexpr size_t kMostBatches = 512;

// The same for the same keys, and never 0. Hashes are well mixed, and which table they are of is
// said by the kind.
uint64_t Fingerprint(const CachedRead& read) {
  uint64_t sum = 0;
  for (const CachedRead::Part& part : read.parts) {
    const uint64_t of_table = Mix64(part.table);
    for (size_t u = 0; u < part.uniques; ++u) sum += Mix64(part.hashes[u] ^ of_table);
  }
  return sum | 1;
}

uint64_t FingerprintOf(CachedRead* read) {
  if (read->batch == 0) read->batch = Fingerprint(*read);
  return read->batch;
}

}  // namespace

size_t LookAhead::Room(const TableCache& cache, const Batch& beginning) const {
  auto held_by = [&](const Batch& batch) {
    const auto rows = batch.rows.find(&cache);
    return rows == batch.rows.end() ? 0 : rows->second;
  };
  size_t held = held_by(beginning);
  for (const auto& batch : batches_) held += held_by(*batch);
  return cache.config().capacity - std::min(cache.config().capacity, held);
}

void LookAhead::Begin(const CachedRead& wanted) {
  if (batches_.size() >= kMostBatches) Release(0);
  auto batch = std::make_unique<Batch>();
  ReadOp* const op = &batch->op;
  batch->kind = wanted.kind;
  batch->fingerprint = Fingerprint(wanted);
  batch->check_ahead = wanted.check_ahead;
  op->token = kAheadToken;
  op->ahead = true;
  op->checked = wanted.check_ahead > 0;
  op->sink = std::make_unique<LineSink>(op, pushes_);
  Asker asker(op, &on_way_);
  for (const CachedRead::Part& part : wanted.parts) {
    TableCache& cache = tables_->at(part.table);
    if (cache.device() != nullptr) continue;
    const size_t end = std::min(part.uniques, Room(cache, *batch));
    if (end < part.uniques) batch->check_ahead = 0;
    const bool check = op->checked && cache.config().sync().ChecksAhead();
    batch->rows[&cache] += end;
    cache.lines().FindBatch(part.keys, part.hashes, end, part.rows);
    for (size_t u = 0; u < end; ++u) {
      asker.Key(&cache, part.partition, part.keys[u], part.rows[u],
                check ? Asker::Cached::kAll : Asker::Cached::kNone);
    }
  }
  batches_.push_back(std::move(batch));
  asker.Ask(sessions_);
}

bool LookAhead::busy() const {
  return std::any_of(batches_.begin(), batches_.end(),
                     [](const auto& batch) { return !batch->op.parts.empty(); });
}

// The batch of this read, if its rows were asked about when it was read ahead, or are being so.
const LookAhead::Batch* LookAhead::CheckedBatch(CachedRead* read) const {
  if (read->kind == 0) return nullptr;
  for (const auto& batch : batches_) {
    if (batch->kind != read->kind || batch->fingerprint != FingerprintOf(read)) continue;
    const bool counts = batch->check_ahead > 0 && batch->passed <= batch->check_ahead;
    return counts ? batch.get() : nullptr;
  }
  return nullptr;
}

bool LookAhead::Awaited(CachedRead* read) const {
  const Batch* const batch = CheckedBatch(read);
  return batch != nullptr && !batch->op.done();
}

bool LookAhead::Checked(CachedRead* read) const {
  const Batch* const batch = CheckedBatch(read);
  return batch != nullptr && batch->op.open_parts == 0 && batch->op.error.ok();
}

void LookAhead::Use(TableCache* cache, uint64_t token, Span<const uint32_t> lines) {
  if (cache->ahead_lines() == 0) return;
  Vector<uint32_t> admitted;
  for (uint32_t line : lines) {
    if (line == kNoRow || !cache->ahead(line)) continue;
    cache->MarkUsed(line);
    if (token == 0 || !cache->Admit(cache->lines().Hash(cache->lines().meta(line).key))) continue;
    admitted.push_back(line);
  }
  if (admitted.empty()) return;
  cache->MakeRoom(admitted.size());
  for (uint32_t line : admitted) {
    if (cache->resident() < cache->config().capacity) cache->Settle(line);
  }
  if (cache->queued() > cache->config().write_back_rows) pushes_->Queues();
}

void LookAhead::Follow() {
  for (const auto& batch : batches_) {
    std::vector<PartitionReadPtr>& parts = batch->op.parts;
    const auto answered = std::partition(parts.begin(), parts.end(),
                                         [](const PartitionReadPtr& part) { return part->wanted(); });
    for (auto part = answered; part != parts.end(); ++part) on_way_.Remove(**part);
    parts.erase(answered, parts.end());
  }
  while (const auto late = on_way_.TakeReady()) AskLate(*late);
}

// The rows that a read waited for are here, or will not come: they are checked or fetched like any
// others.
void LookAhead::AskLate(const RowsOnWay::Late& late) {
  ReadOp* const op = late.ask->op;
  late.ask->op = nullptr;
  op->parts.erase(std::find(op->parts.begin(), op->parts.end(), late.ask));
  --op->open_parts;
  Asker asker(op, &on_way_, /*waits=*/false);
  Vector<uint32_t> lines;
  for (const TableRead& waited : late.ask->tables) {
    TableCache* const cache = waited.cache;
    const bool check = !op->ahead || (op->checked && cache->config().sync().ChecksAhead());
    lines.clear();
    for (Key key : waited.fetches) {
      const uint32_t line = cache->lines().Find(key);
      if (line != kNoRow && !op->ahead) lines.push_back(line);
      asker.Key(cache, late.partition, key, line, check ? Asker::Cached::kAll : Asker::Cached::kNone);
    }
    Use(cache, op->token, Span<const uint32_t>(lines.data(), lines.size()));
  }
  asker.Ask(sessions_);
}

void LookAhead::Finished(const ReadOp& lookup) {
  if (batches_.empty() || lookup.read->kind == 0) return;
  const uint64_t fingerprint = FingerprintOf(lookup.read);
  bool found = false;
  for (size_t i = 0; i < batches_.size();) {
    Batch& batch = *batches_[i];
    bool release = false;
    if (batch.kind == lookup.read->kind) {
      if (!found && batch.fingerprint == fingerprint) {
        found = release = true;
      } else if (lookup.token != 0) {
        release = ++batch.passed > kPatience;
      }
    }
    if (release) {
      Release(i);
    } else {
      ++i;
    }
  }
}

// What is still on its way is for nobody then; reads that wait for it ask again.
void LookAhead::Release(size_t which) {
  for (const PartitionReadPtr& part : batches_[which]->op.parts) on_way_.Remove(*part);
  batches_.erase(batches_.begin() + static_cast<ptrdiff_t>(which));
}

void LookAhead::Drop() {
  batches_.clear();
  on_way_.Clear();
}

}  // namespace het
