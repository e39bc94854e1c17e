// What a server does with a request frame (HET.STEP, HET.READ).
#include <memory>

#include "het_tf/core/store/chunk.h"
#include "het_tf/core/store/partition.h"
#include "het_tf/core/wire/parts.h"
#include "tests/fuzz/target.h"
#include "tests/testing/handle_frame.h"
#include "tests/testing/partition_bytes.h"
#include "tests/testing/requests.h"

namespace het::fuzz {
namespace {

using testing::BytesOf;

constexpr uint64_t kEpoch = 7;
constexpr ClientId kClient{1, 2};
constexpr uint64_t kSeq = 3;  // newest that was applied
constexpr uint32_t kNow = 1000;

Request MakeRequest(uint64_t seq, uint64_t after_seq, size_t tables, size_t keys,
                    RowFormat format = RowFormat::kFloat32, uint32_t every = 0) {
  Request q = testing::RequestOf({0, 1, 5}, kClient, seq);
  q.request_id = 77;
  q.after_seq = after_seq;
  for (size_t i = 0; i < tables; ++i) {
    const TableSchema &schema = *Schemas()[i];
    TableRequest &t = testing::AddTable(&q, schema, kEpoch);
    t.push_format = t.row_format = format;
    t.block = format == RowFormat::kFloat32 ? 0 : schema.dim();
    t.bound = {i == 0 ? kUnbounded : static_cast<int64_t>(i), every};
    for (size_t k = 0; k < keys; ++k) {
      if (seq != 0) {
        testing::AddPush(&t, std::vector<Key>{static_cast<Key>(3 * k) - 5}, 1 + static_cast<uint32_t>(k % 3),
                         0.5f);
      }
      t.check_keys.push_back(static_cast<Key>(k));
      t.check_clocks.push_back(static_cast<Clock>(k % 4));
      t.fetch_keys.push_back(2 * k >= keys ? static_cast<Key>(k) : INT64_MIN + static_cast<Key>(k));
    }
  }
  return q;
}

// Two clients: one holds rows and asks to be told, the other pushes to them,
// without ticks too.
std::vector<Request> MakeParts(RowFormat format) {
  std::vector<Request> parts;
  parts.push_back(MakeRequest(0, 0, 2, 4, format));
  parts.push_back(MakeRequest(kSeq + 1, kSeq, 3, 3, format));
  parts.push_back(MakeRequest(0, 0, 2, 1, format));
  parts.push_back(MakeRequest(0, 0, 1, 2));
  NamedKeys ring(16, 16);
  for (size_t i : {0, 2}) {
    parts[i].client.low = 3;
    for (TableRequest &t : parts[i].tables) t.subscribe = true;
    TableRequest &named = parts[i].tables[1];
    named.fetch_keys.clear();
    named.ring = ring.size();
    named.anew = i == 0;
    named.names.state = ring.state();
    NameKeys(ring, named.check_keys, &named.names.check);
    AppendInFull(named, &ring);
  }
  parts[1].tables[0].push_ticks[2] = 0;
  parts[1].tables[1].left = 2;
  parts[1].notified_ack = 1;
  parts[2].notified_ack = 1;
  parts[2].tables[0].dropped = {-5, 0, 5};
  parts[3].partition.index = 2;
  for (size_t i = 0; i < parts.size(); ++i) parts[i].request_id += static_cast<uint32_t>(i);
  return parts;
}

Bytes Encoded(const std::vector<Request> &parts) {
  Bytes bytes;
  EncodeParts(parts, &bytes);
  return bytes;
}
Bytes Encoded(const Request &request) {
  Bytes bytes;
  Encode(request, &bytes);
  return bytes;
}

std::unique_ptr<Partition> MakePartition() {
  auto partition = std::make_unique<Partition>(PartitionId{0, 1, 5}, 99);
  for (const Schema &schema : Schemas()) {
    TableSpec spec = schema->spec();
    spec.limits = TableLimits();
    spec.limits->max_rows = 5;  // so that pushes sweep
    if (!partition->CreateTable(TableSchema::Create(spec).value(), kEpoch).ok()) Fail("no table");
  }
  for (uint64_t seq = 1; seq <= kSeq; ++seq) {
    const Bytes frame = Encoded(MakeRequest(seq, seq - 1, 3, 6));
    Bytes reply;
    if (!testing::HandleFrame(partition.get(), frame, &reply).applied) Fail("a good push was refused");
  }
  return partition;
}

Handling HandlingNow() {
  Handling how;
  how.now = kNow;
  how.replicate = true;
  return how;
}

// All parts are answered, and what is applied a copy can apply.
void HandleParts(Span<const uint8_t> frame, Partition *partition) {
  std::vector<PartRef> asked;
  RequestParts heads;
  if (heads.Open(frame).ok()) {
    for (size_t i = 0; i < heads.size(); ++i) asked.push_back(heads.ref(i));
  }
  const auto replica = MakePartition();
  std::vector<Request> read;
  Bytes bytes;
  AnswerFrame(frame, &bytes, [&](Request *q, ReplyWriter *replies) {
    read.push_back(*q);
    if (!(q->partition == partition->id())) {
      return replies->Add(PartRefusal({q->partition.index, q->request_id}, FrameStatus::kElsewhere, ""));
    }
    const Handled handled = partition->HandlePart(q, replies, HandlingNow());
    if (handled.replication.frame) Fail("a part is no frame");
    if (!testing::CopyHandles({}, handled, replica.get())) Fail("a replica refuses a push part or a removal");
  });
  if (BytesOf(*replica) != BytesOf(*partition)) Fail("a replica differs");
  ReplyParts replies;
  if (!replies.Open(bytes).ok()) Fail("an answer that cannot be read");
  for (const PartRef &part : asked) {
    Reply reply;
    if (replies.done() || !replies.Next(&reply).ok()) Fail("a part that is not answered");
    if (reply.partition != part.partition || reply.request_id != part.request_id) Fail("another's answer");
  }
  if (!asked.empty() && !replies.done()) Fail("an answer too many");
  if (read.empty()) return;
  // Those of damaged frames, whose heads need not have parts.
  const Bytes again = Encoded(read);
  RequestParts twice;
  if (!twice.Open(again).ok() || twice.size() != read.size()) Fail("parts that were read cannot be written");
}

std::vector<Bytes> Seeds() {
  std::vector<Bytes> seeds;
  for (size_t tables : {0, 1, 3}) {
    for (size_t keys : {0, 1, 7}) {
      seeds.push_back(Encoded(MakeRequest(kSeq + 1, kSeq, tables, keys)));
      seeds.push_back(Encoded(MakeRequest(0, kSeq, tables, keys)));
    }
  }
  for (RowFormat format : {RowFormat::kFloat16, RowFormat::kInt8}) {
    seeds.push_back(Encoded(MakeRequest(kSeq + 1, kSeq, 3, 7, format)));
    seeds.push_back(Encoded(MakeRequest(kSeq + 1, kSeq, 3, 7, format, /*every=*/2)));
  }
  for (RowFormat format : {RowFormat::kFloat32, RowFormat::kFloat16, RowFormat::kInt8}) {
    seeds.push_back(Encoded(MakeParts(format)));
  }
  seeds.push_back(Encoded(MakeRequest(kSeq + 2, kSeq + 1, 1, 2)));  // a gap
  seeds.push_back(Encoded(MakeRequest(kSeq, kSeq, 2, 2)));          // a repetition
  return seeds;
}

void Run(const uint8_t *data, size_t size) {
  static std::unique_ptr<Partition> partition = MakePartition();
  static Bytes before = BytesOf(*partition);
  const Span<const uint8_t> frame(data, size);

  Request decoded;
  bool good = false;
  RequestParts heads;
  Within(Allowance(size), "reading a request", [&] {
    good = Decode(frame, &decoded).ok();
    static_cast<void>(heads.Open(frame));
  });
  if (heads.size() > 1) {
    HandleParts(frame, partition.get());
    partition = MakePartition();
    return;
  }
  if (good) {
    const Bytes again = Encoded(decoded);
    Request twice;
    if (!Decode(again, &twice).ok()) Fail("a request that was read cannot be written");
  }

  Bytes bytes;
  const Handled handled = testing::HandleFrame(partition.get(), frame, &bytes, HandlingNow());
  Reply reply;
  if (!Decode(bytes, &reply).ok()) Fail("an answer that cannot be read");
  if (!good && reply.status != FrameStatus::kBadFrame) Fail("a frame that cannot be read was taken");
  if (!handled.applied) {
    if (BytesOf(*partition) != before) Fail("a frame that was not applied changed the partition");
    if (!handled.replication.push.empty() || !handled.replication.removals.empty())
      Fail("a frame that was not applied is told to replicas");
    if (partition->subscribers().clients() > 0 || partition->names().bytes() > 0) partition = MakePartition();
    return;
  }
  // Another copy that gets the push part and the removals alone becomes equal.
  auto replica = MakePartition();
  if (!testing::CopyHandles(frame, handled, replica.get()))
    Fail("a replica refuses a push part or a removal");
  if (BytesOf(*replica) != BytesOf(*partition)) Fail("a replica differs");
  partition = MakePartition();
  before = BytesOf(*partition);
}

const bool registered = Register({"request", Run, Seeds});

}  // namespace
}  // namespace het::fuzz
