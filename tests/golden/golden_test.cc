// Golden bytes (testing/golden.h) of frames, of the layout and of chunks, and of graphs, which Python writes
// and compares (tests/inputs/test_graph.py). Files of rows and for serving: row_file_test.cc,
// file_test.cc.
#include "tests/testing/golden.h"

#include <algorithm>
#include <vector>

#include "het_tf/core/store/changes.h"
#include "het_tf/core/store/chunk.h"
#include "het_tf/core/wire/layout.h"
#include "het_tf/core/wire/parts.h"
#include "het_tf/inputs/graph/graph_file.h"
#include "tests/testing/partition_bytes.h"
#include "tests/testing/table_specs.h"

namespace het::testing {
namespace {

constexpr uint32_t kTime = 1700000000;
constexpr uint64_t kTable = 0x7461626c65;

std::string Text(const Bytes& bytes) { return std::string(bytes.begin(), bytes.end()); }
template <typename Text>
Span<const uint8_t> View(const Text& bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

std::string Encoded(const std::vector<Request>& parts) {
  Bytes bytes;
  EncodeParts(parts, &bytes);
  return Text(bytes);
}

TEST(Golden, Request) {
  TableRequest all;
  TableRequest fetch;
  all.table = fetch.table = kTable;
  all.epoch = 6;
  all.push_format = RowFormat::kInt4;
  all.row_format = RowFormat::kInt8;
  all.block = 2;
  all.update_floats = 3;
  all.push_keys = {-1, 300};
  all.push_ticks = {1, 200};
  all.push_updates = {1, -2, 0.5f, 3, 4, 0.25f};
  all.left = 1;
  all.bound = {30, 10};
  all.check_keys = {5, 1000000};
  all.check_clocks = {0, Clock{1} << 20};
  all.fetch_keys = fetch.fetch_keys = {8, 900};
  all.subscribe = true;
  all.dropped = {10};
  fetch.ring = 16;
  fetch.anew = true;
  fetch.names.fetch = {0, 0};
  TableRequest named = fetch;  // 8 and 900 by their names, and 950 in full
  named.anew = false;
  named.names.state = 5;
  named.fetch_keys = {950};
  named.names.fetch = {1, 2, 0};
  const std::vector<Request> sample = {
      // request_id, time, partition, client, seq, after_seq, inc, notified_ack, tables
      {1000, kTime, {3, 24, 99}, {0x1122334455667788, 5}, 12, 300, 77, 4, {all}, 0, false},
      {1002, kTime, {9, 24, 99}, {0x1122334455667788, 6}, 0, 0, 0, 0, {fetch}, 0, false},
      {1003, kTime, {9, 24, 99}, {0x1122334455667788, 6}, 0, 0, 0, 0, {named}, 0, false}};
  const std::string golden = Golden("request", Encoded(sample), 4, "frame::kVersion (wire/frame_bytes.h)");
  RequestParts parts;
  ASSERT_TRUE(parts.Open(View(golden)).ok());
  std::vector<Request> read(parts.size());
  ASSERT_EQ(read.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(parts.Next(&read[i]).ok());
    read[i].inc = sample[i].inc;  // of which a frame has a digest
    read[i].tables.at(0).epoch = sample[i].tables[0].epoch;
    read[i].tables[0].names.state = sample[i].tables[0].names.state;
  }
  EXPECT_EQ(Encoded(read), golden);
}

std::string Encoded(const std::vector<Reply>& parts) {
  Bytes bytes;
  ReplyWriter writer(parts.size(), &bytes);
  for (const Reply& part : parts) writer.Add(part);
  return Text(bytes);
}

TEST(Golden, Reply) {
  TableReply all;
  TableReply epoch;
  all.table = epoch.table = kTable;
  epoch.epoch = 6;
  all.row_floats = 3;
  all.row_format = RowFormat::kFloat16;
  all.block = 2;
  all.refreshed = {1, 3};
  all.refreshed_lags = {200, 1};
  all.fetched_clocks = {0, 70000};
  all.notified_keys = {-4, 12};
  TableReply named;
  named.table = kTable;
  named.notified_keys = {12};
  named.notified_names = {3, 0};
  all.rows = {1, 2, 3, -0.5f, 0.25f, 4, 8, 16, 0.125f};
  all.lag_histogram = {3, 0, 500};
  const std::vector<Reply> sample = {
      // status, message, request_id, partition, same_inc, inc, last_seq, same_seq, notified, reset,
      // tables
      {FrameStatus::kOk, "", 1000, 3, false, 0x1122334455667788, 300, false, 5, true, {all}},
      {FrameStatus::kOk, "", 1001, 4, true, 0, 0, true, 6, false, {named}},
      {FrameStatus::kEpoch, "cleared", 1002, 9, true, 0, 0, true, 0, false, {epoch}}};
  const std::string golden = Golden("reply", Encoded(sample), 4, "frame::kVersion (wire/frame_bytes.h)");
  ReplyParts parts;
  ASSERT_TRUE(parts.Open(View(golden)).ok());
  std::vector<Reply> read;
  while (!parts.done()) ASSERT_TRUE(parts.Next(&read.emplace_back()).ok());
  EXPECT_EQ(Encoded(read), golden);
}

// Workers of two builds must look for a row in the same partition, or know that they do not.
TEST(Golden, Layout) {
  std::string places(1, static_cast<char>(Layout::kRule));
  for (const uint32_t partitions : {1, 16, 24, 100, 128}) {
    for (Key key = -4; key < 4; ++key) {
      places += static_cast<char>(Layout(partitions, 99).OfKey(kTable + partitions, key * 1000003));
    }
  }
  Golden("layout", places, 0,
         "Layout::kRule (wire/layout.h) and VERSION (ext/checkpoint/python/manifest.py)");
}

// In RDB files and append-only logs, between servers, and from and to workers that save and load.
TEST(Golden, Chunks) {
  TableSpec spec = NewSpec("t", 2, "adagrad");
  spec.limits = TableLimits();
  spec.limits->ttl = 3600;
  const Schema schema = TableSchema::Create(spec).value();
  const Key keys[] = {1000002, 40};
  const ClientId client{1, 2};
  const std::vector<float> rows = {1, -0.5f, 2, 4, 0, 0.25f, 8, 16};
  const uint32_t both[] = {0, 1};
  std::vector<Bytes> chunks(6);
  RowBatch batch(2, 2, 2);
  batch.Add({-1, 70000, kTime, 300, 1}, rows.data());
  batch.Add({1000002, 1, 0, 1, 1}, rows.data() + 4);
  EncodeRows(*schema, batch, {both, 2}, &chunks[0]);
  ASSERT_TRUE(EncodeEpoch(View(chunks[0]), 8, &chunks[1]));
  EncodeSet(*schema, {keys, 2}, rows.data(), &chunks[2]);
  ASSERT_TRUE(StampSet(View(chunks[2]), kTime + 1, &chunks[3]));
  EncodeRemove(*schema, {keys, 1}, &chunks[4]);
  EncodeForget({&client, 1}, &chunks[5]);
  Partition partition({3, 24, 99}, 1);
  ASSERT_TRUE(partition.CreateTable(schema, 6, kTime).ok());
  ASSERT_TRUE(LoadChunk(View(chunks[0]), &partition).ok());
  partition.clients().At(client) = {12, kTime};
  partition.SetLoadMark({"loader", 5, 6});
  ChunkWriter writer(partition);
  for (Bytes chunk; writer.Next(&chunk);) chunks.push_back(chunk);
  Bytes encoded;  // each chunk behind its size
  Writer w(&encoded);
  for (const Bytes& chunk : chunks) {
    w.Fixed(static_cast<uint16_t>(chunk.size()));
    w.Raw(chunk.data(), chunk.size());
  }
  const std::string golden = Golden("chunks", Text(encoded), 6, "chunk::kVersion (store/chunk_format.h)");
  std::vector<Span<const uint8_t>> read;
  for (Reader r(View(golden)); r.left() > 0;) {
    const size_t size = std::min<size_t>(r.Fixed<uint16_t>(), r.left());
    read.emplace_back(r.Raw(size), size);
  }
  ChunkReader reader(2);
  for (size_t i = 6; i < read.size(); ++i) ASSERT_TRUE(reader.Add(read[i]).ok());
  ASSERT_TRUE(reader.complete());
  const std::unique_ptr<Partition> other = reader.Take();
  EXPECT_EQ(BytesOf(*other), BytesOf(partition));
  for (size_t i = 1; i < 6; ++i) {
    ASSERT_TRUE(LoadChunk(read.at(i), other.get()).ok()) << i;
    ASSERT_TRUE(LoadChunk(View(chunks[i]), &partition).ok()) << i;
  }
  EXPECT_EQ(BytesOf(*other), BytesOf(partition));
}

TEST(Golden, Changes) {
  const Schema schema = NewSchema("t", 2);
  Partition partition({3, 24, 99}, 1);
  ASSERT_TRUE(partition.CreateTable(schema, 6, kTime).ok());
  const Key keys[] = {-1, 1000002, 7};
  const std::vector<float> rows = {1, -0.5f, 2, 4, 0, 0.25f};
  Bytes chunk;
  EncodeSet(*schema, {keys, 3}, rows.data(), &chunk);
  ASSERT_TRUE(LoadChunk(View(chunk), &partition).ok());
  EncodeRemove(*schema, {keys, 1}, &chunk);
  ASSERT_TRUE(LoadChunk(View(chunk), &partition).ok());
  std::string encoded;
  std::vector<ChangesKind> kinds;
  for (const size_t most : {10, 0}) {
    partition.changes().set_most_removals(most);
    ASSERT_TRUE(LoadChunk(View(chunk), &partition).ok());
    ChangesRequest request;
    request.since = {1, 0};
    ChangesPage page;
    ReadChanges(partition, request, &page);
    kinds.push_back(page.kind);
    for (const Bytes& one : page.chunks) encoded += Text(one);
    EncodeRemove(*schema, {keys + 2, 1}, &chunk);
  }
  EXPECT_EQ(kinds, std::vector<ChangesKind>({ChangesKind::kChanges, ChangesKind::kKeys}));
  Golden("changes", encoded, 4, "chunk::kVersion (store/chunk_format.h)");
}

TEST(Golden, GraphFile) {
  const auto file = graph::GraphFile::Open(GoldenPath("graph"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  const graph::GraphFile& read = *file.value();
  EXPECT_EQ(read.header().flags, graph::kWeighted | graph::kTyped | graph::kSymmetric);
  EXPECT_EQ(read.header().self_loops, 5u);
  EXPECT_EQ(read.header().duplicates, 6u);
  std::vector<uint64_t> edges(read.edges()), ends;
  for (uint64_t edge = 0; edge < read.edges(); ++edge) edges[edge] = read.Neighbour(edge);
  for (uint64_t node = 0; node < read.nodes(); ++node) ends.push_back(read.EdgesOf(node).end);
  EXPECT_EQ(edges, std::vector<uint64_t>({1, 2, 0, 0}));
  EXPECT_EQ(ends, std::vector<uint64_t>({2, 3, 4, 4}));
  EXPECT_EQ(read.EdgesOfType(0, 2).begin, 1u);
  for (const uint64_t second : {0, 1}) {
    EXPECT_EQ(read.EdgeByWeight(read.EdgesOf(0), second == 1 ? 0.26 : 0.24), second);  // weights 1 and 3
    EXPECT_EQ(read.NodeByPopularity(second == 1 ? 0.46 : 0.45), second);               // 2^0.75 of 2^0.75 + 2
  }
}

}  // namespace
}  // namespace het::testing
