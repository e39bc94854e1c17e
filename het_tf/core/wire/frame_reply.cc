// Replies: bytes out of their parts and back.
#include <algorithm>

#include "het_tf/core/wire/frame.h"
#include "het_tf/core/wire/frame_bytes.h"

namespace het {
namespace {

using namespace frame;  // NOLINT: its other half

// Of a part.
constexpr uint8_t kPartition = 1;  // not the one after the part before
constexpr uint8_t kRequestId = 2;  // the same
constexpr uint8_t kInc = 4;
constexpr uint8_t kLastSeq = 8;  // not that of the part before
constexpr uint8_t kStatus = 16;  // not kOk
constexpr uint8_t kTold = 32;
constexpr uint8_t kToldReset = 64;
constexpr uint8_t kTables = 128;
// Of a table.
constexpr uint8_t kNew = 1;
constexpr uint8_t kNumber = 2;  // not the one after the table before
constexpr uint8_t kRefreshed = 4;
constexpr uint8_t kFetched = 8;
constexpr uint8_t kLags = 16;
constexpr uint8_t kEpoch = 32;
constexpr uint8_t kToldKeys = 64;
constexpr uint8_t kMore = 128;

constexpr size_t kFrameHeadBytes = 9;
// No less than a part without message and tables takes.
constexpr size_t kPartHeadBytes = 40;

size_t RowsOf(const TableReply& t) {
  return t.stored_rows.size() + (t.row_floats == 0 ? 0 : t.rows.size() / t.row_floats);
}

size_t SizeBound(const Reply& p) {
  size_t bytes = kPartHeadBytes + 10 + p.message.size();
  for (const TableReply& t : p.tables) {
    bytes += 80 +
             10 * (t.refreshed_clocks.size() + t.fetched_clocks.size() + t.lag_histogram.size() +
                   t.told_keys.size() + t.told_clocks.size()) +
             5 * t.refreshed.size() + RowsOf(t) * MostRowBytes(t.row_format, t.block, t.row_floats);
  }
  return bytes;
}

}  // namespace

ReplyWriter::ReplyWriter(size_t parts, Bytes* out) : out_(out), parts_left_(parts) {
  out->clear();
  out->reserve(kFrameHeadBytes + parts * kPartHeadBytes);
}

void ReplyWriter::Add(const Reply& p) {
  const size_t begin = out_->size();
  const size_t known = tables_.size();
  const bool first = begin == 0;
  try {
    // Parts to come keep their room.
    --parts_left_;
    const size_t needed = begin + (first ? kFrameHeadBytes : 0) + SizeBound(p) + parts_left_ * kPartHeadBytes;
    if (needed > out_->capacity() && !(p.tables.empty() && p.message.empty())) {
      out_->reserve(first ? needed : std::max(needed, 2 * out_->capacity()));
    }
    Writer w(out_);
    if (first) {
      w.Fixed(kReplyMagic);
      w.Fixed(kFrameVersion);
      w.Fixed(p.request_id);
      request_id_ = p.request_id - 1;
    }
    uint8_t flags = 0;
    if (p.partition != partition_ + 1) flags |= kPartition;
    if (p.request_id != request_id_ + 1) flags |= kRequestId;
    if (!p.same_inc) flags |= kInc;
    if (p.last_seq != last_seq_) flags |= kLastSeq;
    if (p.status != FrameStatus::kOk) flags |= kStatus;
    if (p.told != 0) flags |= kTold;
    if (p.told_reset) flags |= kToldReset;
    if (!p.tables.empty()) flags |= kTables;
    w.Fixed(flags);
    if ((flags & kPartition) != 0) w.Varint(Delta32(p.partition, partition_));
    if ((flags & kRequestId) != 0) w.Varint(Delta32(p.request_id, request_id_));
    if (!p.same_inc) w.Fixed(p.inc);
    if ((flags & kLastSeq) != 0) w.Varint(Delta(p.last_seq, last_seq_));
    if ((flags & kStatus) != 0) {
      w.Fixed(static_cast<uint8_t>(p.status));
      w.Varint(p.message.size());
      w.Raw(p.message.data(), p.message.size());
    }
    if (p.told != 0) w.Varint(p.told);
    uint32_t number = 0;
    for (size_t i = 0; i < p.tables.size(); ++i) AddTable(p.tables[i], i + 1 < p.tables.size(), &number, &w);
  } catch (const std::bad_alloc&) {
    ++parts_left_;
    out_->resize(begin);
    tables_.resize(known);
    throw;
  }
  partition_ = p.partition;
  request_id_ = p.request_id;
  last_seq_ = p.last_seq;
}

void ReplyWriter::AddTable(const TableReply& t, bool more, uint32_t* next, Writer* w) {
  uint32_t number = *next;
  auto same = [&t](const ReplyTable& known) {
    return known.table == t.table && known.row_floats == t.row_floats && known.row_format == t.row_format &&
           known.block == t.block;
  };
  while (number < tables_.size() && !same(tables_[number])) ++number;
  const bool is_new = number == tables_.size();
  uint8_t flags = 0;
  if (is_new) flags |= kNew;
  if (!is_new && number != *next) flags |= kNumber;
  if (!t.refreshed.empty()) flags |= kRefreshed;
  if (!t.fetched_clocks.empty()) flags |= kFetched;
  if (!t.lag_histogram.empty()) flags |= kLags;
  if (t.epoch != 0) flags |= kEpoch;
  if (!t.told_keys.empty()) flags |= kToldKeys;
  if (more) flags |= kMore;
  w->Fixed(flags);
  if (is_new) {
    tables_.push_back({t.table, t.row_floats, t.block, t.row_format});
    w->Fixed(t.table);
    w->Varint(t.row_floats);
    w->Fixed(static_cast<uint8_t>(t.row_format));
    if (t.row_format != RowFormat::kFloat32) w->Varint(t.block);
  } else if ((flags & kNumber) != 0) {
    w->Varint(number);
  }
  *next = number + 1;
  if (t.epoch != 0) w->Fixed(t.epoch);
  if (!t.refreshed.empty()) {
    w->Varint(t.refreshed.size());
    for (uint32_t position : t.refreshed) w->Varint(position);
    WriteClocks(t.refreshed_clocks, w);
  }
  if (!t.fetched_clocks.empty()) {
    w->Varint(t.fetched_clocks.size());
    WriteClocks(t.fetched_clocks, w);
  }
  if (!t.told_keys.empty()) {
    w->Varint(t.told_keys.size());
    w->KeyRun(t.told_keys);
    WriteClocks(t.told_clocks, w);
  }
  for (const float *row = t.rows.data(), *end = row + t.rows.size(); row < end; row += t.row_floats) {
    PackRounded(t.row_format, t.block, t.row_floats, &row, 1, w);
  }
  PackRounded(t.row_format, t.block, t.row_floats, t.stored_rows.data(), t.stored_rows.size(), w);
  if (!t.lag_histogram.empty()) {
    w->Varint(t.lag_histogram.size());
    for (uint64_t count : t.lag_histogram) w->Varint(count);
  }
}

Status ReplyParts::Open(Span<const uint8_t> frame) {
  Reader& r = reader_ = Reader(frame);
  begin_ = r.left();
  tables_.clear();
  partition_ = UINT32_MAX;
  last_seq_ = 0;
  if (r.Fixed<uint32_t>() != kReplyMagic) return Broken("it does not begin as a reply does");
  const uint8_t version = r.Fixed<uint8_t>();
  if (version != kFrameVersion) return OtherVersion(version);
  request_id_ = r.Fixed<uint32_t>() - 1;
  return r.ok() && r.left() > 0 ? Status() : Broken("its head is truncated");
}

Status ReplyParts::Next(Reply* p, Vector<TableBytes>* tables, size_t* bytes) {
  Reader& r = reader_;
  const uint8_t flags = r.Fixed<uint8_t>();
  const auto has = [flags](uint8_t flag) { return (flags & flag) != 0; };
  p->partition = partition_ = has(kPartition) ? AddDelta32(partition_, r.Varint()) : partition_ + 1;
  p->request_id = request_id_ = has(kRequestId) ? AddDelta32(request_id_, r.Varint()) : request_id_ + 1;
  p->same_inc = !has(kInc);
  p->inc = has(kInc) ? r.Fixed<uint64_t>() : 0;
  p->last_seq = last_seq_ = has(kLastSeq) ? AddDelta(last_seq_, r.Varint()) : last_seq_;
  p->status = FrameStatus::kOk;
  p->message.clear();
  if (has(kStatus)) {
    const uint8_t status = r.Fixed<uint8_t>();
    if (status >= kFrameStatuses) return Broken("unknown status");
    p->status = static_cast<FrameStatus>(status);
    const size_t size = r.Count();
    const uint8_t* text = r.Raw(size);
    if (text == nullptr) return Broken("its message is truncated");
    p->message.assign(reinterpret_cast<const char*>(text), size);
  }
  bool ok = true;
  p->told = has(kTold) ? Narrow(r.Varint(), &ok) : 0;
  p->told_reset = has(kToldReset);
  p->tables.clear();
  if (tables != nullptr) tables->clear();
  uint32_t number = 0;
  for (bool more = has(kTables); more;) {
    const size_t begin = r.left();
    const uint8_t table_flags = r.Fixed<uint8_t>();
    if (!r.ok()) break;
    p->tables.emplace_back();
    TableBytes size;
    HET_RETURN_IF_ERROR(ReadTable(&p->tables.back(), table_flags, &number, &size.rows));
    size.all = begin - r.left();
    if (tables != nullptr) tables->push_back(size);
    more = (table_flags & kMore) != 0;
  }
  if (!r.ok() || !ok) return Broken("a number is truncated or out of range");
  if (bytes != nullptr) *bytes = begin_ - r.left();
  begin_ = r.left();
  return Status();
}

Status ReplyParts::ReadTable(TableReply* t, uint8_t flags, uint32_t* number, size_t* row_bytes) {
  Reader& r = reader_;
  const auto has = [flags](uint8_t flag) { return (flags & flag) != 0; };
  bool ok = true;
  if (has(kNew)) {
    ReplyTable table{};
    table.table = r.Fixed<uint64_t>();
    table.row_floats = Narrow(r.Varint(), &ok);
    const uint8_t format = r.Fixed<uint8_t>();
    table.row_format = static_cast<RowFormat>(format);
    if (format != 0) table.block = Narrow(r.Varint(), &ok);
    if (!r.ok() || !ok || !IsRowFormat(format)) return Broken("a table");
    *number = static_cast<uint32_t>(tables_.size());
    tables_.push_back(table);
  } else if (has(kNumber)) {
    const uint32_t given = Narrow(r.Varint(), &ok);
    if (!ok || given < *number) return Broken("the number of a table");
    *number = given;
  }
  if (!r.ok() || *number >= tables_.size()) return Broken("a table that nobody has named");
  const ReplyTable& table = tables_[(*number)++];
  t->table = table.table;
  t->row_floats = table.row_floats;
  t->row_format = table.row_format;
  t->block = table.block;
  if (has(kEpoch)) t->epoch = r.Fixed<uint64_t>();
  if (has(kRefreshed)) {
    const size_t refreshed = r.Count();
    t->refreshed.reserve(refreshed);
    for (size_t i = 0; i < refreshed && r.ok(); ++i) t->refreshed.push_back(Narrow(r.Varint(), &ok));
    ReadClocks(refreshed, &r, &t->refreshed_clocks);
    if (t->refreshed_clocks.size() != refreshed) return Broken("clocks");
  }
  if (has(kFetched)) {
    const size_t fetched = r.Count();
    ReadClocks(fetched, &r, &t->fetched_clocks);
    if (t->fetched_clocks.size() != fetched) return Broken("clocks");
  }
  if (has(kToldKeys)) {
    const size_t told = r.Count();
    r.KeyRun(told, &t->told_keys);
    ReadClocks(told, &r, &t->told_clocks);
    if (t->told_clocks.size() != told) return Broken("clocks");
  }
  if (!r.ok() || !ok) return Broken("clocks");
  const size_t rows = Present(t->refreshed_clocks) + Present(t->fetched_clocks) + Present(t->told_clocks);
  const size_t before = r.left();
  if (!UnpackRows(t->row_format, t->block, t->row_floats, rows, &r, &t->rows)) return Broken("rows");
  *row_bytes = before - r.left();
  if (has(kLags)) {
    const size_t buckets = r.Count();
    if (buckets > 65) return Broken("staleness histogram");
    for (size_t i = 0; i < buckets && r.ok(); ++i) t->lag_histogram.push_back(r.Varint());
  }
  return r.ok() ? Status() : Broken("a number is truncated");
}

void Encode(const Reply& p, Bytes* out) {
  ReplyWriter writer(1, out);
  writer.Add(p);
}

Status Decode(Span<const uint8_t> bytes, Reply* p) {
  ReplyParts parts;
  HET_RETURN_IF_ERROR(parts.Open(bytes));
  HET_RETURN_IF_ERROR(parts.Next(p));
  return parts.done() ? Status() : frame::Broken("bytes after its end, or a frame of several parts");
}

}  // namespace het
