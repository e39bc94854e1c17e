#include "het_tf/core/client/cache_reader.h"

#include <utility>

#include "het_tf/core/client/asker.h"
#include "het_tf/core/client/row_sink.h"

namespace het {

std::unique_ptr<ReadOp> CacheReader::Begin(CachedRead* read, uint64_t step) {
  auto op = std::make_unique<ReadOp>();
  op->read = read;
  for (const CachedRead::Part& part : read->parts) {
    const TableCache& cache = tables_->at(part.table);
    if (cache.device() == nullptr) continue;
    op->error = FailedPrecondition("table '" + cache.schema()->spec().name +
                                   "' is cached on a device; use DeviceClient");
  }
  if (!op->error.ok()) return op;
  std::unique_ptr<CacheSink> sink;
  if (step == 0) {
    sink = std::make_unique<PrivateSink>(tables_);
  } else {
    sink = std::make_unique<LineSink>(tables_, step);
  }
  CacheSink& rows = *sink;
  op->sink = std::move(sink);
  Asker asker(op.get(), subscriptions_);
  rows.Classify(*read, &asker);
  asker.Ask(&exchange_->sessions());
  return op;
}

Status CacheReader::Await(ReadOp* op) {
  const Status waited = waiter_->Until([op] { return op->done(); }, "a lookup");
  if (!waited.ok() && op->error.ok()) op->error = waited;
  op->Detach();
  if (op->error.ok() && op->read != nullptr) op->sink->FillIn(op->read);
  op->sink.reset();
  return op->error;
}

}  // namespace het
