// What a server loads: the chunks of a dump (RDB, MIGRATE), of HET.LOAD, and a
// whole partition; and what a follower gets, the chunks of HET.CHANGES.
//
// The first byte of an input chooses the reader, the rest is for it.
#include <memory>

#include "het_tf/core/store/changes.h"
#include "het_tf/core/store/chunk.h"
#include "tests/fuzz/target.h"
#include "tests/testing/handle_frame.h"
#include "tests/testing/partition_bytes.h"
#include "tests/testing/requests.h"

namespace het::fuzz {
namespace {

using testing::BytesOf;
using testing::PartitionOf;

enum Reader : uint8_t {
  kLoadChunk = 0,
  kDecodeRows = 1,
  kDeserialize = 2,
  kChunkReader = 3,
  kDecodeChanges = 4
};

std::unique_ptr<Partition> MakePartition() {
  auto partition = std::make_unique<Partition>(PartitionId{0, 1, 5}, 99);
  Request q = testing::RequestOf(partition->id(), {1, 2}, 1);
  for (const Schema &schema : Schemas()) {
    if (!partition->CreateTable(schema, 7).ok()) Fail("no table");
    testing::AddPush(&testing::AddTable(&q, *schema, 7), std::vector<Key>{-2, -1, 0, 1, 2, 3, 4}, 1, 0.5f);
  }
  Bytes frame;
  Encode(q, &frame);
  Bytes reply;
  if (!testing::HandleFrame(partition.get(), frame, &reply).applied) Fail("a good push was refused");
  return partition;
}

Bytes For(Reader reader, const Bytes &bytes) { return Joined({{reader}, bytes}); }

// Chunks one after the other, each behind its size in two bytes.
Bytes Sequence(const std::vector<Bytes> &chunks) {
  std::vector<Bytes> all;
  for (const Bytes &chunk : chunks) all.insert(all.end(), {SizeOf(chunk), chunk});
  return For(kChunkReader, Joined(all));
}

void ReadSequence(Span<const uint8_t> bytes) {
  ChunkReader reader(3);
  size_t at = 0;
  while (bytes.size() - at >= 2) {
    const size_t size = std::min<size_t>(bytes[at] + 256u * bytes[at + 1], bytes.size() - at - 2);
    if (!reader.Add({bytes.data() + at + 2, size}).ok()) return;
    at += 2 + size;
  }
  if (!reader.complete()) return;
  const Bytes again = BytesOf(*reader.Take());
  if (!PartitionOf(again, 2).ok()) Fail("a restored partition cannot be saved");
}

std::vector<Bytes> Seeds() {
  const auto partition = MakePartition();
  partition->SetLoadMark({"a loader", 5, 6});
  std::vector<Bytes> chunks;
  ChunkWriter writer(*partition, 150);
  for (Bytes chunk; writer.Next(&chunk);) chunks.push_back(chunk);
  const std::vector<Key> keys = {1, 2, 100, -5};
  const std::vector<float> rows(keys.size() * Schemas()[0]->row_floats(), 1.5f);
  const std::vector<ClientId> clients = {{1, 2}, {3, 4}};
  std::vector<Bytes> changes(4);
  EncodeSet(*Schemas()[0], keys, rows.data(), &changes[0]);
  EncodeRemove(*Schemas()[0], keys, &changes[1]);
  EncodeForget(clients, &changes[2]);
  StampSet(changes[0], 77, &changes[3]);
  std::vector<Bytes> seeds = {Sequence(chunks), For(kDeserialize, BytesOf(*partition))};
  for (const auto *of : {&chunks, &changes}) {
    for (const Bytes &chunk : *of) seeds.push_back(For(kLoadChunk, chunk));
  }
  for (const Bytes &chunk : chunks) seeds.push_back(For(kDecodeRows, chunk));
  partition->changes().set_most_removals(0);
  for (const uint64_t since : {partition->incarnation(), uint64_t{0}}) {
    ChangesRequest request;
    request.since.incarnation = since;
    ChangesPage page;
    ReadChanges(*partition, request, &page);
    for (const Bytes &chunk : page.chunks) seeds.push_back(For(kDecodeChanges, chunk));
  }
  return seeds;
}

void Run(const uint8_t *data, size_t size) {
  if (size == 0) return;
  const Span<const uint8_t> bytes(data + 1, size - 1);
  // A row of any width takes its table's first rows with it.
  const size_t allowance = Allowance(size) + 64 * TableSchema::kMaxDim * sizeof(float);
  switch (data[0]) {
    case kLoadChunk: {
      static std::unique_ptr<Partition> partition = MakePartition();
      static Bytes before = BytesOf(*partition);
      bool loaded = false;
      Within(allowance, "loading a chunk", [&] { loaded = LoadChunk(bytes, partition.get()).ok(); });
      if (!loaded && BytesOf(*partition) != before) Fail("a refused chunk changed the partition");
      Bytes changed;
      static_cast<void>(StampSet(bytes, 77, &changed));
      static_cast<void>(EncodeEpoch(bytes, 7, &changed));
      if (loaded) {
        const Bytes after = BytesOf(*partition);
        if (!PartitionOf(after, 2).ok()) Fail("what was loaded cannot be saved");
        partition = MakePartition();
        before = BytesOf(*partition);
      }
      return;
    }
    case kDecodeRows: {
      RowBatch rows(*Schemas()[0], size_t{1} << 16);
      static_cast<void>(DecodeRows(bytes, *Schemas()[0], &rows));
      return;
    }
    case kDecodeChanges: {
      ChangedRows rows;
      Within(allowance, "decoding changes", [&] { static_cast<void>(DecodeChanges(bytes, &rows)); });
      return;
    }
    case kDeserialize: {
      std::unique_ptr<Partition> restored;
      Within(allowance, "restoring", [&] {
        auto partition = PartitionOf(bytes, 2);
        if (partition.ok()) restored = std::move(partition.value());
      });
      if (restored == nullptr) return;
      const Bytes again = BytesOf(*restored);
      if (!PartitionOf(again, 2).ok()) Fail("a restored partition cannot be saved");
      return;
    }
    case kChunkReader:
      ReadSequence(bytes);
      return;
    default:
      return;
  }
}

const bool registered = Register({"chunk", Run, Seeds});

}  // namespace
}  // namespace het::fuzz
