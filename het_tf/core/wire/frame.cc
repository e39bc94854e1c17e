// Requests: bytes out of their parts and back.
#include "het_tf/core/wire/frame.h"

#include <algorithm>

#include "het_tf/core/base/hash.h"
#include "het_tf/core/wire/frame_bytes.h"

namespace het {
namespace {

using namespace frame;  // NOLINT: its other half

// Of the frame.
constexpr uint8_t kPushes = 1;
constexpr uint8_t kClient = 2;
constexpr uint8_t kTime = 4;
constexpr uint8_t kManyParts = 8;
constexpr uint8_t kFrameFlags = 15;
// Of a part.
constexpr uint8_t kPartition = 1;  // not the one after the part before
constexpr uint8_t kRequestId = 2;  // the same
constexpr uint8_t kOtherClient = 4;
constexpr uint8_t kSeq = 8;
constexpr uint8_t kAfterSeq = 16;  // not seq
constexpr uint8_t kTell = 32;
constexpr uint8_t kKnowsInc = 64;
constexpr uint8_t kTables = 128;
// Of a table.
constexpr uint8_t kNew = 1;
constexpr uint8_t kNumber = 2;  // not the one after the table before
constexpr uint8_t kPush = 4;
constexpr uint8_t kCheck = 8;
constexpr uint8_t kFetch = 16;
constexpr uint8_t kDropped = 32;
constexpr uint8_t kHold = 64;
constexpr uint8_t kMore = 128;

constexpr size_t kFlagsAt = 5;

// A head takes a byte in the frame and some 50 in memory, its answer 40 more.
constexpr size_t kMostParts = size_t{1} << 16;

// At least what the frame takes: of heads, and of 10 bytes for any varint of 64 bits and 5 for one of 32.
size_t SizeBound(Span<const Request> parts) {
  size_t bytes = 64;
  for (const Request& q : parts) {
    bytes += 64;
    for (const TableRequest& t : q.tables) {
      bytes += 80 +
               10 * (t.push_keys.size() + t.check_keys.size() + t.check_clocks.size() + t.fetch_keys.size() +
                     t.dropped.size()) +
               5 * t.push_ticks.size() +
               t.push_keys.size() * MostRowBytes(t.push_format, t.block, t.update_floats);
    }
  }
  return bytes;
}

class RequestWriter {
 public:
  RequestWriter(bool push_only, Bytes* out, Vector<TableBytes>* tables)
      : push_only_(push_only), out_(out), w_(out), sizes_(tables) {}

  void Write(Span<const Request> parts) {
    out_->clear();
    out_->reserve(SizeBound(parts));
    const Request& first = parts[0];
    const bool client = first.client.high != 0 || first.client.low != 0;
    const bool pushes = std::any_of(parts.begin(), parts.end(), [](const Request& q) { return q.seq != 0; });
    w_.Fixed(kRequestMagic);
    w_.Fixed(kFrameVersion);
    w_.Fixed(static_cast<uint8_t>((pushes ? kPushes : 0) | (client ? kClient : 0) |
                                  (first.time != 0 ? kTime : 0) | (parts.size() > 1 ? kManyParts : 0)));
    w_.Fixed(first.request_id);
    w_.Varint(first.partition.count);
    w_.Fixed(first.partition.hash_seed);
    if (client) w_.Fixed(first.client.high);
    if (client) w_.Fixed(first.client.low);
    if (first.time != 0) w_.Fixed(first.time);
    w_.Varint(parts.size());
    const bool lone_push = parts.size() == 1 && IsPushAlone(first);
    Request start;
    start.partition.index = UINT32_MAX;
    start.request_id = first.request_id - 1;
    start.client = first.client;
    const Request* before = &start;
    for (const Request& q : parts) {
      Head(q, *before, lone_push ? 0 : q.inc);
      before = &q;
    }
    for (const Request& q : parts) {
      number_ = 0;
      const size_t last = LastTable(q);
      for (size_t i = 0; i < last; ++i) {
        if (Takes(q.tables[i])) Table(q.tables[i], /*more=*/i + 1 < last);
      }
    }
  }

 private:
  struct Known {
    const TableRequest* table;
    int64_t bound;
  };

  bool Takes(const TableRequest& t) const { return !push_only_ || !t.push_keys.empty(); }
  // One past the last table that is written.
  size_t LastTable(const Request& q) const {
    size_t last = q.tables.size();
    while (last > 0 && !Takes(q.tables[last - 1])) --last;
    return last;
  }
  uint64_t AfterSeq(const Request& q) const { return push_only_ ? q.seq : q.after_seq; }

