// Requests into bytes.
#include <algorithm>
#include <utility>

#include "het_tf/core/base/hash.h"
#include "het_tf/core/wire/frame_bytes.h"
#include "het_tf/core/wire/request.h"
#include "het_tf/core/wire/request_flags.h"
#include "het_tf/core/wire/table_heads.h"

namespace het {

using namespace frame;  // NOLINT: its other half

namespace {

// At least what the frame takes: of heads, and of 10 bytes for any varint of 64 bits and 5 for one
// of 32.
template <typename Q>
size_t SizeBound(Span<const Q> parts) {
  size_t bytes = 64;
  for (const Q& q : parts) {
    bytes += 64;
    for (const auto& t : q.tables) {
      bytes += 80 +
               10 * (t.push_keys.size() + t.check_keys.size() + t.check_clocks.size() + t.fetch_keys.size() +
                     t.dropped.size()) +
               5 * (t.push_ticks.size() + t.names.push.size() + t.names.check.size() + t.names.fetch.size() +
                    t.names.dropped.size()) +
               t.push_keys.size() * MostRowBytes(t.push_format, t.block, t.update_floats);
    }
  }
  return bytes;
}

template <typename Q>
bool IsPushAloneOf(const Q& q) {
  return q.seq != 0 && q.after_seq <= q.seq &&
         std::all_of(q.tables.begin(), q.tables.end(), [](const auto& t) {
           return t.pushes() > 0 && t.check_clocks.empty() && t.fetches() == 0 && t.drops() == 0 &&
                  !t.subscribe;
         });
}

// `Q`: Request or OutRequest.
template <typename Q>
class RequestWriter {
 public:
  RequestWriter(bool push_only, Bytes* out, Vector<TableBytes>* tables)
      : push_only_(push_only), out_(out), w_(out), sizes_(tables) {}

  void Write(Span<const Q> parts) {
    out_->clear();
    out_->reserve(SizeBound(parts));
    const Q& first = parts[0];
    const bool client = first.client.high != 0 || first.client.low != 0;
    const bool pushes = std::any_of(parts.begin(), parts.end(), [](const Q& q) { return q.seq != 0; });
    w_.Fixed(kRequestMagic);
    w_.Fixed(frame::kVersion);
    w_.Fixed(static_cast<uint8_t>((pushes ? request::kPushes : 0) | (client ? request::kClient : 0) |
                                  (first.time != 0 ? request::kTime : 0) |
                                  (parts.size() > 1 ? request::kManyParts : 0)));
    w_.Fixed(first.request_id);
    w_.Varint(first.partition.count);
    w_.Fixed(first.partition.hash_seed);
    if (client) w_.Fixed(first.client.high);
    if (client) w_.Fixed(first.client.low);
    if (first.time != 0) w_.Fixed(first.time);
    w_.Varint(parts.size());
    const bool lone_push = parts.size() == 1 && IsPushAloneOf(first);
    Q start;
    start.partition.index = UINT32_MAX;
    start.request_id = first.request_id - 1;
    start.client = first.client;
    const Q* before = &start;
    for (const Q& q : parts) {
      Head(q, *before, lone_push ? 0 : q.inc);
      before = &q;
    }
    for (const Q& q : parts) {
      heads_.StartPart();
      const size_t last = LastTable(q);
      for (size_t i = 0; i < last; ++i) {
        if (Takes(q.tables[i])) Table(q.tables[i], /*more=*/i + 1 < last);
      }
    }
  }

 private:
  using TableOf = typename decltype(Q::tables)::value_type;

  bool Takes(const TableOf& t) const { return !push_only_ || t.pushes() > 0; }
  // One past the last table that is written.
  size_t LastTable(const Q& q) const {
    size_t last = q.tables.size();
    while (last > 0 && !Takes(q.tables[last - 1])) --last;
    return last;
  }
  uint64_t AfterSeq(const Q& q) const { return push_only_ ? q.seq : q.after_seq; }
  uint32_t NotifiedAck(const Q& q) const { return push_only_ ? 0 : q.notified_ack; }

