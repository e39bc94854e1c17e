// The data type `het-partn`: one Redis value is one core::Partition.
//
// The server calls the type's methods: rdb_save and rdb_load for RDB files, full resynchronisation, DUMP,
// RESTORE and MIGRATE; aof_rewrite for an append-only file without RDB preamble; free, for a large value from
// a background thread. COPY is refused, since two keys must not hold the same partition.
//
// There is no defrag callback: rows lie in blocks of about a megabyte or more, which the allocator keeps in
// extents of their own, so moving them would win nothing. Holes of removed rows are inside blocks, where only
// new rows can fill them.
//
// RDB encoding 2: the partition's chunks (core/store/chunk.h), each one string, the last one kEnd. So saving
// never needs a second copy of a partition in memory. A change of the chunks' form raises kEncodingVersion.
//
// rdb_load and HET.TABLE CREATE give a partition a new incarnation. It is never saved or replicated, so it
// shows clients that the partition may have lost their updates.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "het_tf/core/store/partition.h"
#include "het_tf/ext/ps/module/redis_api.h"

namespace het::module {

constexpr char kTypeName[] = "het-partn";  // the API requires nine characters
constexpr int kEncodingVersion = 2;

// Sums over all partitions of this process.
struct Totals {
  size_t held = 0;      // clients' subscriptions to rows
  size_t notified = 0;  // notifications by the partitions that are here
  size_t subscription_resets = 0;
  uint64_t partitions = 0;
  uint64_t tables = 0;
  uint64_t rows = 0;
  uint64_t bytes = 0;
  uint64_t clients = 0;
};

// Sums over the partitions of a table in this process.
struct TableTotals {
  uint64_t rows = 0;
  uint64_t bytes = 0;
  uint64_t max_rows = 0;  // of the whole table; 0: no limit
};

// Bytes that a partition takes, including its clients.
size_t MemoryOf(const Partition& partition);
size_t RowsOf(const Partition& partition);

// Registers the type at the server. Returns false if it refuses.
bool RegisterType(RedisModuleCtx* ctx);

// Where a partition was created or loaded. Another command may have moved it since (RENAME, SWAPDB), so
// compare after opening the key.
struct Place {
  std::string key;
  int db = 0;
};

// Puts a new partition into `key`, which must be empty and open for writing. Throws std::bad_alloc.
void SetNewPartition(RedisModuleKey* key, const PartitionId& id, Place place);

// Returns the partition in `key`, with the server's limits; null if it holds another value.
Partition* GetPartition(RedisModuleKey* key);

Totals SumTotals();
// By the namespace and the name.
std::map<std::pair<std::string, std::string>, TableTotals> SumTables();
std::vector<std::pair<const Partition*, Place>> AllPartitions();

}  // namespace het::module