  void Head(const Request& q, const Request& before, uint64_t inc) {
    const uint64_t after_seq = AfterSeq(q);
    const bool tables = LastTable(q) > 0;
    const bool tell = q.tell && !push_only_;
    uint8_t flags = 0;
    if (q.partition.index != before.partition.index + 1) flags |= kPartition;
    if (q.request_id != before.request_id + 1) flags |= kRequestId;
    if (q.client.low != before.client.low) flags |= kOtherClient;
    if (q.seq != 0) flags |= kSeq;
    if (after_seq != q.seq) flags |= kAfterSeq;
    if (tell) flags |= kTell;
    if (inc != 0 && !push_only_) flags |= kKnowsInc;
    if (tables) flags |= kTables;
    w_.Fixed(flags);
    if ((flags & kPartition) != 0) w_.Varint(Delta32(q.partition.index, before.partition.index));
    if ((flags & kRequestId) != 0) w_.Varint(Delta32(q.request_id, before.request_id));
    if ((flags & kOtherClient) != 0) w_.Varint(Delta(q.client.low, before.client.low));
    const uint64_t newest = std::max(before.seq, AfterSeq(before));
    if ((flags & kSeq) != 0) w_.Varint(Delta(q.seq, newest));
    if ((flags & kAfterSeq) != 0) w_.Varint(Delta(after_seq, newest));
    if (tell) w_.Varint(q.told_ack);
    if ((flags & (kKnowsInc | kTables)) == 0) return;
    EpochDigest digest((flags & kKnowsInc) != 0 ? inc : 0);
    for (const TableRequest& t : q.tables) {
      if (Takes(t)) digest.Add(t.table, t.epoch);
    }
    w_.Fixed(digest.value());
  }

  void Table(const TableRequest& t, bool more) {
    const size_t begin = out_->size();
    const int64_t bound = push_only_ ? kUnbounded : t.bound;
    // Numbers only rise within a part. Most parts name the same tables in the same order.
    uint32_t number = number_;
    auto same = [&](const Known& known) {
      const TableRequest& k = *known.table;
      return k.table == t.table && k.update_floats == t.update_floats && known.bound == bound &&
             k.push_format == t.push_format && k.row_format == t.row_format && k.block == t.block;
    };
    while (number < known_.size() && !same(known_[number])) ++number;
    const bool is_new = number == known_.size();
    uint8_t flags = 0;
    if (is_new) flags |= kNew;
    if (!is_new && number != number_) flags |= kNumber;
    if (!t.push_keys.empty()) flags |= kPush;
    if (!push_only_) {
      if (!t.check_keys.empty()) flags |= kCheck;
      if (!t.fetch_keys.empty()) flags |= kFetch;
      if (!t.dropped.empty()) flags |= kDropped;
      if (t.hold) flags |= kHold;
    }
    if (more) flags |= kMore;
    w_.Fixed(flags);
    if (is_new) {
      known_.push_back({&t, bound});
      w_.Fixed(t.table);
      w_.Varint(t.update_floats);
      w_.Varint(bound == kUnbounded ? 0 : static_cast<uint64_t>(bound) + 1);
      const auto formats =
          static_cast<uint8_t>(static_cast<uint8_t>(t.push_format) | static_cast<uint8_t>(t.row_format) << 4);
      w_.Fixed(formats);
      if (formats != 0) w_.Varint(t.block);
    } else if ((flags & kNumber) != 0) {
      w_.Varint(number);
    }
    number_ = number + 1;
    size_t rows = 0;
    if ((flags & kPush) != 0) {
      w_.Varint(t.push_keys.size());
      w_.KeyRun(t.push_keys);
      for (uint32_t ticks : t.push_ticks) w_.Varint(ticks);
      rows = out_->size();
      PackRows(t.push_format, t.block, t.update_floats, t.push_updates.data(), t.push_keys.size(), &w_);
      rows = out_->size() - rows;
    }
    if ((flags & kCheck) != 0) {
      w_.Varint(t.check_keys.size());
      w_.KeyRun(t.check_keys);
      WriteClocks(t.check_clocks, &w_);
    }
    if ((flags & kFetch) != 0) {
      w_.Varint(t.fetch_keys.size());
      w_.KeyRun(t.fetch_keys);
    }
    if ((flags & kDropped) != 0) {
      w_.Varint(t.dropped.size());
      w_.KeyRun(t.dropped);
    }
    if (sizes_ != nullptr) sizes_->push_back({out_->size() - begin, rows});
  }

