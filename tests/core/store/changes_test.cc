// A reader that follows a partition by ReadChanges has, after each scan, rows that are at least as new as the
// partition's were when the scan began.
#include "het_tf/core/store/changes.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "het_tf/core/store/chunk.h"
#include "tests/testing/handle_frame.h"
#include "tests/testing/partition_bytes.h"
#include "tests/testing/random.h"
#include "tests/testing/requests.h"
#include "tests/testing/table_specs.h"

namespace het::testing {
namespace {

constexpr uint64_t kKeys = 60;

Schema MakeSchema(const std::string& name, size_t dim) {
  TableSpec spec = NewSpec(name, static_cast<uint32_t>(dim), "adagrad");
  spec.limits = TableLimits();
  return TableSchema::Create(spec).value();
}

using Rows = std::map<std::pair<uint64_t, Key>, std::vector<float>>;

// A partition with two tables, and the changes that can happen to it.
class ChangingPartition {
 public:
  explicit ChangingPartition(uint64_t seed) : random_(seed), partition_(Make(100)) {}

  Partition& operator*() { return *partition_; }
  Partition* operator->() { return partition_.get(); }
  const Schema& schema(size_t i) const { return schemas_[i]; }

  void Push(const std::vector<Key>& keys, size_t table = 0) {
    const TableSchema& schema = *schemas_[table];
    Request q = RequestOf(partition_->id(), {1, 2}, partition_->clients().LastSeq({1, 2}) + 1);
    AddPush(&AddTable(&q, schema, partition_->Find(schema.id())->epoch()), keys);
    Bytes frame, reply;
    Encode(q, &frame);
    Handling how;
    how.now = 1000;
    EXPECT_TRUE(HandleFrame(partition_.get(), frame, &reply, how).applied);
  }
  void Remove(const std::vector<Key>& keys, size_t table = 0) {
    Bytes chunk;
    EncodeRemove(*schemas_[table], keys, &chunk);
    EXPECT_TRUE(LoadChunk(chunk, partition_.get()).ok());
  }
  void Set(Key key, float value, size_t table = 0) {
    const std::vector<float> row(schemas_[table]->row_floats(), value);
    Bytes chunk;
    EncodeSet(*schemas_[table], {&key, 1}, row.data(), &chunk);
    EXPECT_TRUE(LoadChunk(chunk, partition_.get()).ok());
  }
  // Comes to life again, as after a restart of the server.
  void Restart() { partition_ = std::move(PartitionOf(BytesOf(*partition_), ++incarnation_).value()); }
  void ChangeAtRandom() {
    const size_t table = random_.Below(2);
    std::set<Key> keys;
    for (uint64_t i = random_.Below(6) + 1; i > 0; --i) keys.insert(random_.Between(0, kKeys - 1));
    const std::vector<Key> some(keys.begin(), keys.end());
    const uint64_t what = random_.Below(100);
    if (what < 55) {
      Push(some, table);
    } else if (what < 75) {
      Remove(some, table);
    } else if (what < 90) {
      Set(some[0], static_cast<float>(random_.Below(1000)), table);
    } else if (what < 93) {
      TableLimits limits;
      limits.max_rows = 20;
      partition_->Find(schemas_[table]->id())->set_limits(limits);
      partition_->Sweep(2000, 30, nullptr);
      partition_->Find(schemas_[table]->id())->set_limits(TableLimits());
    } else if (what < 95) {
      partition_->ClearTable(schemas_[table]->id(), random_.Next());
    } else if (what < 97) {
      partition_->DropTable(schemas_[table]->id());
      EXPECT_TRUE(partition_->CreateTable(schemas_[table], random_.Next()).ok());
    } else if (what < 98) {
      Restart();
    } else {  // all rows will have other numbers
      std::vector<Key> all;
      for (Key key = 0; key < static_cast<Key>(kKeys); ++key) all.push_back(key);
      Remove(all, table);
    }
  }
  Rows rows() const {
    Rows rows;
    for (const auto& [table, shard] : partition_->shards()) {
      for (uint32_t r = 0; r < shard->rows().end(); ++r) {
        if (!shard->rows().live(r)) continue;
        const float* value = shard->rows().data(r);
        rows[{table, shard->rows().meta(r).key}].assign(value, value + shard->schema().dim());
      }
    }
    return rows;
  }

 private:
  std::unique_ptr<Partition> Make(uint64_t incarnation) {
    auto made = std::make_unique<Partition>(PartitionId{0, 1, 3}, incarnation);
    for (const Schema& schema : schemas_) EXPECT_TRUE(made->CreateTable(schema, 9).ok());
    return made;
  }

