#include "het_tf/ext/gpu/cc/device_client.h"

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
  to_.tables->Add(schema, config, lines);
  return Status();
}

Status DeviceClient::Check(uint64_t table) const {
  const TableCache* const cache = to_.tables->Find(table);
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
  Asker asker(op.get(), to_.subscriptions);
  rows.Classify(*to_.tables, &asker);
  asker.Ask(&to_.exchange->sessions());
  return op;
}

Status DeviceClient::Read(DeviceRead* read, bool training) {
  const std::unique_ptr<ReadOp> op = BeginRead(read, training);
  if (op->done() && to_.subscriptions->asking()) to_.waiter->Progress();  // as Client::Read
  return to_.reader->Await(op.get());
}

Status DeviceClient::Push(const DevicePush& push) {
  for (const DevicePush::Part& part : push.parts) HET_RETURN_IF_ERROR(Check(part.table));
  Take(push);
  try {
    to_.waiter->Progress();
  } catch (const std::bad_alloc&) {  // the updates are taken, and go out with the next call
  }
  return Status();
}

Status DeviceClient::Wait(uint64_t of_step) {
  HET_RETURN_IF_ERROR(to_.exchange->fatal());
  auto to_wait_for = [this](const TablePush& push, bool of_this_step) {
    const TableCache& cache = to_.tables->at(push.schema->id());
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
  const auto& sessions = to_.exchange->sessions();
  const auto wait = [&] {
    return to_.waiter->Until([&] { return std::none_of(sessions.begin(), sessions.end(), unapplied); },
                             "a push");
  };
  HET_RETURN_IF_ERROR(wait());
  HET_RETURN_IF_ERROR(to_.waiter->UntilKeptFit());
  // A partition may have got a new incarnation meanwhile, with an earlier state.
  return wait();
}

void DeviceClient::Take(const DevicePush& push) {
  Vector<Frames> made(to_.tables->partitions());
  for (const DevicePush::Part& part : push.parts) Sort(part, to_.tables->at(part.table), &made);
  // If memory ends in here, numbered frames stay empty, and that changes nothing.
  std::vector<std::pair<PushFrame*, PushFrame*>> numbered;
  for (uint32_t p = 0; p < made.size(); ++p) {
    for (PushFrame& frame : made[p].frames) numbered.emplace_back(to_.pushes->NewFrame(p), &frame);
  }
  for (auto& [frame, content] : numbered) {
    frame->tables.swap(content->tables);
    for (TablePush& push : frame->tables) push.left = frame->notified_ack == 0 ? 0 : push.left;
  }
  for (const DevicePush::Part& part : push.parts) {
    Counters& counters = to_.tables->at(part.table).counters();
    (part.evicted ? counters.evict_push : counters.bound_push) += part.n;
  }
}

// Adds the rows of a part to the frames of their partitions.
void DeviceClient::Sort(const DevicePush::Part& part, const TableCache& cache, Vector<Frames>* made) const {
  const Optimizer& optimizer = cache.schema()->optimizer();
  const size_t most = to_.pushes->max_frame_bytes();
  const size_t row_bytes = PushBuilder::RowBytes(cache);
  std::vector<Vector<uint32_t>> rows(made->size());
  for (uint32_t i = 0; i < part.n; ++i) rows[to_.tables->PartitionOf(cache, part.keys[i])].push_back(i);
  for (uint32_t p = 0; p < rows.size(); ++p) {
    auto& [frames, bytes] = (*made)[p];
    for (size_t begin = 0, end = 0; begin < rows[p].size(); begin = end) {
      if (frames.empty() || bytes + row_bytes > most) {
        frames.emplace_back();
        bytes = 0;
      }
      const size_t fit = most > bytes ? (most - bytes) / row_bytes : 0;
      end = begin + std::clamp<size_t>(fit, 1, rows[p].size() - begin);
      TablePush& push = *frames.back().Add(cache.schema(), RowFormat::kFloat32, end - begin);
      if (part.evicted) push.left = static_cast<uint32_t>(end - begin);
      Writer updates(&push.rows);
      for (size_t at = begin; at < end; ++at) {
        const uint32_t i = rows[p][at];
        push.keys.push_back(part.keys[i]);
        push.ticks.push_back(part.ticks[i]);
        push.clocks.push_back(part.clocks[i]);
        updates.Raw(part.updates + i * optimizer.row_floats() + optimizer.wire_begin(),
                    optimizer.wire_floats() * sizeof(float));
      }
      bytes += (end - begin) * row_bytes;
    }
  }
}

}  // namespace het
