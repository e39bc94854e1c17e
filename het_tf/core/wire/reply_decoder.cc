// Decodes replies.
#include "het_tf/core/wire/frame_bytes.h"
#include "het_tf/core/wire/parts.h"
#include "het_tf/core/wire/reply_flags.h"

namespace het {

using namespace frame;  // NOLINT: its other half

Status ReplyParts::Open(Span<const uint8_t> frame) {
  Reader& r = reader_ = Reader(frame);
  begin_ = r.left();
  tables_.Clear();
  partition_ = UINT32_MAX;
  last_seq_ = 0;
  notified_ = 0;
  if (r.Fixed<uint32_t>() != kReplyMagic) return Broken("its magic number is wrong");
  const uint8_t version = r.Fixed<uint8_t>();
  if (version != frame::kVersion) return OtherVersion(version);
  request_id_ = r.Fixed<uint32_t>() - 1;
  return r.ok() && r.left() > 0 ? Status() : Broken("its head is truncated");
}

Status ReplyParts::Next(Reply* p, Vector<TableBytes>* tables, size_t* bytes) {
  Reader& r = reader_;
  const uint8_t flags = r.Fixed<uint8_t>();
  const auto has = [flags](uint8_t flag) { return (flags & flag) != 0; };
  p->partition = partition_ = has(reply::kPartition) ? AddDelta32(partition_, r.Varint()) : partition_ + 1;
  p->request_id = request_id_ =
      has(reply::kRequestId) ? AddDelta32(request_id_, r.Varint()) : request_id_ + 1;
  p->same_inc = !has(reply::kInc);
  p->inc = has(reply::kInc) ? r.Fixed<uint64_t>() : 0;
  p->same_seq = !has(reply::kLastSeq);
  if (!p->same_seq) last_seq_ = AddDelta(last_seq_, r.Varint());
  p->last_seq = p->same_seq ? 0 : last_seq_;
  p->status = FrameStatus::kOk;
  p->message.clear();
  if (has(reply::kStatus)) {
    const uint8_t status = r.Fixed<uint8_t>();
    if (status >= kFrameStatuses) return Broken("unknown status");
    p->status = static_cast<FrameStatus>(status);
    const size_t size = r.Count();
    const uint8_t* text = r.Raw(size);
    if (text == nullptr) return Broken("its message is truncated");
    p->message.assign(reinterpret_cast<const char*>(text), size);
  }
  if (has(reply::kNotified)) notified_ = AddDelta32(notified_, r.Varint());
  p->notified = has(reply::kNotified) ? notified_ : 0;
  p->subscription_reset = has(reply::kSubscriptionReset);
  if (tables != nullptr) tables->clear();
  size_t used = 0;
  tables_.StartPart();
  for (bool more = has(reply::kTables); more;) {
    const size_t begin = r.left();
    const uint8_t table_flags = r.Fixed<uint8_t>();
    if (!r.ok()) break;
    TableBytes size;
    HET_RETURN_IF_ERROR(ReadTable(NextTable(&p->tables, &used), p->status, table_flags, &size.rows));
    size.all = begin - r.left();
    if (tables != nullptr) tables->push_back(size);
    more = (table_flags & kMore) != 0;
  }
  p->tables.resize(used);
  if (!r.ok()) return Broken("a number is truncated");
  if (bytes != nullptr) *bytes = begin_ - r.left();
  begin_ = r.left();
  return Status();
}

bool frame::ReadHead(Reader* r, ReplyTable* head) {
  bool ok = true;
  head->table = r->Fixed<uint64_t>();
  head->row_floats = Narrow(r->Varint(), &ok);
  const uint8_t format = r->Fixed<uint8_t>();
  head->row_format = static_cast<RowFormat>(format);
  if (format != 0) head->block = Narrow(r->Varint(), &ok);
  return r->ok() && ok && IsRowFormat(format);
}

Status ReplyParts::ReadTable(TableReply* t, FrameStatus status, uint8_t flags, size_t* row_bytes) {
  Reader& r = reader_;
  const auto has = [flags](uint8_t flag) { return (flags & flag) != 0; };
  bool ok = true;
  HET_RETURN_IF_ERROR(tables_.Read(flags, &r, t));
  const bool epoch = status == FrameStatus::kEpoch;
  if (epoch && has(reply::kEpoch)) t->epoch = r.Fixed<uint64_t>();
  if (has(reply::kRefreshed)) {
    const uint64_t refreshed = r.Varint();
    ReadAscending(refreshed, &r, &t->refreshed);
    if (r.ok()) t->refreshed_lags.resize(t->refreshed.size());
    ReadNumbers(t->refreshed.size(), &r, [t](size_t i, uint64_t lag) {
      t->refreshed_lags[i] = static_cast<Clock>(lag);
      return true;
    });
  }
  if (has(reply::kFetched)) {
    const size_t fetched = r.Count();
    ReadClocks(fetched, &r, &t->fetched_clocks);
    if (t->fetched_clocks.size() != fetched) return Broken("clocks");
  }
  if (has(reply::kNotifiedKeys)) {
    const uint64_t notified = r.Varint();
    !epoch&& has(reply::kNames) ? ReadNamed(notified, &r, &t->notified_names, &t->notified_keys)
                                : ReadAscending(notified, &r, &t->notified_keys);
  }
  if (!r.ok() || !ok) return Broken("clocks");
  const size_t rows = t->KnownRows();
  const size_t before = r.left();
  if (!UnpackRows(t->row_format, t->block, t->row_floats, rows, &r, &t->rows)) return Broken("rows");
  *row_bytes = before - r.left();
  if (has(reply::kLags)) {
    const uint64_t buckets = r.Varint();
    if (buckets >= reply::kBucketCounts) return Broken("staleness histogram");
    for (uint64_t i = 0; i < buckets && r.ok(); ++i) t->lag_histogram.push_back(r.Varint());
  }
  return r.ok() ? Status() : Broken("a number is truncated");
}

Status Decode(Span<const uint8_t> bytes, Reply* p) {
  ReplyParts parts;
  HET_RETURN_IF_ERROR(parts.Open(bytes));
  HET_RETURN_IF_ERROR(parts.Next(p));
  return parts.done() ? Status() : frame::Broken("bytes after its end, or a frame of several parts");
}

}  // namespace het
