#include "het_tf/core/client/device_client.h"

#include <algorithm>
#include <utility>

#include "het_tf/core/client/asker.h"

namespace het {

Status DeviceClient::AddTable(const Schema& schema, const CacheConfig& config, DeviceLines* lines) {
  const std::string table = "table '" + schema->spec().name + "'";
  if (lines == nullptr) return InvalidArgument(table + " needs a cache on a device");
  if (config.wire != RowFormat::kFloat32) {
    return InvalidArgument(table + " has wire '" + RowFormatName(config.wire) +
                           "' and a cache on a device, whose rows travel as float32");
  }
  tables_->Add(schema, config, lines);
  return Status();
}

Status DeviceClient::Check(uint64_t table) const {
  const TableCache* const cache = tables_->Find(table);
  if (cache == nullptr)
    return FailedPrecondition("a table that is cached on a device was dropped; create it again");
  if (cache->device() != nullptr) return Status();
  return FailedPrecondition("table '" + cache->schema()->spec().name +
                            "' is not cached on a device; use Read and Write");
}

std::unique_ptr<ReadOp> DeviceClient::BeginRead(DeviceRead* read, bool training) {
  auto op = std::make_unique<ReadOp>();
  for (const DeviceRead::Part& part : read->parts) {
    op->error = Check(part.table);
    if (!op->error.ok()) return op;
  }
  auto sink = std::make_unique<DeviceSink>(&reads_, op.get(), *read, training);
  DeviceSink& rows = *sink;
  op->sink = std::move(sink);
  Asker asker(op.get(), subscriptions_);
  rows.Classify(*tables_, &asker);
  asker.Ask(&exchange_->sessions());
  return op;
}

Status DeviceClient::Read(DeviceRead* read, bool training) {
  const std::unique_ptr<ReadOp> op = BeginRead(read, training);
  if (op->done() && subscriptions_->asking()) waiter_->Progress();  // as Client::Read
  return reader_->Await(op.get());
}

Status DeviceClient::Push(const DevicePush& push) {
  for (const DevicePush::Part& part : push.parts) HET_RETURN_IF_ERROR(Check(part.table));
  pushes_->OfDevice(push);
  try {
    waiter_->Progress();
  } catch (const std::bad_alloc&) {  // the updates are taken, and go out with the next call
  }
  return Status();
}

Status DeviceClient::Wait(uint64_t of_step) {
  HET_RETURN_IF_ERROR(exchange_->fatal());
  auto to_wait_for = [this](const TablePush& push, bool of_this_step) {
    const TableCache& cache = tables_->at(push.schema->id());
    const SyncPolicy sync = cache.policy().sync();
    if (cache.device() == nullptr || !sync.bounds_pushes() || push.keys.empty()) return false;
    if (!of_this_step) return true;
    // Once earlier frames are applied, only this step's ticks of its rows are unapplied.
    for (size_t i = 0; i < push.keys.size(); ++i) {
      if (sync.MustWait(push.ticks[i], push.clocks[i])) return true;
    }
    return false;
  };
  auto unapplied = [&](const Session& session) {
    return session.log().AnyUnapplied([&](const PushFrame& frame) {
      return std::any_of(frame.tables.begin(), frame.tables.end(),
                         [&](const TablePush& push) { return to_wait_for(push, frame.number >= of_step); });
    });
  };
  const auto& sessions = exchange_->sessions();
  const auto wait = [&] {
    return waiter_->Until([&] { return std::none_of(sessions.begin(), sessions.end(), unapplied); },
                          "a push");
  };
  HET_RETURN_IF_ERROR(wait());
  HET_RETURN_IF_ERROR(waiter_->UntilKeptFit());
  // A partition may have got a new incarnation meanwhile, with an earlier state.
  return wait();
}

}  // namespace het