  const bool push_only_;
  Bytes* const out_;
  Writer w_;
  Vector<TableBytes>* const sizes_;
  Vector<Known> known_;
  uint32_t number_ = 0;  // of the table before in this part, plus one
};

// 0 for what is no request of this version.
uint8_t FlagsOf(Span<const uint8_t> frame) {
  uint32_t magic = 0;
  if (frame.size() <= kFlagsAt) return 0;
  std::memcpy(&magic, frame.data(), sizeof(magic));
  return magic == kRequestMagic && frame[sizeof(magic)] == kFrameVersion ? frame[kFlagsAt] : 0;
}

}  // namespace

EpochDigest::EpochDigest(uint64_t inc) : digest_(Mix64(inc ^ 0x68657465706f6368)) {}

void EpochDigest::Add(uint64_t table, uint64_t epoch) { digest_ = Mix64(Mix64(digest_ ^ table) ^ epoch); }

bool IsPushAlone(const Request& q) {
  return q.seq != 0 && q.after_seq <= q.seq && !q.tell &&
         std::all_of(q.tables.begin(), q.tables.end(), [](const TableRequest& t) {
           return !t.push_keys.empty() && t.check_keys.empty() && t.fetch_keys.empty() && t.dropped.empty() &&
                  !t.hold;
         });
}

void EncodeParts(Span<const Request> parts, Bytes* out, Vector<TableBytes>* tables) {
  RequestWriter(/*push_only=*/false, out, tables).Write(parts);
}

void Encode(const Request& q, Bytes* out, Vector<TableBytes>* tables) {
  EncodeParts(Span<const Request>(&q, 1), out, tables);
}

void EncodePush(const Request& q, Bytes* out) {
  RequestWriter(/*push_only=*/true, out, nullptr).Write(Span<const Request>(&q, 1));
}

std::vector<PartRef> PartsOf(Span<const uint8_t> frame) {
  std::vector<PartRef> refs;
  RequestParts parts;
  if (!parts.Open(frame).ok()) return refs;
  for (size_t i = 0; i < parts.size(); ++i) refs.push_back(parts.ref(i));
  return refs;
}

bool IsOfManyParts(Span<const uint8_t> frame) { return (FlagsOf(frame) & kManyParts) != 0; }

bool HasPush(Span<const uint8_t> frame) { return (FlagsOf(frame) & kPushes) != 0; }

Status RequestParts::Open(Span<const uint8_t> frame) {
  Reader& r = reader_ = Reader(frame);
  others_.clear();
  tables_.clear();
  size_ = next_ = 0;
  common_ = Request();
  if (r.Fixed<uint32_t>() != kRequestMagic) return Broken("it does not begin as a request does");
  const uint8_t version = r.Fixed<uint8_t>();
  if (version != kFrameVersion) return OtherVersion(version);
  const uint8_t flags = r.Fixed<uint8_t>();
  Head before;
  before.request_id = r.Fixed<uint32_t>() - 1;
  bool ok = true;
  common_.partition.count = Narrow(r.Varint(), &ok);
  common_.partition.hash_seed = r.Fixed<uint64_t>();
  if ((flags & kClient) != 0) common_.client.high = r.Fixed<uint64_t>();
  if ((flags & kClient) != 0) common_.client.low = before.client_low = r.Fixed<uint64_t>();
  if ((flags & kTime) != 0) common_.time = r.Fixed<uint32_t>();
  const size_t parts = r.Count();
  if (!r.ok() || !ok || parts == 0 || parts > kMostParts || flags > kFrameFlags ||
      (parts > 1) != ((flags & kManyParts) != 0))
    return Broken("its head");
  first_ = ReadHead(before);
  others_.reserve(parts - 1);
  bool pushes = first_.seq != 0;
  for (size_t i = 1; i < parts && r.ok(); ++i) {
    others_.push_back(ReadHead(head(i - 1)));
    pushes = pushes || others_.back().seq != 0;
  }
  if (!r.ok() || pushes != ((flags & kPushes) != 0)) return Broken("the head of a part");
  size_ = parts;
  return Status();
}

RequestParts::Head RequestParts::ReadHead(const Head& before) {
  Reader& r = reader_;
  Head head = before;
  head.flags = r.Fixed<uint8_t>();
  const auto has = [&head](uint8_t flag) { return (head.flags & flag) != 0; };
  head.partition = has(kPartition) ? AddDelta32(before.partition, r.Varint()) : before.partition + 1;
  head.request_id = has(kRequestId) ? AddDelta32(before.request_id, r.Varint()) : before.request_id + 1;
  if (has(kOtherClient)) head.client_low = AddDelta(before.client_low, r.Varint());
  const uint64_t newest = std::max(before.seq, before.after_seq);
  head.seq = has(kSeq) ? AddDelta(newest, r.Varint()) : 0;
  head.after_seq = has(kAfterSeq) ? AddDelta(newest, r.Varint()) : head.seq;
  bool ok = true;
  head.told_ack = has(kTell) ? Narrow(r.Varint(), &ok) : 0;
  head.digest = has(kKnowsInc | kTables) ? r.Fixed<uint64_t>() : 0;
  if (!ok || has(kSeq) != (head.seq != 0)) r.Raw(SIZE_MAX);  // fails
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
  q->knows_inc = (head.flags & kKnowsInc) != 0;
  q->tell = (head.flags & kTell) != 0;
  q->told_ack = head.told_ack;
  q->tables.clear();
  uint32_t number = 0;
  for (bool more = (head.flags & kTables) != 0; more;) {
    const uint8_t flags = reader_.Fixed<uint8_t>();
    if (!reader_.ok()) return Broken("its tables are truncated");
    q->tables.emplace_back();
    HET_RETURN_IF_ERROR(ReadTable(&q->tables.back(), flags, &number));
    more = (flags & kMore) != 0;
  }
  if (left() == 0 && reader_.left() != 0) return Broken("bytes after its end");
  return Status();
}

Status RequestParts::ReadTable(TableRequest* t, uint8_t flags, uint32_t* number) {
  Reader& r = reader_;
  const auto has = [flags](uint8_t flag) { return (flags & flag) != 0; };
  bool ok = true;
  if (has(kNew)) {
    Table table{};
    table.table = r.Fixed<uint64_t>();
    table.update_floats = Narrow(r.Varint(), &ok);
    const uint64_t bound = r.Varint();
    if (bound > static_cast<uint64_t>(kUnbounded)) ok = false;
    table.bound = bound == 0 ? kUnbounded : static_cast<int64_t>(bound - 1);
    const uint8_t formats = r.Fixed<uint8_t>();
    table.push_format = static_cast<RowFormat>(formats & 15);
    table.row_format = static_cast<RowFormat>(formats >> 4);
    if (formats != 0) table.block = Narrow(r.Varint(), &ok);
    if (!r.ok() || !ok || !IsRowFormat(formats & 15) || !IsRowFormat(formats >> 4)) return Broken("a table");
    *number = static_cast<uint32_t>(tables_.size());
    tables_.push_back(table);
  } else if (has(kNumber)) {
    const uint32_t given = Narrow(r.Varint(), &ok);
    if (!ok || given < *number) return Broken("the number of a table");
    *number = given;
  }
  if (!r.ok() || *number >= tables_.size()) return Broken("a table that nobody has named");
  const Table& table = tables_[(*number)++];
  t->table = table.table;
  t->update_floats = table.update_floats;
  t->bound = table.bound;
  t->push_format = table.push_format;
  t->row_format = table.row_format;
  t->block = table.block;
  t->hold = has(kHold);
  if (has(kPush)) {
    const size_t pushes = r.Count();
    r.KeyRun(pushes, &t->push_keys);
    t->push_ticks.reserve(t->push_keys.size());
    for (size_t i = 0; i < pushes && r.ok(); ++i) t->push_ticks.push_back(Narrow(r.Varint(), &ok));
    if (!r.ok() || !ok || pushes == 0 ||
        !UnpackRows(t->push_format, t->block, t->update_floats, pushes, &r, &t->push_updates)) {
      return Broken("a push");
    }
  }
  if (has(kCheck)) {
    const size_t checks = r.Count();
    r.KeyRun(checks, &t->check_keys);
    ReadClocks(checks, &r, &t->check_clocks);
    if (!r.ok() || t->check_clocks.size() != checks) return Broken("its checks");
  }
  if (has(kFetch)) r.KeyRun(r.Count(), &t->fetch_keys);
  if (has(kDropped)) r.KeyRun(r.Count(), &t->dropped);
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
