#include "tests/testing/stored_rows.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "het_tf/core/store/local_store.h"
#include "het_tf/ext/checkpoint/cc/row_reader.h"
#include "tests/testing/status.h"
#include "tests/testing/table_specs.h"

namespace het::testing {

StoredRows RowsOf(TableStore* store, const TableSchema& schema, size_t some) {
  StoredRows rows;
  RowBatch batch(schema.dim(), schema.row_floats() - schema.dim(), some);
  for (uint32_t p = 0; p < store->partitions(); ++p) {
    for (uint64_t cursor = 0; cursor != TableStore::kScanned; batch.Clear()) {
      const Status status = store->ScanSome(schema, p, &cursor, &batch);
      EXPECT_TRUE(status.ok()) << status.message();
      if (!status.ok()) return rows;
      for (size_t i = 0; i < batch.size(); ++i) {
        std::vector<float> row(schema.row_floats());
        batch.CopyRow(i, row.data());
        const StoredRow stored(batch.clocks()[i], batch.last_used()[i], batch.counts()[i], std::move(row));
        EXPECT_TRUE(rows.emplace(batch.keys()[i], stored).second) << "twice: " << batch.keys()[i];
      }
    }
  }
  return rows;
}

std::vector<uint32_t> AllPartitions(const TableStore& store) {
  std::vector<uint32_t> all(store.partitions());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<Position> PositionsOf(TableStore* store, const TableSchema& schema) {
  return ValueOf(store->State(schema)).positions;
}

void AssignRows(TableStore* store, const TableSchema& schema, Key first, size_t count, float value) {
  const std::vector<float> row(schema.row_floats(), value);
  for (size_t i = 0; i < count; ++i) {
    const Key key = first + static_cast<Key>(i);
    ASSERT_TRUE(store->Assign(schema, {&key, 1}, row.data(), true).ok());
  }
}

std::vector<std::string> Save(TableStore* store, const std::string& prefix,
                              const std::vector<SavedTable>& tables, uint32_t group) {
  std::vector<std::string> paths;
  for (uint32_t first = 0; first < store->partitions(); first += group) {
    std::vector<uint32_t> partitions;
    for (uint32_t p = first; p < std::min(first + group, store->partitions()); ++p) partitions.push_back(p);
    paths.push_back(prefix + "-" + std::to_string(first));
    EXPECT_TRUE(Ok(SaveRows(store, paths.back(), tables, partitions)));
  }
  return paths;
}

void Load(TableStore* store, const std::vector<std::string>& paths, const Schema& schema, Clock floor) {
  ASSERT_TRUE(store->BeginLoad("test", 60).ok());
  ASSERT_TRUE(store->ClearTable(*schema).ok());
  for (const std::string& path : paths) {
    const auto file = ValueOf(RowReader::Open(path));
    const auto table = ValueOf(file->Find(schema->spec().name));
    const auto loaded = ValueOf(LoadRows(store, *file, *table, *schema, true));
    EXPECT_EQ(loaded.rows, table->rows);
  }
  ASSERT_TRUE(store->RaiseFloor(*schema, floor).ok());
  ASSERT_TRUE(Ok(store->CommitLoad("test")));
}

namespace {

// One table, the files of its last checkpoint, and the positions that its next increment begins at.
struct History {
  Schema schema;
  std::vector<std::string> chain = {};
  std::vector<Position> since = {};
  std::set<Key> touched = {};  // since then
};

History NewHistory(const std::string& name, uint32_t dim, const std::string& optimizer) {
  return {NewSchema(name, dim, optimizer)};
}

// Returns whether it was an increment.
bool SaveAndCompare(TableStore* store, const std::string& prefix, History* of) {
  const TableSchema& schema = *of->schema;
  const auto count = store->CountChanges(schema, of->since, AllPartitions(*store));
  EXPECT_TRUE(count.ok()) << count.status().message();
  SavedTable table{of->schema};
  const bool increment = count.value().kind == ChangesKind::kChanges;
  if (increment) {
    table.since = of->since;
  } else {
    of->chain.clear();
  }
  of->since = PositionsOf(store, schema);
  const StoredRows rows = RowsOf(store, schema);
  uint64_t saved = 0, removed = 0;
  for (const std::string& path : Save(store, prefix, {table})) {
    of->chain.push_back(path);
    const auto file = ValueOf(RowReader::Open(path));
    saved += file->tables()[0].rows;
    removed += file->tables()[0].removed;
  }
  if (increment) {
    uint64_t live = 0;
    for (const Key key : of->touched) live += rows.count(key);
    EXPECT_EQ(saved, live) << "it has the changed rows alone";
    EXPECT_EQ(count.value().rows, live);
    EXPECT_LE(saved + removed, of->touched.size());
    EXPECT_LE(removed, count.value().removed);
  }
  of->touched.clear();
  LocalService service(8, 1);
  LocalStore restored(&service);
  EXPECT_TRUE(restored.CreateTable(of->schema).ok());
  Load(&restored, of->chain, of->schema);
  EXPECT_EQ(RowsOf(&restored, schema), rows) << prefix;
  return increment;
}

}  // namespace

void CheckIncrements(TableStore* store, const std::string& prefix, uint64_t seed) {
  std::mt19937_64 random(seed);
  History tables[] = {NewHistory("a", 2, "adam"), NewHistory("b", 3, "sgd")};
  for (const History& table : tables) ASSERT_TRUE(store->CreateTable(table.schema).ok());
  int increments = 0;
  int whole = 0;
  for (int step = 0; step < 120; ++step) {
    History& table = tables[random() % 2];
    const TableSchema& schema = *table.schema;
    std::vector<Key> keys(1 + random() % 20);
    for (Key& key : keys) key = static_cast<Key>(random() % 100);
    const std::vector<float> rows(keys.size() * schema.row_floats(), static_cast<float>(step));
    const uint64_t action = random() % 100;
    if (action < 65) table.touched.insert(keys.begin(), keys.end());
    if (action < 40) {
      ASSERT_TRUE(store->Assign(schema, keys, rows.data(), true).ok());
    } else if (action < 65) {
      ASSERT_TRUE(store->Remove(schema, keys).ok());
    } else if (action < 68) {
      ASSERT_TRUE(store->ClearTable(schema).ok());
    } else if (action < 70) {
      ASSERT_TRUE(store->DropTable(schema).ok());
      ASSERT_TRUE(store->CreateTable(table.schema).ok());
    } else if (action < 75 && !table.chain.empty()) {
      Load(store, table.chain, table.schema);
      table.since = PositionsOf(store, schema);
      table.touched.clear();
    } else if (action >= 75) {
      ++(SaveAndCompare(store, prefix + "-" + std::to_string(step), &table) ? increments : whole);
    }
  }
  EXPECT_GT(increments, 5);
  EXPECT_GT(whole, 1);
}

}  // namespace het::testing
