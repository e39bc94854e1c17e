#include "het_tf/core/client/push_log.h"

namespace het {

const TablePush::Place* TablePush::Find(Key key) {
  if (by_key.size() != keys.size()) {
    by_key.clear();
    by_key.reserve(keys.size());
    Vector<float> row(schema->optimizer().wire_floats());
    Reader reader(rows);
    for (uint32_t i = 0; i < keys.size(); ++i) {
      by_key.push_back({keys[i], i, rows.size() - reader.left()});
      UnpackRow(format, schema->dim(), row.size(), &reader, row.data());
    }
    std::sort(by_key.begin(), by_key.end(), [](const Place& a, const Place& b) { return a.key < b.key; });
  }
  const auto place = std::lower_bound(by_key.begin(), by_key.end(), key,
                                      [](const Place& each, Key wanted) { return each.key < wanted; });
  return place == by_key.end() || place->key != key ? nullptr : &*place;
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
  push->rows.reserve(all * LeastRowBytes(format, schema->dim(), schema->optimizer().wire_floats()));
  return push;
}

size_t PushFrame::bytes() const {
  size_t sum = sizeof(PushFrame);
  for (const TablePush& push : tables) {
    sum += sizeof(TablePush) + push.rows.size() +
           push.keys.size() * (sizeof(Key) + sizeof(uint32_t) + sizeof(TablePush::Place)) +
           push.clocks.size() * sizeof(Clock);
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

const PushFrame* PushLog::After(uint64_t seq) const {
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
    const TablePush::Place* const place = push == nullptr ? nullptr : push->Find(key);
    if (place == nullptr) continue;
    const TableSchema& schema = *push->schema;
    update_.resize(schema.optimizer().wire_floats());
    Reader reader({push->rows.data() + place->begin, push->rows.size() - place->begin});
    UnpackRow(push->format, schema.dim(), update_.size(), &reader, update_.data());
    schema.optimizer().MergeWire(update_.data(), push->ticks[place->at], row);
    merged += push->ticks[place->at];
  }
  return merged;
}

uint64_t PushLog::UnappliedTicks(uint64_t table, Key key) {
  uint64_t ticks = 0;
  for (auto frame = frames_.begin() + IndexAfter(applied_); frame != frames_.end(); ++frame) {
    TablePush* const push = frame->Of(table);
    const TablePush::Place* const place = push == nullptr ? nullptr : push->Find(key);
    if (place != nullptr) ticks += push->ticks[place->at];
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