  Random random_;
  uint64_t incarnation_ = 100;
  const Schema schemas_[2] = {MakeSchema("a", 3), MakeSchema("b", 2)};
  std::unique_ptr<Partition> partition_;
};

// Follows as changes.h says.
class FollowingReader {
 public:
  // Reads one page. Returns true if it was the scan's last.
  bool ReadPage(const Partition& partition, size_t max_bytes) {
    ChangesRequest request;
    request.since = since_;
    request.cursor = cursor_;
    request.max_bytes = max_bytes;
    ChangesPage page;
    ReadChanges(partition, request, &page);
    if (cursor_.begins() || page.start != start_ || page.kind != kind_) noted_.clear();
    start_ = page.start;
    kind_ = page.kind;
    // As text, which is how they travel.
    EXPECT_TRUE(ParseCursor(ToString(page.next), &cursor_));
    for (const Bytes& chunk : page.chunks) Take(chunk);
    if (!cursor_.begins()) return false;
    EXPECT_TRUE(ParsePosition(ToString(page.start), &since_));
    if (kind_ != ChangesKind::kChanges) {
      for (auto it = rows_.begin(); it != rows_.end();) {
        it = noted_.count(it->first) == 0 ? rows_.erase(it) : std::next(it);
      }
    }
    return true;
  }
  const Rows& rows() const { return rows_; }
  ChangesKind kind() const { return kind_; }
  size_t taken() const { return taken_; }
  Position since() const { return since_; }
  void set_since(Position since) { since_ = since; }

 private:
  void Take(const Bytes& chunk) {
    ChangedRows changed;
    const Status status = DecodeChanges(chunk, &changed);
    ASSERT_TRUE(status.ok()) << status.message();
    for (size_t i = 0; i < changed.keys.size(); ++i) {
      const std::pair<uint64_t, Key> id = {changed.table, changed.keys[i]};
      if (changed.what == ChangedRows::kRemoved) {
        rows_.erase(id);
        continue;
      }
      noted_.insert(id);
      if (changed.what == ChangedRows::kKeys) continue;
      const float* value = changed.values.data() + i * changed.dim;
      rows_[id].assign(value, value + changed.dim);
      ++taken_;
    }
  }

  Position since_;
  ChangesCursor cursor_;
  Position start_;
  ChangesKind kind_ = ChangesKind::kChanges;
  Rows rows_;
  std::set<std::pair<uint64_t, Key>> noted_;
  size_t taken_ = 0;
};

// Every row that the reader has was the partition's at some moment of the scan; so was every absence.
void ExpectSeenDuring(const std::vector<Rows>& states, const Rows& read) {
  const auto find = [](const Rows& rows, const std::pair<uint64_t, Key>& id) {
    const auto it = rows.find(id);
    return it == rows.end() ? std::vector<float>() : it->second;
  };
  std::set<std::pair<uint64_t, Key>> ids;
  for (const auto& [id, row] : read) ids.insert(id);
  for (const Rows& state : states) {
    for (const auto& [id, row] : state) ids.insert(id);
  }
  for (const auto& id : ids) {
    bool seen = false;
    for (const Rows& state : states) seen = seen || find(state, id) == find(read, id);
    EXPECT_TRUE(seen) << "key " << id.second << (read.count(id) == 0 ? " is missing" : " is old");
  }
}

TEST(ChangesTest, AReaderIsAsNewAsTheStartOfItsScan) {
  for (uint64_t seed = 0; seed < Scaled(300); ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    ChangingPartition partition(seed);
    FollowingReader reader;
    bool kinds[3] = {};
    for (int scan = 0; scan < 12; ++scan) {
      partition->changes().set_most_removals(random.Chance(0.5) ? 5 : 1000);
      for (uint64_t i = random.Below(8); i > 0; --i) partition.ChangeAtRandom();
      std::vector<Rows> states = {partition.rows()};
      while (!reader.ReadPage(*partition, random.Below(400) + 1)) {
        for (uint64_t i = random.Below(3); i > 0; --i) {
          partition.ChangeAtRandom();
          partition->changes().set_most_removals(random.Chance(0.5) ? 5 : 1000);
          states.push_back(partition.rows());
        }
      }
      kinds[static_cast<size_t>(reader.kind())] = true;
      ExpectSeenDuring(states, reader.rows());
      if (::testing::Test::HasFailure()) return;
    }
    while (!reader.ReadPage(*partition, 100)) {
    }
    EXPECT_EQ(reader.rows(), partition.rows());
    EXPECT_TRUE(kinds[static_cast<size_t>(ChangesKind::kWhole)]) << "the first scan is whole";
  }
}

class FollowedPartition : public ::testing::Test {
 protected:
  FollowedPartition() : partition_(1) {
    std::vector<Key> keys;
    for (Key key = 0; key < 50; ++key) keys.push_back(key);
    partition_.Push(keys);
    Scan();
  }
  // Returns how many rows came.
  size_t Scan() {
    const size_t before = reader_.taken();
    while (!reader_.ReadPage(*partition_, 1000)) {
    }
    return reader_.taken() - before;
  }

