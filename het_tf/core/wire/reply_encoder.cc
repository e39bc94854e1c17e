// Encodes replies.
#include <algorithm>

#include "het_tf/core/wire/frame_bytes.h"
#include "het_tf/core/wire/parts.h"
#include "het_tf/core/wire/reply_flags.h"

namespace het {

using namespace frame;  // NOLINT: its other half

namespace {

constexpr size_t kFrameHeadBytes = 9;
// At least the bytes of a part without message and tables.
constexpr size_t kPartHeadBytes = 40;

size_t RowsOf(const TableReply& t) {
  return t.stored_rows.size() + (t.row_floats == 0 ? 0 : t.rows.size() / t.row_floats);
}

size_t SizeBound(const Reply& p) {
  size_t bytes = kPartHeadBytes + 10 + p.message.size();
  for (const TableReply& t : p.tables) {
    bytes += 80 +
             10 * (t.refreshed_lags.size() + t.fetched_clocks.size() + t.lag_histogram.size() +
                   t.notified_keys.size()) +
             5 * (t.refreshed.size() + t.notified_names.size()) +
             RowsOf(t) * MostRowBytes(t.row_format, t.block, t.row_floats);
  }
  return bytes;
}

}  // namespace

ReplyWriter::ReplyWriter(size_t parts, Bytes* out) : out_(out), parts_left_(parts) {
  out->clear();
  out->reserve(kFrameHeadBytes + parts * kPartHeadBytes);
}

Reply& ReplyWriter::Part() {
  Reply part;
  part.tables = std::move(part_.tables);
  part_ = std::move(part);
  return part_;
}

void ReplyWriter::Add(const Reply& p) {
  const size_t begin = out_->size();
  const size_t known = tables_.size();
  const bool first = begin == 0;
  try {
    // Keeps room for later parts.
    --parts_left_;
    const size_t needed = begin + (first ? kFrameHeadBytes : 0) + SizeBound(p) + parts_left_ * kPartHeadBytes;
    if (needed > out_->capacity() && !(p.tables.empty() && p.message.empty())) {
      out_->reserve(first ? needed : std::max(needed, 2 * out_->capacity()));
    }
    Writer w(out_);
    if (first) {
      w.Fixed(kReplyMagic);
      w.Fixed(frame::kVersion);
      w.Fixed(p.request_id);
      request_id_ = p.request_id - 1;
    }
    uint8_t flags = 0;
    if (p.partition != partition_ + 1) flags |= reply::kPartition;
    if (p.request_id != request_id_ + 1) flags |= reply::kRequestId;
    if (!p.same_inc) flags |= reply::kInc;
    if (!p.same_seq) flags |= reply::kLastSeq;
    if (p.status != FrameStatus::kOk) flags |= reply::kStatus;
    if (p.notified != 0) flags |= reply::kNotified;
    if (p.subscription_reset) flags |= reply::kSubscriptionReset;
    if (!p.tables.empty()) flags |= reply::kTables;
    w.Fixed(flags);
    if ((flags & reply::kPartition) != 0) w.Varint(Delta32(p.partition, partition_));
    if ((flags & reply::kRequestId) != 0) w.Varint(Delta32(p.request_id, request_id_));
    if (!p.same_inc) w.Fixed(p.inc);
    if ((flags & reply::kLastSeq) != 0) w.Varint(Delta(p.last_seq, last_seq_));
    if ((flags & reply::kStatus) != 0) {
      w.Fixed(static_cast<uint8_t>(p.status));
      w.Varint(p.message.size());
      w.Raw(p.message.data(), p.message.size());
    }
    if (p.notified != 0) w.Varint(Delta32(p.notified, notified_));
    tables_.StartPart();
    for (size_t i = 0; i < p.tables.size(); ++i) {
      AddTable(p.tables[i], p.status, i + 1 < p.tables.size(), &w);
    }
  } catch (const std::bad_alloc&) {
    ++parts_left_;
    out_->resize(begin);
    tables_.Resize(known);
    throw;
  }
  partition_ = p.partition;
  request_id_ = p.request_id;
  if (!p.same_seq) last_seq_ = p.last_seq;
  if (p.notified != 0) notified_ = p.notified;
}

void frame::WriteHead(const ReplyTable& head, Writer* w) {
  w->Fixed(head.table);
  w->Varint(head.row_floats);
  w->Fixed(static_cast<uint8_t>(head.row_format));
  if (head.row_format != RowFormat::kFloat32) w->Varint(head.block);
}

void ReplyWriter::AddTable(const TableReply& t, FrameStatus status, bool more, Writer* w) {
  const bool epoch = status == FrameStatus::kEpoch;
  uint8_t flags = tables_.Find(t);
  if (!t.refreshed.empty()) flags |= reply::kRefreshed;
  if (!t.fetched_clocks.empty()) flags |= reply::kFetched;
  if (!t.lag_histogram.empty()) flags |= reply::kLags;
  if (epoch) flags |= reply::kEpoch;
  const bool names = !epoch && !t.notified_names.empty();
  if (names || !t.notified_keys.empty()) flags |= reply::kNotifiedKeys;
  if (names) flags |= reply::kNames;
  if (more) flags |= kMore;
  w->Fixed(flags);
  tables_.Write(flags, t, w);
  if (epoch) w->Fixed(t.epoch);
  if (!t.refreshed.empty()) {
    w->Varint(t.refreshed.size());
    WriteAscending(t.refreshed, w);
    WriteLags(t.refreshed_lags, w);
  }
  if (!t.fetched_clocks.empty()) {
    w->Varint(t.fetched_clocks.size());
    WriteClocks(t.fetched_clocks, w);
  }
  if (names) {
    w->Varint(t.notified_names.size());
    WriteNamed(t.notified_names, t.notified_keys, w);
  } else if (!t.notified_keys.empty()) {
    WriteKeys(t.notified_keys, w);
  }
  for (const float *row = t.rows.data(), *end = row + t.rows.size(); row < end; row += t.row_floats) {
    PackRows({t.row_format}, t.block, t.row_floats, &row, 1, w);
  }
  PackRows({t.row_format}, t.block, t.row_floats, t.stored_rows.data(), t.stored_rows.size(), w);
  if ((flags & reply::kLags) != 0) {
    w->Varint(t.lag_histogram.size());
    for (uint64_t count : t.lag_histogram) w->Varint(count);
  }
}

void Encode(const Reply& p, Bytes* out) {
  ReplyWriter writer(1, out);
  writer.Add(p);
}

}  // namespace het
