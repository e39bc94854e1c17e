// A partition as a sequence of chunks: its form in a dump, in a rewritten log, and in a checkpoint.
//
// A partition may be too large to hold twice in memory, so it is written and read in pieces; no chunk is
// larger than kMaxChunkBytes (unless a single table description is). Every chunk is self-contained: it names
// its kind and, for rows, the table.
//
//   chunk      u32 magic "HETC" | u8 version 3 | u8 kind | u16 0 | body
//   kHead      u32 index | u32 count | u64 hash_seed               the partition's identity
//   kTable     u64 epoch | i64 clock floor | the table's description with its limits as JSON, to the end of
//              the chunk (schema.h)
//   kRows      u64 table id | u24 words a row | u8 how they are stored (row/stored_format.h) | u32 rows, then
//              each: i64 key | i64 clock | u32 last_used | u16 count | words of four bytes
//   kClients   clients, to the end of the chunk: u64 high | u64 low | u64 last_seq | u32 time
//   kEnd       empty: a sequence without it was cut off
//   kSet       as kRows; only for LoadChunk
//   kRemove    u64 table id | keys, to the end of the chunk: i64; only for LoadChunk
//   kForget    clients, to the end of the chunk: u64 high | u64 low; only for LoadChunk
//   kEpoch     u64 table id | u64 epoch; only for LoadChunk
//   kValues    u64 table id | u32 dim | u32 rows | u32 format (row/row_format.h) | keys: i64 | values: dim
//              floats each, in that format; only in changes (changes.h)
//   kKeys      u64 table id | keys, to the end of the chunk: i64; only in changes
//   kLoading   u32 since | u32 until | the loader's name, to the end of the chunk
//
// All integers are little-endian. A whole partition is kHead, every kTable, every kRows, every kClients,
// kLoading if there is a mark, kEnd. The clients come last because rows loaded from elsewhere invalidate
// every last_seq: loading rows forgets the clients, and a complete sequence restores them afterwards. No
// chunk has the incarnation.
#pragma once

#include <memory>

#include "het_tf/core/store/partition.h"
#include "het_tf/core/store/table_store.h"

namespace het {

constexpr size_t kMaxChunkBytes = size_t{16} << 20;

// The position of a scan of a partition's rows; value-initialised: the beginning. Rows keep their numbers, so
// a position stays valid while rows are added; a table that is dropped meanwhile is skipped.
struct ScanPosition {
  uint64_t table = 0;
  uint32_t row = 0;
};

// Overwrites *chunk with a kRows chunk of at most `max_rows` rows of one table and `max_bytes` bytes (but at
// least one row), and moves on; *chunk is empty if no row is left. Returns false if this chunk was the last;
// the position is then at the beginning again.
bool ScanRows(const Partition& partition, ScanPosition* at, size_t max_rows, size_t max_bytes, Bytes* chunk);

// Iterates over the chunks of a partition, which must not change meanwhile.
class ChunkWriter {
 public:
  explicit ChunkWriter(const Partition& partition, size_t max_bytes = kMaxChunkBytes)
      : partition_(partition), max_bytes_(max_bytes), table_(partition.shards().begin()) {}

  // Overwrites *chunk with the next chunk. Returns false after kEnd. Throws std::bad_alloc.
  bool Next(Bytes* chunk);

 private:
  enum class Stage { kHead, kTables, kRows, kClients, kLoading, kEnd, kDone };

  void WriteTable(Bytes* chunk);
  void WriteClients(Bytes* chunk);

  const Partition& partition_;
  const size_t max_bytes_;
  Stage stage_ = Stage::kHead;
  std::map<uint64_t, std::unique_ptr<Shard>>::const_iterator table_;
  ScanPosition rows_;
  std::map<ClientId, ClientState>::const_iterator client_;
};

// Builds a partition from its chunks.
class ChunkReader {
 public:
  // `incarnation`: of the new partition.
  explicit ChunkReader(uint64_t incarnation) : incarnation_(incarnation) {}

  // InvalidArgument: ChunkWriter cannot have written this here. Throws std::bad_alloc. After either the
  // reader is unusable.
  Status Add(Span<const uint8_t> chunk);
  // Number of clocks that were out of range and set to the maximum.
  size_t clamped() const { return clamped_; }
  // Whether kEnd was read.
  bool complete() const { return complete_; }
  std::unique_ptr<Partition> Take() { return std::move(partition_); }

 private:
  uint64_t incarnation_;
  std::unique_ptr<Partition> partition_;
  size_t clamped_ = 0;
  bool complete_ = false;
};

// The result of loading a chunk.
struct Loaded {
  size_t rows = 0;     // rows loaded, set or removed
  size_t clamped = 0;  // clocks that were out of range and set to the maximum
};

// Adds one chunk to a live partition: a table (as CreateTable does), rows (new or replacing those with the
// same keys; the clients are forgotten), clients. kHead is compared, kEnd does nothing. kSet is an assignment
// by a user: each row gets the given content and age (Shard::Renew), and the clients stay. kRemove raises the
// clock floor; kForget forgets silent clients. `epoch`: a random number from the partition's owner for the
// table of a kRows chunk; without it caches would miss a loaded row that happens to have the clock of their
// copy. 0: this is a copy, which gets the owner's number by a kEpoch chunk. An error names the mismatch and
// changes nothing; nor does std::bad_alloc, except that part of a kClients chunk may have been taken.
Status LoadChunk(Span<const uint8_t> chunk, Partition* partition, Loaded* loaded = nullptr,
                 uint64_t epoch = 0);

// Whether loading the chunk can take memory: removals, and the ends of a sequence, do not.
bool TakesMemory(Span<const uint8_t> chunk);

// Encode kSet and kRemove chunks. `rows`: row_floats a key. `ages`: null for ages of 0.
void EncodeSet(const TableSchema& schema, Span<const Key> keys, const float* rows, Bytes* chunk,
               const Clock* ages = nullptr);
void EncodeRemove(const TableSchema& schema, Span<const Key> keys, Bytes* chunk);
void EncodeForget(Span<const ClientId> clients, Bytes* chunk);
// Limit on the bytes before the keys, or the clients, in such a chunk.
constexpr size_t kChunkHead = 64;
// Encodes a kRows chunk of the rows at these positions of a batch.
void EncodeRows(const TableSchema& schema, const RowBatch& rows, Span<const uint32_t> which, Bytes* chunk);
// Encodes a kTable chunk that raises the clock floor of an existing table, and keeps its limits.
void EncodeFloor(const TableSchema& schema, Clock floor, Bytes* chunk);
// Copies a kSet chunk with the time: its sender does not know the owner's time, so the owner sets it before
// it loads and replicates the chunk. Returns false, with nothing done, for any other chunk.
bool StampSet(Span<const uint8_t> chunk, uint32_t now, Bytes* stamped);
// Encodes the chunk that a copy must load after `chunk`, which its owner loaded with `epoch`. Returns false,
// with nothing done, unless it is a kRows chunk.
bool EncodeEpoch(Span<const uint8_t> chunk, uint64_t epoch, Bytes* behind);
// Appends the rows to *rows if they are `schema`'s; ignores another table's. The batch must have the schema's
// widths, and room for the COUNT of HET.SCAN.
Status DecodeRows(Span<const uint8_t> chunk, const TableSchema& schema, RowBatch* rows);

}  // namespace het
