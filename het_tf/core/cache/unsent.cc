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

const float* Unsent::Pack(Key key, uint32_t ticks, const float* wire, Clock age, PackedUpdates* to) {
  const size_t dim = schema_->dim();
  const size_t floats = schema_->optimizer().wire_floats();
  const float* sent = wire;
  Writer rows(&to->rows);
  if (to->format == RowFormat::kFloat32) {
    rows.Raw(wire, floats * sizeof(float));
  } else {
    // Slots are what follows the value, where there is one. The rounding of the last push of a row depends on
    // the client, the table, the row and the lookup, each mixed before the next enters. Otherwise the errors
    // of several rows, tables or workers are equal, and add up.
    Rounding rounding{to->format, dim - schema_->optimizer().wire_begin(), 0, age >= kCoarseAge};
    if (age == kLeaves)
      rounding = {to->format, SIZE_MAX, Mix64(HashKey(key, rounding_) ^ cache_.numbers->newest()) | 1};
    packed_.clear();
    Writer packed(&packed_);
    PackRows(rounding, dim, floats, &wire, 1, &packed);
    packed_as_.resize(floats);
    Reader reader(packed_);
    UnpackRow(to->format, dim, floats, &reader, packed_as_.data());
    sent = packed_as_.data();
    rows.Raw(packed_.data(), packed_.size());
    to->begins.push_back(static_cast<uint32_t>(to->rows.size() - packed_.size()));
  }
  to->keys.push_back(key);
  to->ticks.push_back(ticks);
  return sent;
}

uint32_t Unsent::Drop(uint32_t line) {
  LineState& state = cache_.lines->state(line);
  if (state.update != LineState::kNoUpdate) updates_.Give(state.update);
  state.update = LineState::kNoUpdate;
  return std::exchange(state.pending, 0);
}

void Unsent::TakeUpdate(uint32_t line, PackedUpdates* to) {
  LineState& state = cache_.lines->state(line);
  const Optimizer& optimizer = schema_->optimizer();
  float* const rest = updates_.data(state.update) + optimizer.wire_begin();
  const Clock age = state.transient ? kLeaves : AgeOf(cache_.lines->clock(line));
  const float* const sent = Pack(cache_.lines->meta(line).key, state.pending, rest, age, to);
  const Clock before = cache_.lines->base(line);
  cache_.lines->base(line) += std::exchange(state.pending, 0);
  bool any = false;
  for (size_t i = 0; sent != rest && i < optimizer.wire_floats(); ++i) {
    const float left = rest[i] - sent[i];
    rest[i] = left == left ? left : 0;  // of what is not finite nothing is left
    any |= rest[i] != 0;
  }
  if (!schema_->stored().exact()) RoundAsStored(line, any ? rest : nullptr, before, to->draw);
  if (!any) Drop(line);
}

// Only FTRL's updates are shorter than rows, and its rows are stored as floats.
void Unsent::RoundAsStored(uint32_t line, const float* rest, Clock before, uint64_t push) {
  float* const row = cache_.lines->data(line);
  const size_t floats = rest == nullptr ? 0 : schema_->row_floats();
  for (size_t i = 0; i < floats; ++i) row[i] -= rest[i];
  schema_->stored().Round(RowDraw(push, cache_.lines->meta(line).key, before), row);
  for (size_t i = 0; i < floats; ++i) row[i] += rest[i];
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

void Unsent::TakeQueue(const Layout& layout, Span<PackedUpdates* const> of_partition) {
  const Optimizer& optimizer = schema_->optimizer();
  const TableLayout partition = layout.OfTable(schema_->id());
  queue_.RemoveIf([&](const WriteBackQueue::Queued& queued) {
    const float* const all = update(queued) + optimizer.wire_begin();
    const float* const sent =
        Pack(queued.key, queued.ticks, all, kLeaves, of_partition[partition.OfKey(queued.key)]);
    cache_.counters->dropped_remainders +=
        sent != all && !std::equal(sent, sent + optimizer.wire_floats(), all);
    updates_.Give(queued.update);
    return true;
  });
}

size_t Unsent::keys() const {
  size_t keys = queue_.size();
  cache_.lines->ForEach([&](uint32_t line) { keys += cache_.lines->pending(line) > 0; });
  return keys;
}

}  // namespace het
