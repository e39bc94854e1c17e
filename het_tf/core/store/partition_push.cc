// Partition::Apply: a push is applied completely or not at all.
#include <algorithm>
#include <new>

#include "het_tf/core/store/partition.h"

namespace het {
namespace {

uint16_t SaturatingAdd(uint16_t count, uint32_t more) {
  return static_cast<uint16_t>(std::min<uint32_t>(0xffff, count + std::min<uint32_t>(more, 0xffff)));
}

struct RowOfPush {
  Shard* shard;
  uint32_t row;
  bool created;

  RowMeta& meta() const { return shard->rows().meta(row); }
};

// The found or created rows, in the order of the push.
class RowsOfPush {
 public:
  void reserve(size_t rows) { rows_.reserve(rows); }
  void Add(Shard* shard, Key key, uint32_t ticks) {
    const uint64_t hash = shard->rows().Hash(key);
    bool created = false;
    // Without a tick, it is a rounding remainder of ticks that are here. If their row was removed they are
    // lost, and a row with clock 0 counts as absent.
    const uint32_t row = ticks > 0 ? shard->FindOrCreate(key, hash, &created) : shard->rows().Find(key, hash);
    rows_.push_back({shard, row, created});
  }
  void Undo() {
    for (const RowOfPush& r : rows_) {
      if (r.created) r.shard->rows().Erase(r.row);
    }
  }
  // The highest clock before the push.
  Clock Newest() const {
    Clock newest = 0;
    for (const RowOfPush& r : rows_) {
      if (r.row != kNoRow) newest = std::max(newest, r.meta().clock);
    }
    return newest;
  }
  void ClampClocks() {
    for (const RowOfPush& r : rows_) {
      if (r.row != kNoRow) r.meta().clock = std::min(r.meta().clock, Shard::kLastClock);
    }
  }
  // Adds the updates of the push to their rows; `number`: of the change.
  void Merge(const Request& q, uint64_t number) const;
  const RowOfPush* data() const { return rows_.data(); }

 private:
  Vector<RowOfPush> rows_;
};

void RowsOfPush::Merge(const Request& q, uint64_t number) const {
  size_t at = 0;
  for (const TableRequest& t : q.tables) {
    if (t.push_keys.empty()) continue;
    const Optimizer& optimizer = rows_[at].shard->schema().optimizer();
    const uint64_t draw = PushDraw(t.table, q.client.high, q.client.low, q.seq);
    Shard& shard = *rows_[at].shard;
    RowStore& store = shard.rows();
    const float* update = t.push_updates.data();
    for (size_t i = 0; i < t.push_keys.size(); ++i, ++at, update += t.update_floats) {
      if (rows_[at].row == kNoRow) continue;
      shard.MarkChanged(rows_[at].row, number);
      optimizer.MergeWire(update, t.push_ticks[i], shard.Edit(rows_[at].row));
      shard.Keep(rows_[at].row, draw);
      RowMeta& meta = store.meta(rows_[at].row);
      meta.clock += t.push_ticks[i];
      meta.count = SaturatingAdd(meta.count, t.push_ticks[i]);
      if (t.push_ticks[i] > 0) meta.last_used = std::max(meta.last_used, q.time);
    }
  }
}

}  // namespace

FrameStatus Partition::Apply(const Request& q, bool owned, Handled* handled, std::string* message) {
  // First all rows, then all updates, so that failures come before changes.
  RowsOfPush rows;
  const bool known = clients_.all().count(q.client) != 0;
  ClientState* client = nullptr;
  bool may_end = false;  // a row's clock may reach its end
  const auto undo = [&] {
    rows.Undo();
    if (!known) clients_.Forget(q.client);
  };
  try {
    size_t pushes = 0;
    for (const TableRequest& t : q.tables) pushes += t.push_keys.size();
    rows.reserve(pushes);
    client = &clients_.At(q.client);
    for (size_t at = 0; at < q.tables.size(); ++at) {
      const TableRequest& t = q.tables[at];
      may_end = may_end || named_[at]->newest() > Shard::kLastClock;
      for (size_t i = 0; i < t.push_keys.size(); ++i) rows.Add(named_[at], t.push_keys[i], t.push_ticks[i]);
    }
  } catch (const std::bad_alloc&) {
    undo();
    return FrameStatus::kOutOfMemory;
  }
  if (const Clock newest = may_end ? rows.Newest() : 0; newest > Shard::kLastClock) {
    if (owned) {
      undo();
      *message = "a row of this push is at clock " + std::to_string(newest) +
                 ", and clocks end there; clear its table, or load it anew";
      return FrameStatus::kBadFrame;
    }
    rows.ClampClocks();
    handled->clamped = true;
  }
  rows.Merge(q, changes_.Next());
  const RowOfPush* of_table = rows.data();
  for (size_t at = 0; at < q.tables.size(); ++at) {
    const TableRequest& t = q.tables[at];
    subscribers_.Pushed(q.client, t.table, t.push_keys, t.push_ticks,
                        [&](size_t i) { return of_table[i].row == kNoRow ? 0 : of_table[i].meta().clock; });
    const Key* const end = t.push_keys.data() + t.push_keys.size();
    subscribers_.Left(q.client, q.notified_ack, t.table, {end - t.left, t.left});
    of_table += t.push_keys.size();
    uint32_t ticks = 0;  // most ticks of a row
    for (uint32_t each : t.push_ticks) ticks |= each;
    named_[at]->RaiseNewest(named_[at]->newest() + ticks);
  }
  *client = {q.seq, std::max(client->time, q.time)};
  return FrameStatus::kOk;
}

}  // namespace het