  ChangingPartition partition_;
  FollowingReader reader_;
};

TEST_F(FollowedPartition, SendsOnlyTheChangedRows) {
  EXPECT_EQ(Scan(), 0u);
  partition_.Push({3, 7, 51});
  EXPECT_EQ(Scan(), 3u);
  EXPECT_EQ(reader_.kind(), ChangesKind::kChanges);
  EXPECT_EQ(Scan(), 0u);
  partition_.Remove({3});
  EXPECT_EQ(Scan(), 0u);
  EXPECT_EQ(reader_.rows().count({partition_.schema(0)->id(), 3}), 0u);
  EXPECT_EQ(reader_.rows(), partition_.rows());
}

TEST_F(FollowedPartition, SendsAllKeysWhenRemovalsAreLost) {
  partition_->changes().set_most_removals(2);
  partition_.Remove({1, 2, 3});
  partition_.Push({4});
  EXPECT_EQ(Scan(), 1u) << "keys are enough for the rows that did not change";
  EXPECT_EQ(reader_.kind(), ChangesKind::kKeys);
  EXPECT_EQ(reader_.rows(), partition_.rows());
  partition_.Remove({5, 6});
  Scan();
  EXPECT_EQ(reader_.kind(), ChangesKind::kChanges) << "two removals fit";
}

TEST_F(FollowedPartition, IsSentWholeToAReaderOfTheFuture) {
  reader_.set_since({reader_.since().incarnation, reader_.since().number + 1});
  EXPECT_EQ(Scan(), 50u);
  EXPECT_EQ(reader_.kind(), ChangesKind::kWhole);
}

TEST_F(FollowedPartition, CanBeAskedForOneTableWithItsSlots) {
  partition_.Push({1, 2}, 1);
  ChangesRequest request;
  request.table = partition_.schema(1)->id();
  request.stored = true;
  ChangesPage page;
  ReadChanges(*partition_, request, &page);
  ASSERT_EQ(page.chunks.size(), 1u);
  RowBatch rows(*partition_.schema(1), 1000);
  ASSERT_TRUE(DecodeRows(page.chunks[0], *partition_.schema(1), &rows).ok());
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows.clocks()[0], 1);
  EXPECT_EQ(rows.slot_floats(), 2u) << "the accumulator";
}

TEST_F(FollowedPartition, SendsRoundedRowsWhereThatIsAskedFor) {
  partition_.Set(3, 0.3f);
  ChangesRequest request;
  request.since = {partition_->incarnation(), partition_->changes().now() - 1};
  size_t bytes = SIZE_MAX;
  for (const RowFormat format : {RowFormat::kFloat32, RowFormat::kInt8, RowFormat::kInt4}) {
    request.format = format;
    ChangesPage page;
    ReadChanges(*partition_, request, &page);
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

TEST(ChangesTest, TextsOfPositionsAndCursors) {
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

TEST(ChangesTest, AnyCursorIsSafe) {
  for (uint64_t seed = 0; seed < Scaled(3000); ++seed) {
    Random random(seed);
    ChangingPartition partition(seed);
    for (int i = 0; i < 5; ++i) partition.ChangeAtRandom();
    ChangesRequest request;
    request.since = {random.Chance(0.8) ? partition->incarnation() : 1, random.Below(8)};
    request.cursor.start = {partition->incarnation(), random.Below(8)};
    request.cursor.kind = static_cast<ChangesKind>(random.Below(3));
    request.cursor.stage = static_cast<ChangesCursor::Stage>(
        request.cursor.kind == ChangesKind::kChanges ? random.Below(4) : 1 + random.Below(2));
    request.cursor.table = random.Chance(0.5) ? partition.schema(0)->id() : random.Next();
    request.cursor.at = random.Chance(0.5) ? random.Below(70) : random.Below(UINT32_MAX);
    request.max_bytes = random.Below(200) + 1;
    ChangesPage page;
    for (int pages = 0; pages < 1000; ++pages) {
      ReadChanges(*partition, request, &page);
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
