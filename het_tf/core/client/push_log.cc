#include "het_tf/core/client/push_log.h"

#include <numeric>

namespace het {

void TablePush::Sort() {
  if (sorted == keys.size()) return;
  if (std::is_sorted(keys.begin(), keys.end() - left) && std::is_sorted(keys.end() - left, keys.end())) {
    sorted = keys.size();
    return;
  }
  Vector<uint32_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  const auto by_key = [this](uint32_t a, uint32_t b) { return keys[a] < keys[b]; };
  std::sort(order.begin(), order.end() - left, by_key);
  std::sort(order.end() - left, order.end(), by_key);
  Vector<Clock> new_clocks;
  PackedUpdates to;
  to.keys.reserve(keys.size());
  to.ticks.reserve(keys.size());
  to.begins.reserve(begins.size());
  to.rows.reserve(rows.size());
  new_clocks.reserve(clocks.size());
  for (const uint32_t from : order) {
    const size_t begin = Begin(from);
    const size_t end = from + 1 < keys.size() ? Begin(from + 1) : rows.size();
    to.keys.push_back(keys[from]);
    to.ticks.push_back(ticks[from]);
    if (!begins.empty()) to.begins.push_back(static_cast<uint32_t>(to.rows.size()));
    Writer(&to.rows).Raw(rows.data() + begin, end - begin);
    if (!clocks.empty()) new_clocks.push_back(clocks[from]);
  }
  keys.swap(to.keys);
  ticks.swap(to.ticks);
  begins.swap(to.begins);
  rows.swap(to.rows);
  clocks.swap(new_clocks);
  sorted = keys.size();
}

uint32_t TablePush::Find(Key key) {
  Sort();
  const auto left_begin = keys.end() - left;
  for (const auto& [begin, end] : {std::pair(keys.begin(), left_begin), std::pair(left_begin, keys.end())}) {
    const auto found = std::lower_bound(begin, end, key);
    if (found != end && *found == key) return static_cast<uint32_t>(found - keys.begin());
  }
  return kNoRow;
}

TablePush* PushFrame::Of(uint64_t table) {
  for (TablePush& push : tables) {
    if (push.schema->id() == table) return &push;
  }
  return nullptr;
}

TablePush* PushFrame::Add(const Schema& schema, RowFormat format, size_t rows) {
  TablePush* push = Of(schema->id());
  if (push == nullptr) {
    push = &tables.emplace_back();
    push->schema = schema;
    push->format = format;
  }
  const size_t all = push->keys.size() + rows;
  push->keys.reserve(all);
  push->ticks.reserve(all);
  if (format != RowFormat::kFloat32) push->begins.reserve(all);
  push->rows.reserve(all * LeastRowBytes(format, schema->dim(), schema->optimizer().wire_floats()));
  return push;
}

size_t PushFrame::bytes() const {
  size_t sum = sizeof(PushFrame);
  for (const TablePush& push : tables) {
    sum += sizeof(TablePush) + push.rows.size() + push.keys.size() * (sizeof(Key) + sizeof(uint32_t)) +
           push.begins.size() * sizeof(uint32_t) + push.clocks.size() * sizeof(Clock);
  }
  return sum;
}

PushFrame* PushLog::Append(uint64_t number) {
  PushFrame* const frame = &frames_.emplace_back();
  frame->seq = next_seq_++;
  frame->number = number;
  return frame;
}

// Kept frames may be many, so their numbers are computed with, not looked at.
ptrdiff_t PushLog::IndexAfter(uint64_t seq) const {
  if (frames_.empty() || seq < frames_.front().seq) return 0;
  return static_cast<ptrdiff_t>(std::min<uint64_t>(frames_.size(), seq - frames_.front().seq + 1));
}

PushFrame* PushLog::After(uint64_t seq) {
  const auto frame = frames_.begin() + IndexAfter(seq);
  return frame == frames_.end() ? nullptr : &*frame;
}

void PushLog::SetApplied(uint64_t seq) {
  const auto [from, to] = std::minmax(applied_, seq);
  size_t between = 0;
  for (auto frame = frames_.begin() + IndexAfter(from); frame != frames_.end() && frame->seq <= to; ++frame)
    between += frame->bytes();
  kept_bytes_ = seq > applied_ ? kept_bytes_ + between : kept_bytes_ - std::min(kept_bytes_, between);
  applied_ = seq;
}

bool PushLog::Acknowledge(uint64_t last_seq) {
  const uint64_t applied = std::min(last_seq, next_seq_ - 1);
  if (applied <= applied_) return false;
  SetApplied(applied);
  return true;
}

void PushLog::Rewind(uint64_t seq) { SetApplied(seq); }

void PushLog::ForgetThrough(uint64_t seq) {
  for (; !frames_.empty() && frames_.front().seq <= seq; frames_.pop_front()) {
    kept_bytes_ -= std::min(kept_bytes_, frames_.front().bytes());
  }
  durable_ = std::max(durable_, seq);
}

void PushLog::Renumber() {
  next_seq_ = 1;
  for (PushFrame& frame : frames_) frame.seq = next_seq_++;
  applied_ = 0;
  durable_ = 0;
  kept_bytes_ = 0;
}

uint64_t PushLog::MergeOnto(uint64_t table, Key key, uint64_t seq, float* row) {
  uint64_t merged = 0;
  for (auto frame = frames_.begin() + IndexAfter(seq); frame != frames_.end(); ++frame) {
    TablePush* const push = frame->Of(table);
    const uint32_t at = push == nullptr ? kNoRow : push->Find(key);
    if (at == kNoRow) continue;
    const TableSchema& schema = *push->schema;
    update_.resize(schema.optimizer().wire_floats());
    Reader reader({push->rows.data() + push->Begin(at), push->rows.size() - push->Begin(at)});
    UnpackRow(push->format, schema.dim(), update_.size(), &reader, update_.data());
    schema.optimizer().MergeWire(update_.data(), push->ticks[at], row);
    merged += push->ticks[at];
  }
  return merged;
}

uint64_t PushLog::UnappliedTicks(uint64_t table, Key key) {
  uint64_t ticks = 0;
  for (auto frame = frames_.begin() + IndexAfter(applied_); frame != frames_.end(); ++frame) {
    TablePush* const push = frame->Of(table);
    const uint32_t at = push == nullptr ? kNoRow : push->Find(key);
    if (at != kNoRow) ticks += push->ticks[at];
  }
  return ticks;
}

uint64_t PushLog::DropUnapplied(uint64_t table) {
  uint64_t dropped = 0;
  for (auto frame = frames_.begin() + IndexAfter(applied_); frame != frames_.end(); ++frame) {
    TablePush* const push = frame->Of(table);
    if (push == nullptr) continue;
    for (uint32_t ticks : push->ticks) dropped += ticks;
    const Schema schema = push->schema;
    *push = TablePush();
    push->schema = schema;
  }
  return dropped;
}

void PushLog::RemoveTable(uint64_t table) {
  kept_bytes_ = 0;
  for (PushFrame& frame : frames_) {
    auto& tables = frame.tables;
    tables.erase(std::remove_if(tables.begin(), tables.end(),
                                [table](const TablePush& push) { return push.schema->id() == table; }),
                 tables.end());
    kept_bytes_ += frame.seq <= applied_ ? frame.bytes() : 0;
  }
}

}  // namespace het