  void Head(const Q& q, const Q& before, uint64_t inc) {
    const uint64_t after_seq = AfterSeq(q);
    const bool tables = LastTable(q) > 0;
    const uint32_t notified_ack = NotifiedAck(q);
    uint8_t flags = 0;
    if (q.partition.index != before.partition.index + 1) flags |= request::kPartition;
    if (q.request_id != before.request_id + 1) flags |= request::kRequestId;
    if (q.client.low != before.client.low) flags |= request::kOtherClient;
    if (q.seq != 0) flags |= request::kSeq;
    if (after_seq != q.seq) flags |= request::kAfterSeq;
    if (notified_ack != 0) flags |= request::kNotifiedAck;
    if (inc != 0 && !push_only_) flags |= request::kKnowsInc;
    if (tables) flags |= request::kTables;
    w_.Fixed(flags);
    if ((flags & request::kPartition) != 0) w_.Varint(Delta32(q.partition.index, before.partition.index));
    if ((flags & request::kRequestId) != 0) w_.Varint(Delta32(q.request_id, before.request_id));
    if ((flags & request::kOtherClient) != 0) w_.Varint(Delta(q.client.low, before.client.low));
    const uint64_t newest = std::max(before.seq, AfterSeq(before));
    if ((flags & request::kSeq) != 0) w_.Varint(Delta(q.seq, newest));
    if ((flags & request::kAfterSeq) != 0) w_.Varint(Delta(after_seq, newest));
    if (notified_ack != 0) w_.Varint(Delta32(notified_ack, std::exchange(notified_ack_, notified_ack)));
    if ((flags & (request::kKnowsInc | request::kTables)) == 0) return;
    EpochDigest digest((flags & request::kKnowsInc) != 0 ? inc : 0);
    for (const TableOf& t : q.tables) {
      if (!Takes(t)) continue;
      digest.Add(t.table, t.epoch);
      if (!push_only_ && t.ring != 0 && !t.anew) digest.AddNames(t.names.state);
    }
    w_.Fixed(digest.value(q.request_id));
  }

  void Table(const TableOf& t, bool more) {
    const size_t begin = out_->size();
    RequestTable head = t;
    if (push_only_) {
      head.bound = Bound();
      head.ring = 0;
      head.anew = false;
    }
    uint8_t flags = heads_.Find(head);
    if (t.pushes() > 0) flags |= request::kPush;
    if (!push_only_) {
      if (!t.check_clocks.empty()) flags |= request::kCheck;
      if (t.fetches() > 0) flags |= request::kFetch;
      if (t.drops() > 0) flags |= request::kDropped;
      if (t.subscribe) flags |= request::kSubscribe;
    }
    if (more) flags |= kMore;
    w_.Fixed(flags);
    heads_.Write(flags, head, &w_);
    size_t rows = 0;
    if ((flags & request::kPush) != 0) {
      const size_t stay = t.push_keys.size() - t.left;
      w_.Varint(t.pushes());
      w_.Varint(t.left);
      Keys(head.ring, t.names.push, Span<const Key>(t.push_keys.data(), stay));
      WriteAscending(Span<const Key>(t.push_keys.data() + stay, t.left), &w_);
      WriteTicks(t.push_ticks, &w_);
      rows = out_->size();
      w_.Raw(t.packed_updates.data(), t.packed_updates.size());
      const float* update = t.push_updates.data();
      for (; t.packed_updates.empty() && update < t.push_updates.data() + t.push_updates.size();
           update += t.update_floats)
        PackRows({t.push_format}, t.block, t.update_floats, &update, 1, &w_);
      rows = out_->size() - rows;
    }
    if ((flags & request::kCheck) != 0) {
      w_.Varint(t.check_clocks.size());
      Keys(head.ring, t.names.check, t.check_keys);
      WriteClocks(t.check_clocks, &w_);
    }
    if ((flags & request::kFetch) != 0) {
      w_.Varint(t.fetches());
      Keys(head.ring, t.names.fetch, t.fetch_keys);
    }
    if ((flags & request::kDropped) != 0) {
      w_.Varint(t.drops());
      Keys(head.ring, t.names.dropped, t.dropped);
    }
    if (sizes_ != nullptr) sizes_->push_back({out_->size() - begin, rows});
  }

