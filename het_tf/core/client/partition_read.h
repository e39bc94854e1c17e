// A read, and its questions to partitions. The sink (row_sink.h) knows the kind of read: a lookup, a read
// without training, a read for a device.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "het_tf/core/cache/table_cache.h"
#include "het_tf/core/client/cached_rows.h"
#include "het_tf/core/wire/reply.h"

namespace het {

class RowSink;
struct ReadOp;

// One read's questions about rows of one table in one partition. A row's index in the read lets the sink find
// the row again without its key. Without rows it only asks for notifications.
struct TableRead {
  TableCache* cache;
  Vector<Key> checks{};
  Vector<Clock> clocks{};
  Vector<uint32_t> check_at{};  // indices in the read
  Vector<Key> fetches{};
  Vector<uint32_t> fetch_at{};
  // The newest lookup when the request that subscribes to these rows was sent.
  std::optional<uint32_t> subscribed_in{};

  void Check(Key key, Clock clock, uint32_t at) {
    checks.push_back(key);
    clocks.push_back(clock);
    check_at.push_back(at);
  }
  void Fetch(Key key, uint32_t at) {
    fetches.push_back(key);
    fetch_at.push_back(at);
  }
  // Returns the clock of a row that a check has brought (TableReply::refreshed_lags); 0: it does not exist.
  Clock Refreshed(uint32_t check, Clock lag) const {
    return lag == 0 ? 0
                    : static_cast<Clock>(static_cast<uint64_t>(clocks[check]) + static_cast<uint64_t>(lag));
  }
  bool empty() const { return checks.empty() && fetches.empty(); }
  // Limit on the rows that may come back.
  size_t rows() const { return checks.size() + fetches.size(); }
  size_t most_row_bytes() const {
    const TableSchema& schema = *cache->schema();
    return MostAnswerBytes(cache->policy().row_format(), schema.dim(), schema.row_floats());
  }
  // Orders the checks and the fetches by their keys. Throws std::bad_alloc with nothing changed.
  void Sort();
  // Moves the last `rows` questions, or all, to another read.
  TableRead TakeLast(size_t rows);
};

// One read's questions to one partition.
struct PartitionRead {
  ReadOp* op = nullptr;  // null: the read no longer waits for the answer
  uint32_t partition = 0;
  Vector<TableRead> tables;

  bool wanted() const { return op != nullptr; }
  // Whether it asks only for notifications: no lookup waits for the answer.
  bool question() const {
    return std::all_of(tables.begin(), tables.end(), [](const TableRead& asked) { return asked.empty(); });
  }
  // The size of the answer if all rows come.
  size_t most_bytes() const;
  // Splits off questions whose answer takes at most `most_bytes` or is one row; null: they all fit.
  std::shared_ptr<PartitionRead> TakePiece(size_t most_bytes);
};
using PartitionReadPtr = std::shared_ptr<PartitionRead>;

// A read in flight. The destructor unregisters it: later answers are ignored, and its lines may leave. It
// must end before its client.
struct ReadOp {
  ReadOp();
  ~ReadOp();
  ReadOp(const ReadOp&) = delete;
  ReadOp& operator=(const ReadOp&) = delete;

  CachedRead* read = nullptr;  // null: the caller's read is not known yet
  bool early = false;          // its lookup will come (early_reads.h), and report errors
  size_t open_parts = 0;
  Status error;
  std::vector<PartitionReadPtr> parts;
  std::unique_ptr<RowSink> sink;  // holds the read's lines while it exists

  bool done() const { return open_parts == 0 || !error.ok(); }
  // Detaches all requests in flight from this read.
  void Detach();
};

}  // namespace het
