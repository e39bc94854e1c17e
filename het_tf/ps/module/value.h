// The data type `het-partn`: one Redis value is one core::Partition.
//
// The server calls the type's methods: rdb_save and rdb_load for RDB files, full resynchronisation,
// DUMP, RESTORE and MIGRATE; aof_rewrite for an append-only file without RDB preamble; free, from a
// background thread for a value that is large. There is no copy: two keys must not hold the same
// partition, so COPY is refused.
//
// There is no defrag callback: rows lie in blocks of up to a megabyte and more, which the allocator
// keeps in extents of their own, so moving them would win nothing; and the holes that removed rows
// leave are inside of blocks, where only new rows can fill them.
//
// RDB encoding 2: the partition's chunks (core/store/chunk.h), each one string, the last one kEnd.
// The file thus never needs a second copy of a partition in memory. A change of the chunks' form
// raises kEncodingVersion.
//
// A partition gets a new incarnation whenever rdb_load or HET.TABLE CREATE brings it to life; the
// incarnation is never saved or replicated, so clients see by it that a partition may have lost
// what they had sent.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "het_tf/core/store/partition.h"
#include "het_tf/ps/module/redis_api.h"

namespace het::module {

constexpr char kTypeName[] = "het-partn";  // the API wants nine characters
constexpr int kEncodingVersion = 2;

// What all partitions of this process hold together.
struct Totals {
  size_t held = 0;  // rows that clients hold and are told of
  size_t told = 0;  // rows that they were told, by the partitions that are here
  size_t told_resets = 0;
  uint64_t partitions = 0;
  uint64_t tables = 0;
  uint64_t rows = 0;
  uint64_t bytes = 0;
  uint64_t clients = 0;
};

// Bytes that a partition takes, its clients included.
size_t MemoryOf(const Partition& partition);
size_t RowsOf(const Partition& partition);

// Tells the server about the type. False when it refuses.
bool RegisterType(RedisModuleCtx* ctx);

// Where a partition came to life. Another command may have moved it since (RENAME, SWAPDB): whoever
// opens the key must compare.
struct Place {
  std::string key;
  int db = 0;
};

// Puts a new partition into `key`, which is empty and open for writing. Throws std::bad_alloc.
void SetNewPartition(RedisModuleKey* key, const PartitionId& id, Place place);

// The partition in `key`; null when it holds something else.
Partition* GetPartition(RedisModuleKey* key);

Totals SumTotals();
std::vector<std::pair<const Partition*, Place>> AllPartitions();

}  // namespace het::module
