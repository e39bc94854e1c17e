// The complete content of a table in a store, to compare stores of different shapes; saving and loading it.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "het_tf/core/store/table_store.h"
#include "het_tf/ext/checkpoint/cc/load.h"
#include "het_tf/ext/checkpoint/cc/save.h"
#include "tests/testing/keys.h"

namespace het::testing {

// clock, last_used, count, floats
using StoredRow = std::tuple<Clock, uint32_t, uint16_t, std::vector<float>>;
using StoredRows = std::map<Key, StoredRow>;

StoredRows RowsOf(TableStore* store, const TableSchema& schema, size_t some = 7);

std::vector<uint32_t> AllPartitions(const TableStore& store);

// The store's position of each partition, now.
std::vector<Position> PositionsOf(TableStore* store, const TableSchema& schema);

// Sets the rows of so many keys: each float, also of their slots, is `value`.
void AssignRows(TableStore* store, const TableSchema& schema, Key first, size_t count, float value = 1);

// Saves one file for every `group` partitions: FOLDER/NAME-0, ...
std::vector<std::string> Save(TableStore* store, const std::string& prefix,
                              const std::vector<SavedTable>& tables, uint32_t group = 3);

// Clears the table, then loads all rows of these files, in order.
void Load(TableStore* store, const std::vector<std::string>& paths, const Schema& schema, Clock floor = 0);

// Makes two tables, changes them at random, also by clears, drops and loads, and saves now and then, as
// increments where the store knows the changes: what is restored must be the store's rows.
void CheckIncrements(TableStore* store, const std::string& prefix, uint64_t seed);

}  // namespace het::testing
