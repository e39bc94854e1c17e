// Saving tables of the embedded store to row files and loading them: other shapes, increments, refusals.
#include "het_tf/core/store/local_store.h"

#include <gmock/gmock.h>

#include <random>
#include <set>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/store/shard.h"
#include "het_tf/ext/checkpoint/cc/row_reader.h"
#include "tests/testing/fits_in.h"
#include "tests/testing/random.h"
#include "tests/testing/status.h"
#include "tests/testing/stored_rows.h"
#include "tests/testing/table_specs.h"
#include "tests/testing/temp_folder.h"

namespace het::testing {
namespace {

using ::testing::HasSubstr;

// A store of any shape with these tables.
class Embedded {
 public:
  Embedded(uint32_t partitions, uint64_t hash_seed, std::vector<Schema> schemas, uint32_t now = 1000)
      : service_(partitions, hash_seed, [now] { return now; }), store_(&service_) {
    for (const Schema& schema : schemas) EXPECT_TRUE(store_.CreateTable(schema).ok());
  }
  LocalStore* operator->() { return &store_; }
  LocalStore* get() { return &store_; }
  void Assign(const Schema& schema, Key key, float value) { AssignRows(&store_, *schema, key, 1, value); }
  void Remove(const Schema& schema, Key key) {
    EXPECT_TRUE(store_.Remove(*schema, Span<const Key>(&key, 1)).ok());
  }

