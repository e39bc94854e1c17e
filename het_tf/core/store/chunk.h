// A partition as a sequence of chunks: what it looks like in a dump, in a rewritten log, in a
// checkpoint.
//
// A partition may be larger than any buffer one wants to hold a second time, so it is written and
// read piece by piece; no chunk is larger than kMaxChunkBytes (unless a single table description
// is). Every chunk stands for itself: it says what it is, and the rows name their table.
//
//   chunk      u32 magic "HETC" | u8 version 2 | u8 kind | u16 0 | body
//   kHead      u32 index | u32 count | u64 hash_seed               which partition this is
//   kTable     u64 epoch | i64 clock floor | the table's description with its limits as JSON, to the end of
//              the chunk (schema.h)
//   kRows      u64 table id | u32 floats a row | u32 rows, then each:
//                i64 key | i64 clock | u32 last_used | u16 count | floats (fp32): value and slots
//   kClients   clients, to the end of the chunk: u64 high | u64 low | u64 last_seq | u32 time
//   kEnd       nothing: a sequence that ends without it was cut off
//   kSet       as kRows; for LoadChunk alone
//   kRemove    u64 table id | keys, to the end of the chunk: i64; for LoadChunk alone
//   kForget    clients, to the end of the chunk: u64 high | u64 low; for LoadChunk alone
//   kEpoch     u64 table id | u64 epoch; for LoadChunk alone
//   kLoading   u32 since | u32 until | the loader's name, to the end of the chunk
//
// All integers are little-endian. A whole partition is kHead, every kTable, every kRows, every
// kClients, kLoading if there is a mark, kEnd. The clients come last because rows that were loaded
// from elsewhere make every last_seq a lie: loading rows forgets the clients, and a complete
// sequence names them afterwards. The incarnation is in no chunk.
#pragma once

#include <memory>

#include "het_tf/core/store/partition.h"
#include "het_tf/core/store/table_store.h"

namespace het {

constexpr size_t kMaxChunkBytes = size_t{16} << 20;

// Where a scan of a partition's rows stands; value-initialised: at the beginning. Rows keep their
// numbers, so a position stays good while rows are added; a table that was dropped meanwhile is
// skipped.
struct ScanPosition {
  uint64_t table = 0;
  uint32_t row = 0;
};

// Overwrites *chunk with a kRows chunk of at most `max_rows` rows of one table and `max_bytes`
// bytes (but at least one row), and moves on. *chunk is empty when there is no row any more. False:
// nothing is left behind this chunk, and the position is at the beginning again.
bool ScanRows(const Partition& partition, ScanPosition* at, size_t max_rows, size_t max_bytes, Bytes* chunk);

// The chunks of a partition, which must not change meanwhile.
class ChunkWriter {
 public:
  explicit ChunkWriter(const Partition& partition, size_t max_bytes = kMaxChunkBytes)
      : partition_(partition), max_bytes_(max_bytes), table_(partition.shards().begin()) {}

  // Overwrites *chunk with the next chunk; false when kEnd has been written. Throws std::bad_alloc.
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
  // `incarnation`: of the partition that comes to life.
  explicit ChunkReader(uint64_t incarnation) : incarnation_(incarnation) {}

  // InvalidArgument for what ChunkWriter cannot have written at this place. Throws std::bad_alloc.
  // After either the reader is of no use any more.
  Status Add(Span<const uint8_t> chunk);
  // Clocks so far that were out of range, and are the last one now.
  size_t clamped() const { return clamped_; }
  // kEnd has been read.
  bool complete() const { return complete_; }
  std::unique_ptr<Partition> Take() { return std::move(partition_); }

 private:
  uint64_t incarnation_;
  std::unique_ptr<Partition> partition_;
  size_t clamped_ = 0;
  bool complete_ = false;
};

// What loading a chunk came to.
struct Loaded {
  size_t rows = 0;     // that were loaded, set, or removed
  size_t clamped = 0;  // clocks that were out of range, and are the last one now
};

// Adds one chunk to a partition that lives: a table (as CreateTable does), rows (new ones, or in
// the place of those with the same keys; the clients are forgotten), clients. kHead is compared,
// kEnd does nothing. kSet is what a user does to rows by hand: each gets the given content and one
// tick more than it had, and the clients go on. kRemove raises the clock floor, kForget is for
// clients that were not heard of any more. `epoch`: a random number that the partition's owner
// draws; the table of a kRows chunk gets it, since only so do caches notice a loaded row whose
// clock is, by chance, the one that they have. 0: this is a copy, which gets the owner's number by
// a chunk of kEpoch. An error names what does not fit and changes nothing; nor does std::bad_alloc,
// but for a kClients chunk, of which a part may have been taken.
Status LoadChunk(Span<const uint8_t> chunk, Partition* partition, Loaded* loaded = nullptr,
                 uint64_t epoch = 0);

// Whether loading it can take memory: removals, and the ends of a sequence, do not.
bool TakesMemory(Span<const uint8_t> chunk);

// Chunks of kSet and kRemove, and what a chunk of kRows holds. `rows`: row_floats a key.
void EncodeSet(const TableSchema& schema, Span<const Key> keys, const float* rows, Bytes* chunk);
void EncodeRemove(const TableSchema& schema, Span<const Key> keys, Bytes* chunk);
void EncodeForget(Span<const ClientId> clients, Bytes* chunk);
// What precedes the keys, or the clients, in such a chunk takes no more.
constexpr size_t kChunkHead = 64;
// A kRows chunk of the rows at these positions of a batch.
void EncodeRows(const TableSchema& schema, const RowBatch& rows, Span<const uint32_t> which, Bytes* chunk);
// A kTable chunk that raises the clock floor of a table that is there, and leaves its limits as
// they are.
void EncodeFloor(const TableSchema& schema, Clock floor, Bytes* chunk);
// A kSet chunk says when: its sender does not know the owner's time, so the owner writes it in
// before it loads the chunk and hands it on. False, and nothing is done, for any other chunk.
bool StampSet(Span<const uint8_t> chunk, uint32_t now, Bytes* stamped);
// What a copy has to load behind `chunk`, which its owner loaded with `epoch`. False, and nothing
// is done, where there is nothing of the kind: for any chunk but kRows.
bool EncodeEpoch(Span<const uint8_t> chunk, uint64_t epoch, Bytes* behind);
// Appends the rows to *rows if they are `schema`'s; another table's are left out. The batch has the
// schema's widths, and room for what was asked of HET.SCAN.
Status DecodeRows(Span<const uint8_t> chunk, const TableSchema& schema, RowBatch* rows);

}  // namespace het