  template <typename List>
  void Keys(uint32_t ring, const Vector<uint32_t>& names, const List& keys) {
    ring == 0 ? WriteAscending(keys, &w_) : WriteNamed(names, keys, &w_);
  }

  const bool push_only_;
  Bytes* const out_;
  Writer w_;
  Vector<TableBytes>* const sizes_;
  TableHeads<RequestTable> heads_;
  uint32_t notified_ack_ = 0;  // of the newest part that has one
};

template <typename Q>
OutFrame FrameOf(Span<const Q> parts, Bytes buffer, Vector<TableBytes>* tables) {
  OutFrame frame;
  frame.bytes = std::move(buffer);
  RequestWriter<Q>(/*push_only=*/false, &frame.bytes, tables).Write(parts);
  frame.parts.reserve(parts.size());
  for (const Q& q : parts) {
    frame.parts.push_back({q.partition.index, q.request_id});
    frame.push = frame.push || q.seq != 0;
  }
  return frame;
}

}  // namespace

void frame::WriteHead(const RequestTable& head, Writer* w) {
  w->Fixed(head.table);
  w->Varint(head.update_floats);
  w->Varint(head.bound.most == kUnbounded ? 0 : static_cast<uint64_t>(head.bound.most) + 1);
  w->Varint(head.bound.every);
  if (head.bound.every != 0) w->Varint(head.bound.early);
  if (head.bound.every != 0) w->Varint(head.bound.from);
  const auto formats = static_cast<uint8_t>(static_cast<uint8_t>(head.push_format) |
                                            static_cast<uint8_t>(head.row_format) << 4);
  w->Fixed(formats);
  if (formats != 0) w->Varint(head.block);
  w->Varint(2 * uint64_t{head.ring} + (head.anew ? 1 : 0));
}

EpochDigest::EpochDigest(uint64_t inc) : digest_(Mix64(inc ^ 0x68657465706f6368)) {}

uint32_t EpochDigest::value(uint32_t request_id) const {
  return static_cast<uint32_t>(Mix64(digest_ ^ request_id) >> 32);
}

void EpochDigest::Add(uint64_t table, uint64_t epoch) { digest_ = Mix64(Mix64(digest_ ^ table) ^ epoch); }

void EpochDigest::AddNames(uint64_t state) { digest_ = Mix64(digest_ ^ state); }

bool IsPushAlone(const Request& q) { return IsPushAloneOf(q); }

void EncodeParts(Span<const Request> parts, Bytes* out, Vector<TableBytes>* tables) {
  RequestWriter<Request>(/*push_only=*/false, out, tables).Write(parts);
}

OutFrame EncodeFrame(Span<const Request> parts, Bytes buffer, Vector<TableBytes>* tables) {
  return FrameOf(parts, std::move(buffer), tables);
}
OutFrame EncodeFrame(Span<const OutRequest> parts, Bytes buffer, Vector<TableBytes>* tables) {
  return FrameOf(parts, std::move(buffer), tables);
}

void Encode(const Request& q, Bytes* out, Vector<TableBytes>* tables) {
  EncodeParts(Span<const Request>(&q, 1), out, tables);
}

void EncodePush(const Request& q, Bytes* out) {
  RequestWriter<Request>(/*push_only=*/true, out, nullptr).Write(Span<const Request>(&q, 1));
}

}  // namespace het
