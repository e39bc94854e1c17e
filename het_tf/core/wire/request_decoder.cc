// Decodes requests.
#include <algorithm>

#include "het_tf/core/wire/frame_bytes.h"
#include "het_tf/core/wire/named_keys.h"
#include "het_tf/core/wire/parts.h"
#include "het_tf/core/wire/request_flags.h"

namespace het {

using namespace frame;  // NOLINT: its other half

namespace {

// A part's head takes one byte in the frame and some 50 in memory, its answer 40 more.
constexpr size_t kMostParts = size_t{1} << 16;

}  // namespace

Status RequestParts::Open(Span<const uint8_t> frame) {
  Reader& r = reader_ = Reader(frame);
  others_.clear();
  tables_.Clear();
  size_ = next_ = 0;
  common_ = Request();
  if (r.Fixed<uint32_t>() != kRequestMagic) return Broken("its magic number is wrong");
  const uint8_t version = r.Fixed<uint8_t>();
  if (version != frame::kVersion) return OtherVersion(version);
  const uint8_t flags = r.Fixed<uint8_t>();
  Head before;
  before.request_id = r.Fixed<uint32_t>() - 1;
  bool ok = true;
  common_.partition.count = Narrow(r.Varint(), &ok);
  common_.partition.hash_seed = r.Fixed<uint64_t>();
  if ((flags & request::kClient) != 0) common_.client.high = r.Fixed<uint64_t>();
  if ((flags & request::kClient) != 0) common_.client.low = before.client_low = r.Fixed<uint64_t>();
  if ((flags & request::kTime) != 0) common_.time = r.Fixed<uint32_t>();
  const size_t parts = r.Count();
  if (!r.ok() || !ok || parts == 0 || parts > kMostParts || flags > request::kFrameFlags ||
      (parts > 1) != ((flags & request::kManyParts) != 0))
    return Broken("its head");
  first_ = ReadPartHead(before);
  others_.reserve(parts - 1);
  pushes_ = first_.seq != 0;
  for (size_t i = 1; i < parts && r.ok(); ++i) {
    others_.push_back(ReadPartHead(head(i - 1)));
    pushes_ = pushes_ || others_.back().seq != 0;
  }
  if (!r.ok() || pushes_ != ((flags & request::kPushes) != 0)) return Broken("the head of a part");
  size_ = parts;
  return Status();
}

RequestParts::Head RequestParts::ReadPartHead(const Head& before) {
  Reader& r = reader_;
  Head head = before;
  head.flags = r.Fixed<uint8_t>();
  const auto has = [&head](uint8_t flag) { return (head.flags & flag) != 0; };
  head.partition = has(request::kPartition) ? AddDelta32(before.partition, r.Varint()) : before.partition + 1;
  head.request_id =
      has(request::kRequestId) ? AddDelta32(before.request_id, r.Varint()) : before.request_id + 1;
  if (has(request::kOtherClient)) head.client_low = AddDelta(before.client_low, r.Varint());
  const uint64_t newest = std::max(before.seq, before.after_seq);
  head.seq = has(request::kSeq) ? AddDelta(newest, r.Varint()) : 0;
  head.after_seq = has(request::kAfterSeq) ? AddDelta(newest, r.Varint()) : head.seq;
  if (has(request::kNotifiedAck)) head.notified_ack = AddDelta32(before.notified_ack, r.Varint());
  head.digest = has(request::kKnowsInc | request::kTables) ? r.Fixed<uint32_t>() : 0;
  if (has(request::kSeq) != (head.seq != 0) || (has(request::kNotifiedAck) && head.notified_ack == 0))
    r.Raw(SIZE_MAX);  // fails
  return head;
}

Status RequestParts::Next(Request* q) {
  const Head& head = this->head(next_++);
  q->time = common_.time;
  q->partition = common_.partition;
  q->partition.index = head.partition;
  q->request_id = head.request_id;
  q->client = {common_.client.high, head.client_low};
  q->seq = head.seq;
  q->after_seq = head.after_seq;
  q->inc = 0;
  q->digest = head.digest;
  q->knows_inc = (head.flags & request::kKnowsInc) != 0;
  const bool acknowledges = (head.flags & request::kNotifiedAck) != 0;
  q->notified_ack = acknowledges ? head.notified_ack : 0;
  size_t tables = 0;
  tables_.StartPart();
  for (bool more = (head.flags & request::kTables) != 0; more;) {
    const uint8_t flags = reader_.Fixed<uint8_t>();
    if (!reader_.ok()) return Broken("its tables are truncated");
    HET_RETURN_IF_ERROR(ReadTable(NextTable(&q->tables, &tables), flags));
    more = (flags & kMore) != 0;
  }
  q->tables.resize(tables);
  if (left() == 0 && reader_.left() != 0) return Broken("bytes after its end");
  return Status();
}

bool frame::ReadHead(Reader* r, RequestTable* head) {
  bool ok = true;
  head->table = r->Fixed<uint64_t>();
  head->update_floats = Narrow(r->Varint(), &ok);
  const uint64_t most = r->Varint();
  if (most > static_cast<uint64_t>(kUnbounded)) ok = false;
  head->bound.most = most == 0 ? kUnbounded : static_cast<int64_t>(most - 1);
  head->bound.every = Narrow(r->Varint(), &ok);
  head->bound.early = head->bound.every == 0 ? 0 : Narrow(r->Varint(), &ok);
  head->bound.from = head->bound.every == 0 ? 0 : Narrow(r->Varint(), &ok);
  const uint8_t formats = r->Fixed<uint8_t>();
  head->push_format = static_cast<RowFormat>(formats & 15);
  head->row_format = static_cast<RowFormat>(formats >> 4);
  if (formats != 0) head->block = Narrow(r->Varint(), &ok);
  const uint64_t names = r->Varint();
  head->ring = Narrow(names / 2, &ok);
  head->anew = names % 2 != 0;
  ok = ok && (names == 0 || NamedKeys::IsSize(head->ring));
  return r->ok() && ok && IsRowFormat(formats & 15) && IsRowFormat(formats >> 4);
}

Status RequestParts::ReadTable(TableRequest* t, uint8_t flags) {
  Reader& r = reader_;
  const auto has = [flags](uint8_t flag) { return (flags & flag) != 0; };
  bool ok = true;
  HET_RETURN_IF_ERROR(tables_.Read(flags, &r, t));
  const auto keys = [&](uint64_t n, Vector<uint32_t>* names, Vector<Key>* in_full) {
    t->ring == 0 ? ReadAscending(n, &r, in_full) : ReadNamed(n, &r, names, in_full);
  };
  t->subscribe = has(request::kSubscribe);
  t->left = 0;
  if (has(request::kPush)) {
    const uint64_t pushes = r.Varint();
    t->left = Narrow(r.Varint(), &ok);
    if (t->left > pushes) return Broken("a push");
    keys(pushes - t->left, &t->names.push, &t->push_keys);
    ReadAscending(t->left, &r, &t->push_keys);
    if (!r.ok()) return Broken("a push");
    t->push_ticks.resize(pushes);
    ReadNumbers(pushes, &r, [&](size_t i, uint64_t ticks) {
      t->push_ticks[i] = Narrow(SwapOne(ticks), &ok);
      return ok;
    });
    const uint8_t* const rows = r.Raw(0);
    if (!r.ok() || !ok || pushes == 0 ||
        !UnpackRows(t->push_format, t->block, t->update_floats, pushes, &r, &t->push_updates)) {
      return Broken("a push");
    }
    t->packed_updates = {rows, static_cast<size_t>(r.Raw(0) - rows)};
  }
  if (has(request::kCheck)) {
    const uint64_t checks = r.Varint();
    keys(checks, &t->names.check, &t->check_keys);
    ReadClocks(checks, &r, &t->check_clocks);
    if (!r.ok() || t->check_clocks.size() != checks) return Broken("its checks");
  }
  if (has(request::kFetch)) keys(r.Varint(), &t->names.fetch, &t->fetch_keys);
  if (has(request::kDropped)) keys(r.Varint(), &t->names.dropped, &t->dropped);
  return r.ok() ? Status() : Broken("its fetches");
}

Status Decode(Span<const uint8_t> bytes, Request* q) {
  RequestParts parts;
  HET_RETURN_IF_ERROR(parts.Open(bytes));
  if (parts.size() != 1) {
    return InvalidArgument("a frame of " + std::to_string(parts.size()) + " parts where one is expected");
  }
  return parts.Next(q);
}

}  // namespace het
