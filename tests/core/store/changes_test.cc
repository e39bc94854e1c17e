// Pages of changes for whatever is asked, and numbers of changes. Readers that follow a changing partition:
// RandomFollowers (ext/serving/follow); increments: CheckIncrements (testing/stored_rows.h).
#include "het_tf/core/store/changes.h"

#include <gtest/gtest.h>

#include <map>

#include "het_tf/core/store/chunk.h"
#include "tests/testing/keys.h"
#include "tests/testing/random.h"
#include "tests/testing/table_specs.h"

namespace het::testing {
namespace {

class ChangesTest : public ::testing::Test {
 protected:
  ChangesTest() { EXPECT_TRUE(partition_.CreateTable(schema_, 9).ok()); }
  void Set(const std::vector<Key>& keys, float value) {
    const std::vector<float> rows(keys.size() * schema_->row_floats(), value);
    Bytes chunk;
    EncodeSet(*schema_, keys, rows.data(), &chunk);
    EXPECT_TRUE(LoadChunk(chunk, &partition_).ok());
  }
  void Remove(const std::vector<Key>& keys) {
    Bytes chunk;
    EncodeRemove(*schema_, keys, &chunk);
    EXPECT_TRUE(LoadChunk(chunk, &partition_).ok());
  }

  const Schema schema_ = NewSchema("a", 3, "adagrad");
  Partition partition_{PartitionId{0, 1, 3}, 100};
};

// Its number is of a partition that has lost changes, or of an answer that was forged.
TEST_F(ChangesTest, AReaderOfTheFutureGetsAllRows) {
  Set({1, 2}, 1);
  ChangesRequest request;
  request.table = schema_->id();
  ChangesPage page;
  for (const uint64_t ahead : {0, 1}) {
    request.since = {partition_.incarnation(), partition_.changes().now() + ahead};
    ReadChanges(partition_, request, &page);
    EXPECT_EQ(page.kind, ahead == 0 ? ChangesKind::kChanges : ChangesKind::kWhole);
    EXPECT_EQ(page.chunks.size(), ahead);
  }
}

// Defect: the reader keeps a row from before the scan, since it came back to a place that was read already.
TEST_F(ChangesTest, ARowThatCameBackBehindTheScanIsInItsLastPage) {
  const std::vector<Key> keys = Range(0, 50);
  Set(keys, 1);
  ChangesRequest request;
  request.since = {partition_.incarnation(), partition_.changes().now()};
  request.max_bytes = 100;
  Set(keys, 2);
  std::map<Key, float> read;
  ChangedRows rows;
  do {
    ChangesPage page;
    ReadChanges(partition_, request, &page);
    for (const Bytes& chunk : page.chunks) {
      ASSERT_TRUE(DecodeChanges({chunk.data(), chunk.size()}, &rows).ok());
      for (size_t i = 0; i < rows.keys.size(); ++i) {
        if (rows.what == ChangedRows::kRemoved) read.erase(rows.keys[i]);
        if (rows.what == ChangedRows::kValues) read[rows.keys[i]] = rows.values[i * rows.dim];
      }
    }
    if (request.cursor.begins()) {
      EXPECT_EQ(read.count(49), 0u) << "the first page has only a few rows";
      Remove({49});
      Remove({0});
      Set({49}, 3);  // where key 0 was
    }
    request.cursor = page.next;
  } while (!request.cursor.begins());
  EXPECT_EQ(read[49], 3);
  EXPECT_EQ(read.count(0), 0u);
  EXPECT_EQ(read.size(), 49u);
}

TEST_F(ChangesTest, RowsAreRoundedWhereThatIsAskedFor) {
  Set({3}, 0.3f);
  size_t bytes = SIZE_MAX;
  for (const RowFormat format : {RowFormat::kFloat32, RowFormat::kInt8, RowFormat::kInt4}) {
    ChangesRequest request;
    request.format = format;
    ChangesPage page;
    ReadChanges(partition_, request, &page);
    ASSERT_EQ(page.chunks.size(), 1u);
    EXPECT_LT(page.chunks[0].size(), bytes) << "a smaller format";
    bytes = page.chunks[0].size();
    ChangedRows rows;
    ASSERT_TRUE(DecodeChanges({page.chunks[0].data(), bytes}, &rows).ok());
    ASSERT_EQ(rows.values.size(), 3u);
    for (const float value : rows.values) EXPECT_NEAR(value, 0.3f, format == RowFormat::kFloat32 ? 0 : 0.03f);
    for (size_t cut = 0; cut < bytes; ++cut) {
      EXPECT_FALSE(DecodeChanges({page.chunks[0].data(), cut}, &rows).ok()) << cut;
    }
  }
}

TEST_F(ChangesTest, TextsOfPositionsAndCursors) {
  Position position;
  EXPECT_TRUE(ParsePosition("18446744073709551615:7", &position));
  EXPECT_EQ(ToString(position), "18446744073709551615:7");
  for (const char* bad : {"", "1", "1:", ":1", "1:2:3", "1:2 ", "-1:2", "18446744073709551616:1", "a:b"}) {
    EXPECT_FALSE(ParsePosition(bad, &position)) << bad;
  }
  ChangesCursor cursor;
  EXPECT_TRUE(ParseCursor("5:6:0:0:7:8", &cursor));
  EXPECT_EQ(ToString(cursor), "5:6:0:0:7:8");
  EXPECT_TRUE(ParseCursor("0", &cursor));
  EXPECT_TRUE(cursor.begins());
  for (const char* bad : {"", "1", "5:6:3:0:7:8", "5:6:0:4:7:8", "5:6:1:3:7:8", "5:6:1:0:7:8",
                          "5:6:2:2:7:4294967296", "0:6:0:0:7:8", "5:6:0:0:7:8:9"}) {
    EXPECT_FALSE(ParseCursor(bad, &cursor)) << bad;
  }
}

TEST_F(ChangesTest, AnyCursorIsSafe) {
  Set(Range(0, 60), 1);
  Remove({5, 6, 7});
  Set({6, 61}, 2);
  for (uint64_t seed = 0; seed < Scaled(3000); ++seed) {
    Random random(seed);
    ChangesRequest request;
    request.since = {random.Chance(0.8) ? partition_.incarnation() : 1, random.Below(8)};
    request.cursor.start = {partition_.incarnation(), random.Below(8)};
    request.cursor.kind = static_cast<ChangesKind>(random.Below(3));
    request.cursor.stage = static_cast<ChangesCursor::Stage>(
        request.cursor.kind == ChangesKind::kChanges ? random.Below(4) : 1 + random.Below(2));
    request.cursor.table = random.Chance(0.5) ? schema_->id() : random.Next();
    request.cursor.at = random.Chance(0.5) ? random.Below(70) : random.Below(UINT32_MAX);
    request.max_bytes = random.Below(200) + 1;
    ChangesPage page;
    for (int pages = 0; pages < 1000; ++pages) {
      ReadChanges(partition_, request, &page);
      request.cursor = page.next;
      if (page.next.begins()) break;
    }
    EXPECT_TRUE(page.next.begins()) << "a scan ends";
  }
}

TEST(ChangeNumbersTest, WrappedNumbersLookChangedNeverUnchanged) {
  ChangeNumbers numbers;
  numbers.Reserve(600);
  constexpr uint64_t kLap = uint64_t{1} << 32;
  numbers.Set(5, 100);
  numbers.Set(300, kLap + 90);
  const auto pick = [&](uint32_t row, uint32_t end, uint64_t since, uint64_t now) {
    Vector<uint32_t> picked;
    EXPECT_EQ(numbers.Pick(row, end, since, now, 600, &picked), end);
    for (uint32_t each = row; each < end; ++each) {
      EXPECT_EQ(numbers.MayHaveChanged(each, since, now),
                std::binary_search(picked.begin(), picked.end(), each));
    }
    return std::vector<uint32_t>(picked.begin(), picked.end());
  };
  using Rows = std::vector<uint32_t>;
  EXPECT_EQ(pick(0, 256, 99, 100), Rows{5});
  EXPECT_EQ(pick(256, 600, kLap, kLap + 95), Rows{300});
  EXPECT_EQ(pick(0, 600, kLap + 90, kLap + 95), Rows{});
  EXPECT_EQ(pick(0, 600, kLap + 95, kLap + 95), Rows{});
  // Row 6 never changed, and its low bits are those of 2 * 2^32, too.
  numbers.Set(5, 2 * kLap + 10);
  EXPECT_EQ(pick(5, 256, 2 * kLap + 9, 2 * kLap + 10), Rows{5});
  EXPECT_EQ(pick(6, 7, 2 * kLap - 1, 2 * kLap + 10), Rows{6});
  EXPECT_EQ(pick(6, 256, 2 * kLap + 9, 2 * kLap + 10), Rows{});
}

TEST(ChangeNumbersTest, ArePickedInParts) {
  ChangeNumbers numbers;
  numbers.Reserve(1000);
  std::vector<uint32_t> wanted;
  for (uint32_t row = 3; row < 1000; row += row % 7 + 1) {
    numbers.Set(row, 20);
    wanted.push_back(row);
  }
  EXPECT_EQ(numbers.CountChanged(1000, 10, 30), wanted.size());
  for (const size_t most : {1, 2, 255, 1000}) {
    std::vector<uint32_t> all;
    Vector<uint32_t> picked;
    for (uint32_t row = 0; row < 1000;) {
      row = numbers.Pick(row, 1000, 10, 30, most, &picked);
      EXPECT_LE(picked.size(), most);
      all.insert(all.end(), picked.begin(), picked.end());
    }
    EXPECT_EQ(all, wanted);
  }
}

TEST(ChangeNumbersTest, TakeAtMost4Point2BytesARow) {
  for (const uint32_t rows : {10000u, 1000000u}) {
    ChangeNumbers numbers;
    numbers.Reserve(rows);
    EXPECT_LE(static_cast<double>(numbers.bytes()), 4.2 * rows);
  }
}

TEST(ChangeLogTest, WithoutMemoryTheListBeginsAnew) {
  ChangeLog log;
  for (int i = 0; i < 3; ++i) {
    log.Next();
    log.Removed(1, i);
  }
  EXPECT_TRUE(log.HasRemovalsSince(0));
  SetAllocLimit(AllocatedBytes());
  for (int i = 0; i < 1000; ++i) {
    log.Next();
    log.Removed(1, i);
  }
  SetAllocLimit(SIZE_MAX);
  EXPECT_FALSE(log.HasRemovalsSince(2));
  EXPECT_TRUE(log.HasRemovalsSince(log.now()));
}

}  // namespace
}  // namespace het::testing
