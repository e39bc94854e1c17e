// What a read asks, and the read itself. What is special about its kind (a lookup, a read without training, a
// read for a device) its sink knows (row_sink.h).
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

// What one read asks about rows of one table in one partition. The place of a row is its number among the
// rows of the read: by it the sink finds the row again, without its key. One without rows asks what has
// moved.
struct TableRead {
  TableCache* cache;
  Vector<Key> checks{};
  Vector<Clock> clocks{};
  Vector<uint32_t> check_at{};  // places
  Vector<Key> fetches{};
  Vector<uint32_t> fetch_at{};
  // The newest lookup when the request was sent that subscribes to these rows.
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
  bool empty() const { return checks.empty() && fetches.empty(); }
  // All of them may come back as rows.
  size_t rows() const { return checks.size() + fetches.size(); }
  size_t most_row_bytes() const {
    const TableSchema& schema = *cache->schema();
    return MostAnswerBytes(cache->policy().row_format(), schema.dim(), schema.row_floats());
  }
  // The last `rows` of the questions, or all, become another read's.
  TableRead TakeLast(size_t rows);
};

// What one read asks of one partition.
struct PartitionRead {
  ReadOp* op = nullptr;  // null: nobody waits for the answer any more
  uint32_t partition = 0;
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

// A read on its way. Its end takes it from everything that knows it: answers that still come are
// for nobody, and lines may leave. Ends before its client does.
struct ReadOp {
  ReadOp();
  ~ReadOp();
  ReadOp(const ReadOp&) = delete;
  ReadOp& operator=(const ReadOp&) = delete;

  CachedRead* read = nullptr;  // null: nobody wants the rows yet
  bool early = false;          // its lookup will come (early_reads.h), and tell what is wrong
  size_t open_parts = 0;
  Status error;
  std::vector<PartitionReadPtr> parts;
  std::unique_ptr<RowSink> sink;  // lines stay for the read as long as it is there

  bool done() const { return open_parts == 0 || !error.ok(); }
  // Nothing that is on its way is for this read any more.
  void Detach();
};

}  // namespace het