 private:
  LocalService service_;
  LocalStore store_;
};

using CheckpointStore = FolderTest;

TEST_F(CheckpointStore, AnyShapeIntoAnyOther) {
  const std::vector<Schema> schemas = {NewSchema("a", 7, "adam"), NewSchema("b \"ü\"/keys", 1, "sgd"),
                                       NewSchema("empty", 3, "adagrad")};
  Embedded first(4, 5, schemas);
  std::mt19937_64 random(1);
  for (int i = 0; i < 3000; ++i) {
    const auto key = static_cast<Key>(i % 3 == 0 ? random() : random() % 500);
    first.Assign(schemas[i % 2], key, static_cast<float>(i));
  }
  first.Assign(schemas[0], INT64_MIN, 1);
  first.Assign(schemas[0], INT64_MAX, 2);
  first.Remove(schemas[0], 7);
  std::vector<StoredRows> wanted;
  for (const Schema& schema : schemas) wanted.push_back(RowsOf(first.get(), *schema));
  ASSERT_GT(wanted[0].size(), 500u);
  ASSERT_TRUE(wanted[2].empty());

  const std::vector<SavedTable> all = {{schemas[0]}, {schemas[1]}, {schemas[2]}};
  std::vector<std::string> paths = Save(first.get(), Path("4"), all);
  const std::pair<uint32_t, uint64_t> shapes[] = {{2, 5}, {8, 77}, {1, 0}, {16, 0}, {64, 3}, {16, 1}};
  for (const auto& [partitions, seed] : shapes) {
    Embedded next(partitions, seed, schemas, 5000);
    next.Assign(schemas[0], 123456, 3);  // is not loaded
    for (const Schema& schema : schemas) Load(next.get(), paths, schema);
    for (size_t t = 0; t < schemas.size(); ++t) {
      EXPECT_EQ(RowsOf(next.get(), *schemas[t]), wanted[t]) << partitions << " partitions";
      for (const auto& [key, row] : wanted[t]) {  // each is where it is looked for
        float value[7];
        ASSERT_TRUE(next->Read(*schemas[t], {&key, 1}, value).ok());
        ASSERT_EQ(value[0], std::get<3>(row)[0]) << key;
      }
    }
    paths = Save(next.get(), Path(std::to_string(partitions) + "of" + std::to_string(seed)), all);
  }
}

// A table is in 8 of 64 partitions: shares of a 64th would keep an eighth of the rows.
TEST(LocalStore, MaxRowsIsSharedByTheTablesPartitions) {
  TableSpec spec = NewSchema("a", 2, "sgd")->spec();
  spec.limits.emplace().max_rows = 800;
  const Schema schema = TableSchema::Create(spec).value();
  LocalService service(64, 5);
  LocalStore store(&service);
  ASSERT_TRUE(store.CreateTable(schema).ok());
  AssignRows(&store, *schema, 0, 4000);
  for (int i = 0; i < 64 * 20; ++i) service.SweepNext();
  EXPECT_EQ(store.Size(*schema).value().rows, 800u);
}

TEST_F(CheckpointStore, FloorsAndPositions) {
  const Schema schema = NewSchema("a", 2, "sgd");
  Embedded first(4, 5, {schema});
  for (Key key = 0; key < 50; ++key) first.Assign(schema, key, 1);
  for (int i = 0; i < 9; ++i) first.Assign(schema, 3, 1);
  first.Remove(schema, 3);
  const Clock floor = first->State(*schema).value().clock_floor;
  ASSERT_EQ(floor, 10 * 2 * kBirthGap) << "each assignment is a birth";
  const auto paths = Save(first.get(), Path("a"), {{schema}});
  Embedded next(2, 9, {schema});
  const auto before = next->State(*schema).value();
  Load(next.get(), paths, schema, floor);
  const auto after = next->State(*schema).value();
  EXPECT_EQ(after.clock_floor, floor);
  EXPECT_EQ(after.rows[0] + after.rows[1], 49u);
  for (size_t p = 0; p < 2; ++p) EXPECT_NE(after.positions[p], before.positions[p]);
  next.Assign(schema, 3, 1);
  EXPECT_EQ(std::get<0>(RowsOf(next.get(), *schema)[3]), floor + 4 * kBirthGap)
      << "not as if it had never gone";
}

TEST_F(CheckpointStore, IncrementsOfAnyHistory) {
  for (uint64_t seed = 0; seed < Scaled(100); ++seed) {
    LocalService service(4, seed);
    LocalStore store(&service);
    CheckIncrements(&store, Path(std::to_string(seed)), seed);
  }
}

// A list that loses removals before or between the pages of an increment: rows that it no longer names would
// come back with the base. So all rows are saved.
TEST_F(CheckpointStore, AnIncrementThatLosesRemovalsBecomesWhole) {
  class Removing : public LocalStore {
   public:
    using LocalStore::LocalStore;
    Status ChangesSome(const TableSchema& schema, uint32_t partition, ChangesScan* scan, RowBatch* rows,
                       Vector<Key>* removed) override {
      for (; before_page == 0 && next < 14; ++next) {
        EXPECT_TRUE(Remove(schema, Span<const Key>(&next, 1)).ok());
      }
      --before_page;
      const Status status = LocalStore::ChangesSome(schema, partition, scan, rows, removed);
      kinds.push_back(scan->kind);
      return status;
    }
    int before_page = 0;
    Key next = 10;
    std::vector<ChangesKind> kinds;
  };
  const Schema schema = NewSchema("a", 4096, "sgd");
  const Schema other = NewSchema("b", 3, "sgd");
  const auto changes = ChangesKind::kChanges;
  for (const auto& [page, kinds] : {std::pair(0, std::vector{ChangesKind::kKeys}),
                                    std::pair(2, std::vector{changes, changes, ChangesKind::kKeys})}) {
    LocalService service(1, 5);
    Removing store(&service);
    store.before_page = page;
    ASSERT_TRUE(store.CreateTable(schema).ok() && store.CreateTable(other).ok());
    service.WithPartition(0, [](Partition& p) {
      p.changes().set_most_removals(3);
      return 0;
    });
    AssignRows(&store, *schema, 0, 900, 0);
    AssignRows(&store, *other, 0, 10, 0);
    const auto since = PositionsOf(&store, *schema);
    AssignRows(&store, *schema, 200, 700, 200);  // pages of 255 rows
    AssignRows(&store, *other, 3, 2, 3);
    const auto saved = ValueOf(SaveRows(&store, Path("a"), {{schema, since}, {other, since}}, {0}));
    EXPECT_EQ(std::vector(store.kinds.begin(), store.kinds.begin() + static_cast<long>(kinds.size())), kinds);
    EXPECT_FALSE(saved.tables[0].increment);
    EXPECT_EQ(saved.tables[0].rows, 896u) << "all rows that are left, those of before the base, too";
    EXPECT_FALSE(saved.tables[1].increment) << "the list is the partition's";
    EXPECT_EQ(saved.tables[1].rows, 10u);
    const StoredRows wanted = RowsOf(&store, *schema);
    Load(&store, {Path("a")}, schema, 0);
    EXPECT_EQ(RowsOf(&store, *schema), wanted);
    std::filesystem::remove(Path("a"));
  }
}

// Rows arrive while others are saved: no earlier row may be missing because of them.
TEST_F(CheckpointStore, RowsThatComeMeanwhilePushNoneOut) {
  class Growing : public LocalStore {
   public:
    using LocalStore::LocalStore;
    Status ScanSome(const TableSchema& schema, uint32_t partition, uint64_t* cursor,
                    RowBatch* batch) override {
      Grow(schema);
      return LocalStore::ScanSome(schema, partition, cursor, batch);
    }
    Status ChangesSome(const TableSchema& schema, uint32_t partition, ChangesScan* scan, RowBatch* rows,
                       Vector<Key>* removed) override {
      Grow(schema);
      return LocalStore::ChangesSome(schema, partition, scan, rows, removed);
    }

   private:
    void Grow(const TableSchema& schema) {
      AssignRows(this, schema, next_, 300, 2);
      next_ += 300;
    }
    Key next_ = 1000;
  };
  const Schema schema = NewSchema("a", 3, "adagrad");
  LocalService service(4, 5);
  Growing store(&service);
  ASSERT_TRUE(store.CreateTable(schema).ok());
  const auto empty = PositionsOf(&store, *schema);
  AssignRows(&store, *schema, 0, 200);
  for (bool increment : {false, true}) {
    const std::string path = Path(increment ? "increment" : "full");
    const SavedTable table{schema, increment ? std::make_optional(empty) : std::nullopt};
    ASSERT_TRUE(SaveRows(&store, path, {table}, {0, 1, 2, 3}).ok());
    const auto file = ValueOf(RowReader::Open(path));
    const RowTable& rows = file->tables()[0];
    std::vector<Key> keys(rows.rows);
    ASSERT_TRUE(file->Read(rows, kKeysColumn, 0, rows.rows, keys.data()).ok());
    const std::set<Key> saved(keys.begin(), keys.end());
    for (Key key = 0; key < 200; ++key) EXPECT_EQ(saved.count(key), 1u) << key;
    EXPECT_EQ(saved.size(), keys.size());
  }
}

TEST_F(CheckpointStore, WhatDoesNotFitIsRefused) {
  const Schema schema = NewSchema("a", 3, "adam");
  Embedded first(2, 5, {schema});
  for (Key key = 0; key < 10; ++key) first.Assign(schema, key, 5);
  const auto paths = Save(first.get(), Path("a"), {{schema}});
  const auto file = ValueOf(RowReader::Open(paths[0]));
  const RowTable& table = file->tables()[0];
  const auto load = [&](const Schema& to, bool slots) {
    Embedded next(2, 5, {to});
    const Status status = LoadRows(next.get(), *file, table, *to, slots).status();
    EXPECT_EQ(RowsOf(next.get(), *to).empty(), !status.ok());
    return status;
  };
  EXPECT_THAT(load(NewSchema("x", 4, "adam"), true).message(), HasSubstr("has dim 3; table 'x' has 4"));
  EXPECT_THAT(load(NewSchema("x", 3, "sgd"), true).message(),
              HasSubstr("7 floats of slots a row; table 'x' (sgd) has 0"));
  EXPECT_THAT(load(NewSchema("x", 3, "ftrl"), false).message(),
              HasSubstr("computes its values from its slots (ftrl)"));
  EXPECT_TRUE(load(NewSchema("x", 3, "sgd"), false).ok());
}

// Memory does not grow with the table; when it is exhausted the error says so.
TEST_F(CheckpointStore, Memory) {
  const Schema schema = NewSchema("a", 256, "sgd");
  Embedded store(2, 5, {schema});
  const auto empty = PositionsOf(store.get(), *schema);
  std::vector<float> rows(256 * 1000);
  for (Key first = 0; first < 60000; first += 1000) {
    const std::vector<Key> keys = Range(first, 1000);
    ASSERT_TRUE(store->Assign(*schema, keys, rows.data(), false).ok());
  }
  ASSERT_GT(store->Size(*schema).value().bytes, size_t{60} << 20);
  const auto limited = [&](size_t bytes, const std::string& name, const SavedTable& table) {
    Status status;
    EXPECT_TRUE(FitsIn(bytes, [&] {
      status = SaveRows(store.get(), Path(name), {table}, AllPartitions(*store.get())).status();
    }));
    return status;
  };
  EXPECT_EQ(limited(size_t{6} << 20, "full", {schema}).message(), "");
  EXPECT_EQ(limited(size_t{10} << 20, "increment", {schema, empty}).message(), "");
  EXPECT_TRUE(Fails(limited(100000, "none", {schema}), Code::kResourceExhausted,
                    "out of memory while rows were saved"));
  Embedded next(3, 5, {schema});
  const auto file = ValueOf(RowReader::Open(Path("full")));
  SetAllocLimit(AllocatedBytes() + (size_t{20} << 20));
  const Status loaded = LoadRows(next.get(), *file, file->tables()[0], *schema, true).status();
  SetAllocLimit(SIZE_MAX);
  EXPECT_EQ(loaded.code(), Code::kResourceExhausted) << loaded.message();
}

}  // namespace
}  // namespace het::testing
