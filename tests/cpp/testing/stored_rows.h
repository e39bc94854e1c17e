// Everything that a store has of a table, for comparing stores of different shapes; and the way from a store
// into files and back.
#ifndef HET_TESTS_CPP_TESTING_STORED_ROWS_H_
#define HET_TESTS_CPP_TESTING_STORED_ROWS_H_

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "het_tf/core/checkpoint/load.h"
#include "het_tf/core/checkpoint/save.h"
#include "het_tf/core/table_store.h"

namespace het::testing {

// clock, last_used, count, floats
using StoredRow = std::tuple<Clock, uint32_t, uint16_t, std::vector<float>>;
using StoredRows = std::map<Key, StoredRow>;

inline StoredRows RowsOf(TableStore* store, const TableSchema& schema, size_t some = 7) {
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

inline std::vector<uint32_t> AllPartitions(const TableStore& store) {
  std::vector<uint32_t> all(store.partitions());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// One file for every `group` partitions: FOLDER/NAME-0, ...
inline std::vector<std::string> Save(TableStore* store, const std::string& prefix,
                                     const std::vector<SavedTable>& tables, uint32_t group = 3) {
  std::vector<std::string> paths;
  for (uint32_t first = 0; first < store->partitions(); first += group) {
    std::vector<uint32_t> partitions;
    for (uint32_t p = first; p < std::min(first + group, store->partitions()); ++p) partitions.push_back(p);
    paths.push_back(prefix + "-" + std::to_string(first));
    const auto saved = SaveRows(store, paths.back(), tables, partitions);
    EXPECT_TRUE(saved.ok()) << saved.status().message();
  }
  return paths;
}

// All rows of these files, in their order, into a table that is cleared first.
inline void Load(TableStore* store, const std::vector<std::string>& paths, const Schema& schema,
                 Clock floor = 0) {
  ASSERT_TRUE(store->BeginLoad("test", 60).ok());
  ASSERT_TRUE(store->ClearTable(*schema).ok());
  for (const std::string& path : paths) {
    const auto file = RowReader::Open(path);
    ASSERT_TRUE(file.ok()) << file.status().message();
    const auto table = file.value()->Find(schema->spec().name);
    ASSERT_TRUE(table.ok()) << table.status().message();
    const auto loaded = LoadRows(store, *file.value(), *table.value(), *schema, true);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    EXPECT_EQ(loaded.value().rows, table.value()->rows);
  }
  ASSERT_TRUE(store->RaiseFloor(*schema, floor).ok());
  const Status committed = store->CommitLoad("test");
  ASSERT_TRUE(committed.ok()) << committed.message();
}

}  // namespace het::testing

#endif  // HET_TESTS_CPP_TESTING_STORED_ROWS_H_
