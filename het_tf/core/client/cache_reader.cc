#include "het_tf/core/client/cache_reader.h"

#include <algorithm>
#include <utility>

#include "het_tf/core/client/asker.h"
#include "het_tf/core/client/row_sink.h"

namespace het {

std::unique_ptr<ReadOp> CacheReader::Begin(CachedRead* read, uint64_t step) {
  auto op = std::make_unique<ReadOp>();
  op->read = read;
  op->step = step;
  for (const CachedRead::Part& part : read->parts) {
    const TableCache& cache = tables_->at(part.table);
    if (cache.device() == nullptr) continue;
    op->error = FailedPrecondition("table '" + cache.schema().spec().name +
                                   "' is cached on a device; use ReadForDevice and PushForDevice");
  }
  if (!op->error.ok()) return op;
  if (op->training()) {
    op->sink = std::make_unique<LineSink>(op.get());
  } else {
    op->sink = std::make_unique<PrivateSink>(op.get());
  }
  Classify(op.get());
  return op;
}

void CacheReader::Classify(ReadOp* op) {
  Asker asker(op, subscriptions_);
  for (CachedRead::Part& part : op->read->parts) {
    TableCache& cache = tables_->at(part.table);
    if (op->training()) {
      if (op->step != ReadOp::kNoLookup) cache.BeginLookup(op->step);
      if (op->waiting.empty() || op->waiting.back().first != &cache) {
        op->waiting.emplace_back(&cache, cache.BeginWaiting(op->step));
      }
    } else {
      op->reading.push_back(&cache);
      cache.BeginReading();
    }
    cache.lines().FindBatch(part.keys, part.hashes, part.uniques, part.rows);
    for (size_t u = 0; u < part.uniques; ++u) {
      const size_t next = u + TableCache::kLinesAhead;
      if (next < part.uniques && part.rows[next] != kNoRow) {
        cache.PrefetchState(part.rows[next]);
        if (op->training()) cache.PrefetchTouch(part.rows[next]);
      }
      asker.Key(&cache, part.partition, part.keys[u], part.rows[u]);
    }
    if (!op->training()) continue;
    cache.counters().reads += part.uniques;
    cache.counters().hits +=
        part.uniques - static_cast<size_t>(std::count(part.rows, part.rows + part.uniques, kNoRow));
  }
  asker.Ask(&exchange_->sessions());
}

Status CacheReader::Finish(ReadOp* op) {
  op->Detach();
  op->sink.reset();
  const bool complete = op->error.ok() && op->open_parts == 0;
  if (complete && op->read != nullptr) FillIn(op);  // null: for a device
  op->LetGo();
  if (complete) return Status();
  return op->error.ok() ? Status(Code::kCancelled, "the read was abandoned") : op->error;
}

void CacheReader::FillIn(ReadOp* op) {
  for (CachedRead::Part& part : op->read->parts) {
    TableCache& cache = tables_->at(part.table);
    const RowStore& lines = cache.lines();
    if (op->read->planned != 0) cache.set_planned(op->read->planned);
    for (size_t u = 0; u < part.uniques; ++u) {
      uint32_t& line = part.rows[u];
      if (line == kNoRow) line = lines.Find(part.keys[u], part.hashes[u]);
      if (part.next_use != nullptr && line != kNoRow) cache.SetNextUse(line, part.next_use[u]);
      if (line != kNoRow) {
        part.values[u] = lines.data(line);
        continue;
      }
      auto& own = op->read->private_rows;
      own.push_back(std::move(op->fetched.find({&cache, part.keys[u]})->second));
      part.values[u] = own.back().data();
    }
  }
}

Status CacheReader::Await(ReadOp* op) {
  const Status waited = waiter_->Until([op] { return op->done(); }, "a lookup");
  if (!waited.ok() && op->error.ok()) op->error = waited;
  return Finish(op);
}

}  // namespace het
