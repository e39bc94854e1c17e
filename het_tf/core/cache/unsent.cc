#include "het_tf/core/cache/unsent.h"

#include <algorithm>

#include "het_tf/core/row/any_nonzero.h"

namespace het {

Unsent::Unsent(Schema schema, uint64_t seed, const Cache& cache)
    : schema_(std::move(schema)),
      rounding_(Mix64(Mix64(seed) ^ schema_->id())),
      cache_(cache),
      updates_(schema_->row_floats()) {}

bool Unsent::Any(uint32_t line) {
  const LineState& state = cache_.lines->state(line);
  return state.pending > 0 ||
         (has_update(line) && AnyNonZero(updates_.data(state.update), schema_->row_floats()));
}

void Unsent::PrefetchTick(uint32_t line) {
  const uint32_t update = cache_.lines->state(line).update;
  const char* const row = reinterpret_cast<const char*>(cache_.lines->data(line));
  const char* const own =
      reinterpret_cast<const char*>(update == LineState::kNoUpdate ? nullptr : updates_.data(update));
  for (size_t at = 0; at < cache_.lines->row_floats() * sizeof(float); at += 64) {
    __builtin_prefetch(row + at, 1);
    if (own != nullptr) __builtin_prefetch(own + at, 1);
  }
}

Rounding Unsent::RoundingOfLast(Key key) const {
  return {cache_.policy->push_format(), SIZE_MAX,
          Mix64(HashKey(key, rounding_) ^ cache_.numbers->newest()) | 1};
}

float* Unsent::AppendWire(const float* update, Vector<float>* wire) const {
  const Optimizer& optimizer = schema_->optimizer();
  wire->insert(wire->end(), update + optimizer.wire_begin(), update + optimizer.row_floats());
  return wire->data() + wire->size() - optimizer.wire_floats();
}

uint32_t Unsent::Drop(uint32_t line) {
  LineState& state = cache_.lines->state(line);
  if (state.update != LineState::kNoUpdate) updates_.Give(state.update);
  state.update = LineState::kNoUpdate;
  return std::exchange(state.pending, 0);
}

void Unsent::TakeWhole(uint32_t line, Vector<uint32_t>* ticks, Vector<float>* wire) {
  AppendWire(updates_.data(cache_.lines->state(line).update), wire);
  ticks->push_back(Drop(line));
  cache_.lines->base(line) += ticks->back();
}

void Unsent::TakeUpdate(uint32_t line, Vector<uint32_t>* ticks, Vector<float>* wire) {
  if (cache_.policy->row_format() == RowFormat::kFloat32) return TakeWhole(line, ticks, wire);
  LineState& state = cache_.lines->state(line);
  ticks->push_back(state.pending);
  cache_.lines->base(line) += state.pending;
  const Optimizer& optimizer = schema_->optimizer();
  const size_t floats = optimizer.wire_floats();
  float* const rest = updates_.data(state.update) + optimizer.wire_begin();
  float* const sent = AppendWire(updates_.data(state.update), wire);
  // One that is not to stay soon loses the rest. Slots are what follows the value, where there is one.
  const Rounding rounding =
      state.transient ? RoundingOfLast(cache_.lines->meta(line).key)
                      : Rounding{cache_.policy->push_format(), schema_->dim() - optimizer.wire_begin()};
  RoundRow(rounding, schema_->dim(), floats, rest, sent);
  bool any = false;
  for (size_t i = 0; i < floats; ++i) {
    const float left = rest[i] - sent[i];
    rest[i] = left == left ? left : 0;  // of what is not finite nothing is left
    any |= rest[i] != 0;
  }
  state.pending = 0;
  if (!any) Drop(line);
}

bool Unsent::Leave(uint32_t line) {
  LineState& state = cache_.lines->state(line);
  if (state.pending == 0) {
    cache_.counters->dropped_remainders += Any(line);
    return false;
  }
  queue_.Push(cache_.lines->meta(line).key, state.pending, state.update);
  state.pending = 0;
  state.update = LineState::kNoUpdate;
  return true;
}

void Unsent::Restore(uint32_t line, const WriteBackQueue::Queued& queued) {
  LineState& state = cache_.lines->state(line);
  state.pending = queued.ticks;
  state.update = queued.update;
  queue_.Remove(queued);
}

void Unsent::TakeQueue(const Layout& layout, Span<const QueueTo> of_partition, bool whole) {
  const size_t floats = schema_->optimizer().wire_floats();
  const bool rounds = !whole && cache_.policy->row_format() != RowFormat::kFloat32;
  const TableLayout partition = layout.OfTable(schema_->id());
  queue_.TakeAll([&](const WriteBackQueue::Queued& queued) {
    const QueueTo& to = of_partition[partition.OfKey(queued.key)];
    to.keys->push_back(queued.key);
    to.ticks->push_back(queued.ticks);
    const float* const all = update(queued) + schema_->optimizer().wire_begin();
    float* const sent = AppendWire(update(queued), to.wire);
    if (rounds) {
      RoundRow(RoundingOfLast(queued.key), schema_->dim(), floats, all, sent);
      cache_.counters->dropped_remainders += !std::equal(sent, sent + floats, all);
    }
    updates_.Give(queued.update);
  });
}

size_t Unsent::keys() const {
  size_t keys = queue_.size();
  cache_.lines->ForEach([&](uint32_t line) { keys += cache_.lines->pending(line) > 0; });
  return keys;
}

}  // namespace het
