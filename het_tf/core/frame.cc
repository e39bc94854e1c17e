#include "het_tf/core/frame.h"

#include <limits>

namespace het {
namespace {

constexpr uint32_t kRequestMagic = 0x51544548;  // "HETQ"
constexpr uint32_t kReplyMagic = 0x52544548;    // "HETR"

void WriteClocks(const Vector<Clock>& clocks, Writer* w) {
  for (Clock clock : clocks) w->Varint(ZigZag(clock));
}

void ReadClocks(size_t count, Reader* r, Vector<Clock>* clocks) {
  if (count > r->left()) count = 0;
  clocks->clear();
  clocks->reserve(count);
  for (size_t i = 0; i < count && r->ok(); ++i) clocks->push_back(UnZigZag(r->Varint()));
}

// `count` rows of `floats` each. False when they are not all there.
bool ReadFloats(size_t count, size_t floats, Reader* r, Vector<float>* out) {
  if (floats != 0 && count > r->left() / sizeof(float) / floats) return false;
  const uint8_t* bytes = r->Raw(count * floats * sizeof(float));
  if (bytes == nullptr) return false;
  out->resize(count * floats);
  if (count * floats > 0) std::memcpy(out->data(), bytes, out->size() * sizeof(float));
  return true;
}

uint32_t Narrow(uint64_t value, bool* ok) {
  if (value > std::numeric_limits<uint32_t>::max()) *ok = false;
  return static_cast<uint32_t>(value);
}

constexpr size_t kRequestIdAt = 8;
constexpr size_t kSeqAt = 48;

// At least what the frame takes: of heads, and of 10 bytes for any varint of 64 bits and 5 for one of 32.
size_t SizeBound(const Request& q) {
  size_t bytes = 80;
  for (const TableRequest& t : q.tables) {
    bytes += 80 +
             10 * (t.push_keys.size() + t.check_keys.size() + t.check_clocks.size() + t.fetch_keys.size()) +
             5 * t.push_ticks.size() + sizeof(float) * t.push_updates.size();
  }
  return bytes;
}

size_t SizeBound(const Reply& p) {
  size_t bytes = 48 + p.message.size();
  for (const TableReply& t : p.tables) {
    bytes += 80 + 10 * (t.refreshed_clocks.size() + t.fetched_clocks.size() + t.lag_histogram.size()) +
             5 * t.refreshed.size() + sizeof(float) * (t.rows.size() + t.stored_rows.size() * t.row_floats);
  }
  return bytes;
}

void Encode(const Request& q, bool push_only, Bytes* out, Vector<size_t>* parts) {
  out->clear();
  out->reserve(SizeBound(q));
  Writer w(out);
  w.Fixed(kRequestMagic);
  w.Fixed(kFrameVersion);
  w.Fixed(uint8_t{0});
  w.Fixed(uint16_t{0});
  w.Fixed(q.request_id);
  w.Fixed(q.time);
  w.Fixed(q.partition.index);
  w.Fixed(q.partition.count);
  w.Fixed(q.partition.hash_seed);
  w.Fixed(q.client.high);
  w.Fixed(q.client.low);
  w.Fixed(q.seq);
  w.Fixed(push_only ? uint64_t{0} : q.after_seq);
  size_t tables = 0;
  for (const TableRequest& t : q.tables) tables += !push_only || !t.push_keys.empty();
  w.Varint(tables);
  for (const TableRequest& t : q.tables) {
    if (push_only && t.push_keys.empty()) continue;
    const size_t begin = out->size();
    w.Fixed(t.table);
    w.Fixed(t.epoch);
    w.Varint(t.update_floats);
    w.Varint(t.push_keys.size());
    w.KeyRun(t.push_keys);
    for (uint32_t ticks : t.push_ticks) w.Varint(ticks);
    w.Raw(t.push_updates.data(), t.push_updates.size() * sizeof(float));
    w.Varint(t.bound == kUnbounded || push_only ? 0 : static_cast<uint64_t>(t.bound) + 1);
    w.Varint(push_only ? 0 : t.check_keys.size());
    if (!push_only) w.KeyRun(t.check_keys);
    if (!push_only) WriteClocks(t.check_clocks, &w);
    w.Varint(push_only ? 0 : t.fetch_keys.size());
    if (!push_only) w.KeyRun(t.fetch_keys);
    if (parts != nullptr) parts->push_back(out->size() - begin);
  }
}

Status Broken(const char* what) { return InvalidArgument(std::string("damaged frame: ") + what); }

}  // namespace

void Encode(const Request& q, Bytes* out, Vector<size_t>* parts) {
  Encode(q, /*push_only=*/false, out, parts);
}

void EncodePush(const Request& q, Bytes* out) { Encode(q, /*push_only=*/true, out, nullptr); }

uint64_t SeqOf(Span<const uint8_t> frame) {
  uint64_t seq = 0;
  if (frame.size() >= kSeqAt + sizeof(seq)) std::memcpy(&seq, frame.data() + kSeqAt, sizeof(seq));
  return seq;
}

uint32_t RequestIdOf(Span<const uint8_t> frame) {
  uint32_t id = 0;
  if (frame.size() >= kRequestIdAt + sizeof(id)) std::memcpy(&id, frame.data() + kRequestIdAt, sizeof(id));
  return id;
}

Status Decode(Span<const uint8_t> bytes, Request* q) {
  Reader r(bytes);
  if (r.Fixed<uint32_t>() != kRequestMagic) return Broken("it does not begin as a request does");
  const uint8_t version = r.Fixed<uint8_t>();
  if (version != kFrameVersion) {
    return InvalidArgument("frame version " + std::to_string(version) + "; this side speaks version " +
                           std::to_string(kFrameVersion) + ": upgrade the older side");
  }
  r.Raw(3);
  q->request_id = r.Fixed<uint32_t>();
  q->time = r.Fixed<uint32_t>();
  q->partition.index = r.Fixed<uint32_t>();
  q->partition.count = r.Fixed<uint32_t>();
  q->partition.hash_seed = r.Fixed<uint64_t>();
  q->client.high = r.Fixed<uint64_t>();
  q->client.low = r.Fixed<uint64_t>();
  q->seq = r.Fixed<uint64_t>();
  q->after_seq = r.Fixed<uint64_t>();
  const size_t tables = r.Count();
  // A table takes 21 bytes at the least.
  if (!r.ok() || tables > r.left() / 21) return Broken("its head is truncated");
  q->tables.clear();
  q->tables.resize(tables);
  bool ok = true;
  for (TableRequest& t : q->tables) {
    t.table = r.Fixed<uint64_t>();
    t.epoch = r.Fixed<uint64_t>();
    t.update_floats = Narrow(r.Varint(), &ok);
    const size_t pushes = r.Count();
    r.KeyRun(pushes, &t.push_keys);
    t.push_ticks.reserve(t.push_keys.size());
    for (size_t i = 0; i < pushes && r.ok(); ++i) t.push_ticks.push_back(Narrow(r.Varint(), &ok));
    if (!r.ok() || !ReadFloats(pushes, t.update_floats, &r, &t.push_updates)) return Broken("push part");
    const uint64_t bound = r.Varint();
    if (bound > static_cast<uint64_t>(kUnbounded)) ok = false;
    t.bound = bound == 0 ? kUnbounded : static_cast<int64_t>(bound - 1);
    const size_t checks = r.Count();
    r.KeyRun(checks, &t.check_keys);
    ReadClocks(checks, &r, &t.check_clocks);
    r.KeyRun(r.Count(), &t.fetch_keys);
    if (!r.ok() || t.check_clocks.size() != checks) return Broken("check or fetch part");
  }
  if (!ok) return Broken("a number is out of range");
  if (r.left() != 0) return Broken("bytes after its end");
  return Status();
}

void Encode(const Reply& p, Bytes* out) {
  out->clear();
  out->reserve(SizeBound(p));
  Writer w(out);
  w.Fixed(kReplyMagic);
  w.Fixed(kFrameVersion);
  w.Fixed(static_cast<uint8_t>(p.status));
  w.Fixed(uint16_t{0});
  w.Fixed(p.request_id);
  w.Fixed(p.inc);
  w.Fixed(p.last_seq);
  w.Varint(p.message.size());
  w.Raw(p.message.data(), p.message.size());
  w.Varint(p.tables.size());
  for (const TableReply& t : p.tables) {
    w.Fixed(t.table);
    w.Fixed(t.epoch);
    w.Varint(t.row_floats);
    w.Varint(t.refreshed.size());
    for (uint32_t position : t.refreshed) w.Varint(position);
    WriteClocks(t.refreshed_clocks, &w);
    w.Varint(t.fetched_clocks.size());
    WriteClocks(t.fetched_clocks, &w);
    w.Raw(t.rows.data(), t.rows.size() * sizeof(float));
    const size_t row_bytes = t.row_floats * sizeof(float);
    uint8_t* at = w.Append(t.stored_rows.size() * row_bytes);
    for (const float* row : t.stored_rows) {
      if (row_bytes > 0) std::memcpy(at, row, row_bytes);  // no floats: null, perhaps
      at += row_bytes;
    }
    w.Varint(t.lag_histogram.size());
    for (uint64_t count : t.lag_histogram) w.Varint(count);
  }
}

Status Decode(Span<const uint8_t> bytes, Reply* p, Vector<size_t>* parts) {
  Reader r(bytes);
  if (r.Fixed<uint32_t>() != kReplyMagic) return Broken("it does not begin as a reply does");
  const uint8_t version = r.Fixed<uint8_t>();
  if (version != kFrameVersion) return Broken("a reply of another version");
  const uint8_t status = r.Fixed<uint8_t>();
  if (status > static_cast<uint8_t>(FrameStatus::kOutOfMemory)) return Broken("unknown status");
  p->status = static_cast<FrameStatus>(status);
  r.Raw(2);
  p->request_id = r.Fixed<uint32_t>();
  p->inc = r.Fixed<uint64_t>();
  p->last_seq = r.Fixed<uint64_t>();
  const size_t message = r.Count();
  const uint8_t* text = r.Raw(message);
  if (text == nullptr) return Broken("its head is truncated");
  p->message.assign(reinterpret_cast<const char*>(text), message);
  const size_t tables = r.Count();
  if (!r.ok() || tables > r.left() / 20) return Broken("its head is truncated");
  p->tables.clear();
  p->tables.resize(tables);
  bool ok = true;
  for (TableReply& t : p->tables) {
    const size_t begin = r.left();
    t.table = r.Fixed<uint64_t>();
    t.epoch = r.Fixed<uint64_t>();
    t.row_floats = Narrow(r.Varint(), &ok);
    const size_t refreshed = r.Count();
    t.refreshed.reserve(refreshed);
    for (size_t i = 0; i < refreshed && r.ok(); ++i) t.refreshed.push_back(Narrow(r.Varint(), &ok));
    ReadClocks(refreshed, &r, &t.refreshed_clocks);
    const size_t fetched = r.Count();
    ReadClocks(fetched, &r, &t.fetched_clocks);
    if (!r.ok() || t.refreshed_clocks.size() != refreshed || t.fetched_clocks.size() != fetched) {
      return Broken("clocks");
    }
    size_t rows = 0;
    for (Clock clock : t.refreshed_clocks) rows += clock != 0;
    for (Clock clock : t.fetched_clocks) rows += clock != 0;
    if (!ReadFloats(rows, t.row_floats, &r, &t.rows)) return Broken("rows");
    const size_t buckets = r.Count();
    if (buckets > 65) return Broken("staleness histogram");
    for (size_t i = 0; i < buckets && r.ok(); ++i) t.lag_histogram.push_back(r.Varint());
    if (parts != nullptr) parts->push_back(begin - r.left());
  }
  if (!r.ok() || !ok) return Broken("a number is truncated or out of range");
  if (r.left() != 0) return Broken("bytes after its end");
  return Status();
}

}  // namespace het
