// What a read asks, and the read itself.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "het_tf/core/cache/table_cache.h"
#include "het_tf/core/client/device_rows.h"

namespace het {

class RowSink;
struct CachedRead;
struct ReadOp;

// What one read asks about rows of one table in one partition.
struct TableRead {
  TableCache* cache;
  Vector<Key> checks{};
  Vector<Clock> clocks{};  // of the checks
  Vector<Key> fetches{};
  // Rows were read without a check: the next lookup needs to know which of them have moved.
  bool trusts = false;
  // Rows are for a device: where they go, and the positions of checks and fetches there.
  DeviceRead::Part* device = nullptr;
  Vector<uint32_t> check_at{};
  Vector<uint32_t> fetch_at{};
  // The request that is on its way subscribes to what it reads, and was sent during this lookup.
  std::optional<uint32_t> subscribes{};

  bool empty() const { return checks.empty() && fetches.empty(); }
  // All of them may come back as rows.
  size_t rows() const { return checks.size() + fetches.size(); }
  size_t most_row_bytes() const {
    const TableSchema& schema = cache->schema();
    return MostAnswerBytes(cache->row_format(), schema.dim(), schema.row_floats());
  }
  // The last `rows` of the questions, or all, become another read's.
  TableRead TakeLast(size_t rows);
};

// What one read asks of one partition.
struct PartitionRead {
  ReadOp* op = nullptr;  // null: nobody waits for the answer any more
  Vector<TableRead> tables;

  bool wanted() const { return op != nullptr; }
  // Nothing but what has moved: no lookup waits for the answer.
  bool question() const {
    return std::all_of(tables.begin(), tables.end(), [](const TableRead& asked) { return asked.empty(); });
  }
  // What the answer takes if all rows come.
  size_t most_bytes() const;
  // Questions that become a read of their own, whose answer takes at most so many bytes or is of one row;
  // null: so it is already.
  std::shared_ptr<PartitionRead> TakePiece(size_t most_bytes);
};
using PartitionReadPtr = std::shared_ptr<PartitionRead>;

// Rows that a read without training fetched: they do not enter the cache.
using PrivateRows = std::map<std::pair<const TableCache*, Key>, Vector<float>>;

// A read on its way. Its end takes it from everything that knows it: answers that still come are
// for nobody, and lines may leave. Ends before its client does.
struct ReadOp {
  // Of a training read that is no lookup of a step, or of one whose lookup has been.
  static constexpr uint64_t kNoLookup = ~uint64_t{0};

  ReadOp();
  ~ReadOp();
  ReadOp(const ReadOp&) = delete;
  ReadOp& operator=(const ReadOp&) = delete;

  CachedRead* read = nullptr;
  uint64_t step = 0;   // 0: no training: rows are neither admitted nor counted as used
  bool early = false;  // its lookup will come (early_reads.h), and tell what is wrong
  size_t open_parts = 0;
  Status error;
  std::vector<PartitionReadPtr> parts;
  Vector<TableCache*> reading;                       // caches that hold their lines for it (BeginReading)
  Vector<std::pair<TableCache*, uint32_t>> waiting;  // and those that hold its own (BeginWaiting)
  PrivateRows fetched;
  std::unique_ptr<RowSink> sink;

  bool training() const { return step != 0; }
  bool done() const { return open_parts == 0 || !error.ok(); }
  // Nothing that is on its way is for this read any more.
  void Detach();
  // The caller has its rows.
  void LetGo();
};

}  // namespace het
