// Pushes in frames of version 1, which append-only files and primaries of that version hand on:
//
//   u32 magic | u8 version | u8 0 | u16 0 | u32 request_id | u32 time | u32 partition | u32 partitions
//   u64 hash_seed | u64 client[2] | u64 seq | u64 after_seq | varint tables, then each:
//     u64 table | u64 epoch | varint floats an update | varint pushes | keys | ticks | updates
//     varint bound + 1 | varint checks | keys | clocks | varint fetches | keys
#include "het_tf/core/row/row_format.h"
#include "het_tf/core/wire/frame.h"
#include "het_tf/core/wire/frame_bytes.h"

namespace het {

Status DecodeOldPush(Span<const uint8_t> bytes, Request* q) {
  using namespace frame;  // NOLINT: its other half
  Reader r(bytes);
  *q = Request();
  if (r.Fixed<uint32_t>() != kRequestMagic || r.Fixed<uint8_t>() != 1) return Broken("no push of version 1");
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
  if (!r.ok() || q->seq == 0 || tables > r.left() / 21)
    return Broken("its head is truncated, or it is no push");
  q->tables.resize(tables);
  EpochDigest digest(0);
  bool ok = true;
  for (TableRequest& t : q->tables) {
    t.table = r.Fixed<uint64_t>();
    digest.Add(t.table, r.Fixed<uint64_t>());
    t.update_floats = Narrow(r.Varint(), &ok);
    const size_t pushes = r.Count();
    r.KeyRun(pushes, &t.push_keys);
    t.push_ticks.reserve(t.push_keys.size());
    for (size_t i = 0; i < pushes && r.ok(); ++i) t.push_ticks.push_back(Narrow(r.Varint(), &ok));
    if (!r.ok() || !UnpackRows(RowFormat::kFloat32, 1, t.update_floats, pushes, &r, &t.push_updates))
      return Broken("a push");
    r.Varint();  // the bound
    if (r.Count() != 0 || r.Count() != 0) return Broken("a push of version 1 with checks or fetches");
  }
  q->digest = digest.value();
  return r.ok() && ok && r.left() == 0 ? Status() : Broken("a push of version 1");
}

}  // namespace het
