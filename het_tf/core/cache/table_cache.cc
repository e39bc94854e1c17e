#include "het_tf/core/cache/table_cache.h"

#include <algorithm>

#include "het_tf/core/row/any_nonzero.h"

namespace het {

TableCache::TableCache(Schema schema, const CacheConfig& config, uint64_t hash_seed, DeviceLines* device,
                       uint64_t seed, std::shared_ptr<CacheBudget> budget)
    : schema_(std::move(schema)),
      config_(config),
      device_(device),
      rounding_(Mix64(Mix64(seed) ^ schema_->id())),
      line_bytes_(LineBytes(schema_->row_floats())),
      budget_(budget != nullptr ? std::move(budget)
                                : std::make_shared<CacheBudget>(config.capacity * line_bytes_)),
      lines_(schema_->row_floats(), hash_seed),
      policy_(EvictionPolicy::Create(config.policy, config.capacity)),
      admission_(config.admit_after, config.capacity),
      updates_(schema_->row_floats()) {
  config_.Follow(schema_->spec().optimizer.name);
  budget_->Join(this);
}

uint32_t TableCache::Insert(Key key, uint64_t hash, Clock base, bool transient) {
  const uint32_t line = lines_.Insert(key, hash);
  try {
    if (line >= state_.size()) state_.resize(line + line / 2 + 16);
    if (transient) {
      transient_.push_back(line);
    } else {
      policy_->Insert(line);
    }
  } catch (...) {
    lines_.Erase(line);
    throw;
  }
  state_[line] = State();
  state_[line].held_until = numbers_.passed();
  if (line < next_use_.size()) next_use_[line] = 0;
  if (transient) {
    state_[line].flags = kTransient;
    ++transient_lines_;
    ++counters_.transient_rows;
  } else {
    ++counters_.inserts;
    budget_->Take(line_bytes_);
  }
  lines_.meta(line).clock = base;
  return line;
}

void TableCache::SetInvalid(uint32_t line, bool invalid) {
  State& state = state_[line];
  state.flags = static_cast<uint8_t>(invalid ? (state.flags | kInvalid) & ~(kSubscribed | kMoved)
                                             : state.flags & ~kInvalid);
}

void TableCache::MarkAllMoved() {
  ForEachLine([this](uint32_t line) { MarkMoved(line); });
}

size_t TableCache::Unsent() const {
  size_t keys = queue_.size();
  for (uint32_t line = 0; line < lines_.end(); ++line) keys += lines_.live(line) && state_[line].pending > 0;
  return keys;
}

size_t TableCache::bytes() const {
  return lines_.bytes() + state_.capacity() * sizeof(State) + updates_.bytes() + admission_.bytes() +
         queue_.bytes();
}

void TableCache::HoldForStep(uint32_t line, uint64_t step) {
  State& state = state_[line];
  const uint32_t known = numbers_.HeldBy(step);
  // Of a step that is not known: past all that the end of a known one could end.
  const uint32_t until = known == numbers_.passed() ? numbers_.farthest() : known;
  if (numbers_.Left(state.held_until) < numbers_.Left(until)) state.held_until = until;
}

size_t TableCache::Held() const {
  size_t lines = 0;
  for (uint32_t line = 0; line < lines_.end(); ++line) lines += lines_.live(line) && held(line);
  return lines;
}

void TableCache::PrefetchTick(uint32_t line) {
  const uint32_t update = state_[line].update;
  const char* const row = reinterpret_cast<const char*>(lines_.data(line));
  const char* const own =
      reinterpret_cast<const char*>(update == kNoUpdate ? nullptr : updates_.data(update));
  for (size_t at = 0; at < lines_.row_floats() * sizeof(float); at += 64) {
    __builtin_prefetch(row + at, 1);
    if (own != nullptr) __builtin_prefetch(own + at, 1);
  }
}

float* TableCache::UpdateOf(uint32_t line) {
  State& state = state_[line];
  if (state.update == kNoUpdate) {
    state.update = updates_.Take();
    state.pending = 0;
  }
  return updates_.data(state.update);
}

RowFormat TableCache::push_format() const {
  if (schema_->dim() == 1) return RowFormat::kFloat32;
  const bool integers = config_.wire == RowFormat::kInt8 || config_.wire == RowFormat::kInt4;
  return integers && schema_->optimizer().value_is_derived() ? RowFormat::kFloat16 : config_.wire;
}

Rounding TableCache::RoundingOfLast(Key key) const {
  return {push_format(), SIZE_MAX, Mix64(HashKey(key, rounding_) ^ numbers_.newest()) | 1};
}

float* TableCache::AppendWire(const float* update, Vector<float>* wire) const {
  const Optimizer& optimizer = schema_->optimizer();
  wire->insert(wire->end(), update + optimizer.wire_begin(), update + optimizer.row_floats());
  return wire->data() + wire->size() - optimizer.wire_floats();
}

void TableCache::SetClean(uint32_t line) {
  State& state = state_[line];
  updates_.Give(state.update);
  state.update = kNoUpdate;
  state.pending = 0;
}

bool TableCache::HasUnsent(uint32_t line) {
  const State& state = state_[line];
  return state.pending > 0 ||
         (state.update != kNoUpdate && AnyNonZero(updates_.data(state.update), schema_->row_floats()));
}

void TableCache::TakeWhole(uint32_t line, Vector<uint32_t>* ticks, Vector<float>* wire) {
  State& state = state_[line];
  ticks->push_back(state.pending);
  AppendWire(updates_.data(state.update), wire);
  lines_.meta(line).clock += state.pending;
  SetClean(line);
}

void TableCache::TakeUpdate(uint32_t line, Vector<uint32_t>* ticks, Vector<float>* wire) {
  if (row_format() == RowFormat::kFloat32) return TakeWhole(line, ticks, wire);
  State& state = state_[line];
  ticks->push_back(state.pending);
  lines_.meta(line).clock += state.pending;
  const Optimizer& optimizer = schema_->optimizer();
  const size_t floats = optimizer.wire_floats();
  float* const rest = updates_.data(state.update) + optimizer.wire_begin();
  float* const sent = AppendWire(updates_.data(state.update), wire);
  // One that is not to stay soon loses the rest. Slots are what follows the value, where there is one.
  const Rounding rounding = state.flags & kTransient
                                ? RoundingOfLast(lines_.meta(line).key)
                                : Rounding{push_format(), schema_->dim() - optimizer.wire_begin()};
  RoundRow(rounding, schema_->dim(), floats, rest, sent);
  bool any = false;
  for (size_t i = 0; i < floats; ++i) {
    const float left = rest[i] - sent[i];
    rest[i] = left == left ? left : 0;  // of what is not finite nothing is left
    any |= rest[i] != 0;
  }
  state.pending = 0;
  if (!any) SetClean(line);
}

uint32_t TableCache::Drop(uint32_t line) {
  State& state = state_[line];
  const uint32_t ticks = state.pending;
  if (state.update != kNoUpdate) updates_.Give(state.update);
  state.update = kNoUpdate;
  state.pending = 0;
  if (held(line)) {
    SetInvalid(line, true);
    return ticks;
  }
  if (state.flags & kSubscribed) {
    try {
      left_subscribed_.push_back(lines_.meta(line).key);
    } catch (const std::bad_alloc&) {  // the server will name it, for nothing
    }
  }
  if (state.flags & kTransient) {
    --transient_lines_;
  } else {
    policy_->Erase(line);
    budget_->Give(line_bytes_);
  }
  lines_.Erase(line);
  return ticks;
}

void TableCache::Evict(uint32_t line) {
  State& state = state_[line];
  const Key key = lines_.meta(line).key;
  if (state.pending > 0) {
    queue_.Push(key, state.pending, state.update);
    state.flags &= static_cast<uint8_t>(~kSubscribed);  // its push says that it has left
    state.pending = 0;
    state.update = kNoUpdate;
  } else if (HasUnsent(line)) {
    ++counters_.dropped_remainders;
  }
  ++counters_.evictions;
  Drop(line);
}

void TableCache::BeginLookup(uint64_t step) {
  numbers_.Begin(step);
  if (numbers_.newest() - trimmed_ <= kUntrimmed) return;
  DropTransient();
  MakeRoom(0);
}

void TableCache::SetNextUse(uint32_t line, uint32_t number) {
  if (number <= planned_) return;
  if (line >= next_use_.size()) next_use_.resize(state_.size());
  if (!planned(line) || number < next_use_[line]) next_use_[line] = number;
}

void TableCache::DropTransient() {
  size_t kept = 0;
  for (uint32_t line : transient_) {
    if (!lines_.live(line) || !(state_[line].flags & kTransient)) continue;
    if (held(line)) {
      transient_[kept++] = line;
    } else {
      Evict(line);
    }
  }
  transient_.resize(kept);
}

void TableCache::LetGo(size_t count) {
  Vector<uint32_t> victims;
  policy_->Victims(
      count, [this](uint32_t line) { return !held(line) && !planned(line); }, &victims);
  if (victims.size() < count && !next_use_.empty()) AddPlannedVictims(count - victims.size(), &victims);
  for (uint32_t line : victims) Evict(line);
  policy_->SetCapacity(capacity());
}

// Of the lines that planned lookups will use, those that are used last.
void TableCache::AddPlannedVictims(size_t count, Vector<uint32_t>* victims) const {
  Vector<uint32_t> lines;
  for (uint32_t line = 0; line < lines_.end(); ++line) {
    const bool resident = lines_.live(line) && !(state_[line].flags & kTransient);
    if (resident && planned(line) && !held(line)) lines.push_back(line);
  }
  count = std::min(count, lines.size());
  const auto end = lines.begin() + static_cast<ptrdiff_t>(count);
  std::nth_element(lines.begin(), end, lines.end(),
                   [this](uint32_t a, uint32_t b) { return next_use_[a] > next_use_[b]; });
  victims->insert(victims->end(), lines.begin(), end);
}

void TableCache::Restore(uint32_t line, const Queued& queued) {
  State& state = state_[line];
  state.pending = queued.ticks;
  state.update = queued.update;
  queue_.Remove(queued);
}

void TableCache::TakeQueue(const Layout& layout, Span<const QueueTo> of_partition, bool whole) {
  const size_t floats = schema_->optimizer().wire_floats();
  const bool rounds = !whole && row_format() != RowFormat::kFloat32;
  const TableLayout partition = layout.OfTable(schema_->id());
  queue_.TakeAll([&](const Queued& queued) {
    const QueueTo& to = of_partition[partition.OfKey(queued.key)];
    to.keys->push_back(queued.key);
    to.ticks->push_back(queued.ticks);
    const float* const all = updates_.data(queued.update) + schema_->optimizer().wire_begin();
    float* const sent = AppendWire(updates_.data(queued.update), to.wire);
    if (rounds) {
      RoundRow(RoundingOfLast(queued.key), schema_->dim(), floats, all, sent);
      counters_.dropped_remainders += !std::equal(sent, sent + floats, all);
    }
    updates_.Give(queued.update);
  });
}

}  // namespace het
