#include "tests/cpp/testing/stored_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

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

std::vector<std::string> Save(TableStore* store, const std::string& prefix,
                              const std::vector<SavedTable>& tables, uint32_t group) {
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

void Load(TableStore* store, const std::vector<std::string>& paths, const Schema& schema, Clock floor) {
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
