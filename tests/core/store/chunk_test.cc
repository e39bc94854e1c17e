// Chunks: reads equal what was written, for any sizes, and a chunk that cannot be loaded whole changes
// nothing.
#include "het_tf/core/store/chunk.h"

#include <gtest/gtest.h>

#include <memory>

#include "het_tf/core/store/chunk_format.h"
#include "tests/testing/fits_in.h"
#include "tests/testing/handle_frame.h"
#include "tests/testing/partition_bytes.h"
#include "tests/testing/random.h"
#include "tests/testing/table_specs.h"

namespace het::testing {
namespace {

constexpr ClientId kClient{1, 2};

class ChunkTest : public ::testing::Test {
 protected:
  ChunkTest() : partition_(PartitionId{2, 5, 7}, 1000) {
    for (const char* name : {"a", "b", "empty"}) {
      EXPECT_TRUE(partition_.CreateTable(NewSchema(name, *name == 'b' ? 33 : 2, "adagrad"), 50 + *name).ok());
    }
    Fill("a", 100);
    Fill("b", 57);
    for (uint64_t i = 1; i <= 40; ++i) partition_.clients().At({i, 3}) = ClientState{i * i, 0};
  }
  Shard* Table(const char* name) { return partition_.Find(HashName(name)); }
  void Fill(const char* name, Key keys) {
    for (Key key = 0; key < keys; ++key) {
      bool created = false;
      RowStore& rows = Table(name)->rows();
      const uint32_t row = Table(name)->FindOrCreate(key * 1000003, rows.Hash(key * 1000003), &created);
      rows.meta(row).clock = key + 1;
      rows.meta(row).last_used = 5;
      rows.meta(row).count = 3;
      for (size_t i = 0; i < rows.row_floats(); ++i) rows.data(row)[i] = static_cast<float>(random_.Unit());
    }
  }
  std::vector<Bytes> Chunks(size_t max_bytes) {
    std::vector<Bytes> chunks;
    ChunkWriter writer(partition_, max_bytes);
    for (Bytes chunk; writer.Next(&chunk);) chunks.push_back(chunk);
    return chunks;
  }
  Partition partition_;
  Random random_{3};
};

TEST_F(ChunkTest, AnySizeOfChunkGivesTheSamePartition) {
  const Bytes state = BytesOf(partition_);
  size_t before = SIZE_MAX;
  for (size_t max_bytes : {size_t{0}, size_t{100}, size_t{1000}, kMaxChunkBytes}) {
    const std::vector<Bytes> chunks = Chunks(max_bytes);
    EXPECT_LT(chunks.size(), before);
    before = chunks.size();
    ChunkReader reader(9);
    for (const Bytes& chunk : chunks) {
      if (max_bytes >= 1000) {
        EXPECT_LE(chunk.size(), max_bytes);
      }
      EXPECT_FALSE(reader.complete());
      ASSERT_TRUE(reader.Add(chunk).ok());
    }
    ASSERT_TRUE(reader.complete());
    const std::unique_ptr<Partition> again = reader.Take();
    EXPECT_EQ(again->incarnation(), 9u);
    EXPECT_EQ(BytesOf(*again), state);
  }
}

TEST_F(ChunkTest, ChunksInTheWrongPlaceAreRefused) {
  const std::vector<Bytes> chunks = Chunks(kMaxChunkBytes);
  ASSERT_EQ(chunks.size(), 8u) << "head, 3 tables, rows of 2, clients, end";
  auto add = [&](const std::vector<size_t>& order) {
    ChunkReader reader(1);
    Status status;
    for (size_t i : order) status = reader.Add(chunks[i]);
    return status;
  };
  EXPECT_TRUE(add({0, 1, 2, 3, 4, 5, 6, 7}).ok());
  EXPECT_FALSE(add({1}).ok()) << "no head";
  EXPECT_FALSE(add({0, 0}).ok()) << "two heads";
  EXPECT_FALSE(add({0, 4}).ok()) << "rows of no table";
  EXPECT_FALSE(add({0, 1, 2, 3, 4, 4}).ok()) << "the same rows twice";
  EXPECT_FALSE(add({0, 7, 1}).ok()) << "after the end";
  for (const Bytes& chunk : chunks) {
    // Every cut of the header, of the first rows and of the end; some of those between.
    const auto next = [&](size_t size) { return size + (size < 256 || size + 64 > chunk.size() ? 1 : 13); };
    for (size_t size = 0; size < chunk.size(); size = next(size)) {
      ChunkReader reader(1);
      for (size_t i = 0; &chunks[i] != &chunk; ++i) ASSERT_TRUE(reader.Add(chunks[i]).ok());
      const bool taken = reader.Add({chunk.data(), size}).ok();
      // The list of clients ends with the chunk, so a cut between two clients is not noticed here.
      ASSERT_TRUE(!taken || (&chunk == &chunks[6] && size % 28 == 8)) << size;
    }
  }
}

TEST_F(ChunkTest, ChunksOfAnotherVersionAreRefused) {
  const Bytes before = BytesOf(partition_);
  Bytes chunk = Chunks(kMaxChunkBytes)[0];
  chunk[4] = 1;
  const std::string says = "chunk version 1; this side reads version " + std::to_string(chunk::kVersion) +
                           ": upgrade the older side";
  EXPECT_EQ(ChunkReader(1).Add(chunk).message(), says);
  EXPECT_EQ(LoadChunk(chunk, &partition_).message(), says);
  EXPECT_EQ(BytesOf(partition_), before);
}

// A server must be able to restart from what it has written.
TEST_F(ChunkTest, ClocksOutOfRangeAreClamped) {
  RowStore& rows = Table("a")->rows();
  const auto clock = [](Partition& of, Key key) {
    const RowStore& store = of.Find(HashName("a"))->rows();
    return store.meta(store.Find(key * 1000003)).clock;
  };
  rows.meta(rows.Find(0)).clock = -5;
  rows.meta(rows.Find(1000003)).clock = INT64_MAX;
  rows.meta(rows.Find(2 * 1000003)).clock = 2 * Shard::kMaxClock;  // leaves room for later ticks
  const std::vector<Bytes> chunks = Chunks(kMaxChunkBytes);
  ChunkReader reader(1);
  for (const Bytes& chunk : chunks) ASSERT_TRUE(reader.Add(chunk).ok());
  EXPECT_EQ(reader.clamped(), 2u);
  const std::unique_ptr<Partition> built = reader.Take();
  EXPECT_EQ(clock(*built, 0), Shard::kMaxClock);
  EXPECT_EQ(clock(*built, 1), Shard::kMaxClock);
  EXPECT_EQ(clock(*built, 2), 2 * Shard::kMaxClock);
  EXPECT_EQ(clock(*built, 3), 4);
  Partition other(partition_.id(), 1);
  size_t clamped = 0;
  for (const Bytes& chunk : chunks) {
    Loaded loaded;
    ASSERT_TRUE(LoadChunk(chunk, &other, &loaded).ok());
    clamped += loaded.clamped;
  }
  EXPECT_EQ(clamped, 3u);
  EXPECT_EQ(clock(other, 2), Shard::kMaxClock);
  Bytes floor;
  EncodeFloor(Table("a")->schema(), INT64_MIN, &floor);
  Loaded loaded;
  ASSERT_TRUE(LoadChunk(floor, &other, &loaded).ok());
  EXPECT_EQ(loaded.clamped, 1u);
  EXPECT_EQ(other.Find(HashName("a"))->clock_floor(), Shard::kMaxClock);
}

TEST_F(ChunkTest, AScanGoesOnWhileTablesGo) {
  ScanPosition at;
  Bytes chunk;
  ASSERT_TRUE(ScanRows(partition_, &at, 10, kMaxChunkBytes, &chunk));
  const uint64_t first = at.table;
  partition_.DropTable(first);
  size_t rows = 0;
  bool more = true;
  while (more) {
    more = ScanRows(partition_, &at, 10, kMaxChunkBytes, &chunk);
    if (!chunk.empty()) rows += (chunk.size() - 24) / ((chunk.size() - 24) / 10);
    EXPECT_TRUE(!more || at.table != first);
  }
  EXPECT_EQ(at.table, 0u);
  EXPECT_EQ(at.row, 0u);
  EXPECT_GE(rows, 57u);
}

TEST_F(ChunkTest, LoadedRowsReplaceAndForgetTheClients) {
  const std::vector<Bytes> chunks = Chunks(kMaxChunkBytes);
  Partition other(partition_.id(), 1);
  for (size_t i = 0; i < 4; ++i) ASSERT_TRUE(LoadChunk(chunks[i], &other).ok());
  other.clients().At(kClient) = ClientState{8, 0};
  for (int twice = 0; twice < 2; ++twice) {
    ASSERT_TRUE(LoadChunk(chunks[4], &other).ok());
    EXPECT_EQ(other.clients().LastSeq(kClient), 0u);
    for (size_t i = 5; i < 8; ++i) ASSERT_TRUE(LoadChunk(chunks[i], &other).ok());
    EXPECT_EQ(BytesOf(other), BytesOf(partition_));
  }
  Partition wrong(PartitionId{2, 6, 7}, 1);
  const Status status = LoadChunk(chunks[0], &wrong);
  EXPECT_NE(status.message().find("2 of 5"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("2 of 6"), std::string::npos) << status.message();
}

TEST_F(ChunkTest, AssignedRowsTickAndKeepClients) {
  const TableSchema& schema = Table("a")->schema();
  const std::vector<Key> keys = {0, -8, 0};
  std::vector<float> rows(keys.size() * schema.row_floats());
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
  Bytes chunk;
  EncodeSet(schema, keys, rows.data(), &chunk);
  Bytes stamped;
  ASSERT_TRUE(StampSet(chunk, 900, &stamped));
  EXPECT_FALSE(StampSet(Chunks(kMaxChunkBytes)[4], 900, &chunk)) << "rows with times of their own";
  Loaded set;
  ASSERT_TRUE(LoadChunk(stamped, &partition_, &set).ok());
  EXPECT_EQ(set.rows, 3u);
  RowStore& store = Table("a")->rows();
  EXPECT_EQ(store.size(), 101u);
  const uint32_t old = store.Find(0);
  EXPECT_EQ(store.meta(old).clock, 2 * 2 * kBirthGap) << "each makes a young row";
  EXPECT_EQ(store.meta(old).count, 3u + 2);
  EXPECT_EQ(store.meta(old).last_used, 900u);
  EXPECT_EQ(store.data(old)[0], rows[2 * schema.row_floats()]) << "the last of equal keys wins";
  EXPECT_EQ(store.meta(store.Find(-8)).clock, 2 * kBirthGap);
  EXPECT_EQ(store.meta(store.Find(-8)).last_used, 900u);
  EXPECT_EQ(partition_.clients().all().size(), 40u);
}

TEST_F(ChunkTest, RemovedRowsAreCounted) {
  const std::vector<Key> keys = {0, -8, 1000003, 0};
  Bytes chunk;
  EncodeRemove(Table("a")->schema(), keys, &chunk);
  Loaded removed;
  ASSERT_TRUE(LoadChunk(chunk, &partition_, &removed).ok());
  EXPECT_EQ(removed.rows, 2u);
  EXPECT_EQ(Table("a")->rows().size(), 98u);
  EXPECT_EQ(Table("b")->rows().size(), 57u);
  EXPECT_EQ(partition_.clients().all().size(), 40u);
  const Bytes state = BytesOf(partition_);
  for (size_t size = 0; size < chunk.size(); ++size) {
    if (size >= 16 && size % 8 == 0) continue;  // fewer keys are a chunk too
    EXPECT_FALSE(LoadChunk(Span<const uint8_t>(chunk.data(), size), &partition_).ok()) << size;
  }
  EXPECT_EQ(BytesOf(partition_), state);
  ChunkReader reader(9);
  ASSERT_TRUE(reader.Add(Chunks(kMaxChunkBytes)[0]).ok());
  EXPECT_FALSE(reader.Add(chunk).ok()) << "a partition does not consist of removals";
}

TEST_F(ChunkTest, RowsAreDecodedForWhoAsks) {
  constexpr size_t kBatchBytes = size_t{1} << 20;
  RowBatch rows(Table("b")->schema(), kBatchBytes);
  for (const Bytes& chunk : Chunks(1000)) {
    const Status status = DecodeRows(chunk, Table("b")->schema(), &rows);
    if (!status.ok()) continue;  // no rows in it
    for (size_t size = 1; size < chunk.size(); size += 7) {
      RowBatch cut(Table("a")->schema(), kBatchBytes);
      const bool whole = DecodeRows({chunk.data(), size}, Table("a")->schema(), &cut).ok();
      EXPECT_TRUE(!whole || cut.size() == 0) << "cut off at " << size;
    }
  }
  ASSERT_EQ(rows.size(), 57u);
  for (size_t i = 0; i < rows.size(); ++i) {
    const uint32_t row = Table("b")->rows().Find(rows.keys()[i]);
    ASSERT_NE(row, kNoRow);
    EXPECT_EQ(rows.clocks()[i], Table("b")->rows().meta(row).clock);
    EXPECT_EQ(rows.counts()[i], 3u);
    float content[66];
    rows.CopyRow(i, content);
    EXPECT_TRUE(std::equal(content, content + 66, Table("b")->rows().data(row)));
  }
}

TEST_F(ChunkTest, ARefusedMutationLeavesNoTrace) {
  const std::vector<Bytes> chunks = Chunks(600);
  const Bytes state = BytesOf(partition_);
  uint64_t refused = 0;
  for (uint64_t i = 0; i < Scaled(20000); ++i) {
    Bytes chunk = chunks[random_.Below(chunks.size())];
    chunk[random_.Below(chunk.size())] ^= static_cast<uint8_t>(1 << random_.Below(8));
    auto partition = std::move(PartitionOf(state, 1).value());
    if (LoadChunk(chunk, partition.get()).ok()) continue;
    ++refused;
    ASSERT_EQ(BytesOf(*partition), state) << i;
  }
  EXPECT_GT(refused, Scaled(1000));
}

TEST_F(ChunkTest, MemoryThatEndsLeavesNoTrace) {
  const std::vector<Bytes> chunks = Chunks(kMaxChunkBytes);
  Partition other(partition_.id(), 1);
  for (size_t i = 0; i < 4; ++i) ASSERT_TRUE(LoadChunk(chunks[i], &other).ok());
  other.clients().At(kClient) = ClientState{8, 0};
  const Bytes before = BytesOf(other);
  int refused = 0;
  for (size_t room = 0; room < 40000; room += 256) {
    if (FitsIn(room, [&] { ASSERT_TRUE(LoadChunk(chunks[4], &other).ok()); })) break;
    ++refused;
    ASSERT_EQ(BytesOf(other), before);
  }
  EXPECT_GT(refused, 1);
  EXPECT_NE(BytesOf(other), before);
}

}  // namespace
}  // namespace het::testing
