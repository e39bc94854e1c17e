#include "het_tf/core/engine/engine.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "het_tf/core/device/device_tables.h"
#include "het_tf/core/engine/engine_call.h"
#include "het_tf/core/engine/prefetch_queue.h"
#include "het_tf/core/plan/row_ops.h"
#include "het_tf/core/plan/step.h"
#include "het_tf/core/row/any_nonzero.h"
#include "het_tf/core/store/local_store.h"
#include "het_tf/core/store/local_transport.h"

namespace het {

Status CheckIds(const BatchCall& call) {
  size_t ids = 0;
  for (const FeatureIds& feature : call.features) ids += feature.ids.size();
  if (ids <= BatchPlan::kMaxIds) return Status();
  return InvalidArgument("a lookup of " + std::to_string(ids) + " ids; at most " +
                         std::to_string(BatchPlan::kMaxIds) + " fit into one call. Use a smaller batch");
}

namespace {

// Calls that come closer after one another look after their pushes themselves.
constexpr double kQuietSeconds = 0.005;

ClientConfig EmbeddedConfig() {
  ClientConfig config;
  config.fail_out_of_memory = true;
  return config;
}

}  // namespace

Engine::Engine(std::string name, size_t threads, TimeFn time)
    : name_(std::move(name)),
      service_(std::make_unique<LocalService>(LocalService::kDefaultPartitions, 0, std::move(time))),
      store_(std::make_unique<LocalStore>(service_.get())),
      transport_(std::make_unique<LocalTransport>(service_.get())),
      pool_(std::make_unique<ThreadPool>(threads)),
      prefetches_(std::make_unique<PrefetchQueue>()),
      client_(std::make_unique<Client>(transport_.get(), EmbeddedConfig())),
      device_(std::make_unique<DeviceTables>(client_.get(), transport_->id(0))),
      background_([this] {
        Background::Pause pause = LookAfterPushes();
        ServePrefetches();
        return pause;
      }) {}

Engine::Engine(std::string name, size_t threads, std::unique_ptr<TableStore> store,
               std::unique_ptr<Transport> transport, const ClientConfig& config)
    : name_(std::move(name)),
      store_(std::move(store)),
      transport_(std::move(transport)),
      pool_(std::make_unique<ThreadPool>(threads)),
      prefetches_(std::make_unique<PrefetchQueue>()),
      client_(std::make_unique<Client>(transport_.get(), config)),
      device_(std::make_unique<DeviceTables>(client_.get(), transport_->id(0))),
      background_([this] {
        Background::Pause pause = LookAfterPushes();
        ServePrefetches();
        return pause;
      }) {}

Engine::~Engine() = default;

Background::Pause Engine::LookAfterPushes() {
  const std::unique_lock<std::mutex> lock(client_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {  // a call is at it, and may be for long
    patience_ = std::clamp(2 * patience_, kQuietSeconds, 0.1);
    return {patience_, {}};
  }
  patience_ = 0;
  asleep_ = false;
  if (calls_ != calls_seen_ && !client_->AheadOnWay()) {
    calls_seen_ = calls_;
    return {kQuietSeconds, {}};
  }
  try {
    client_->Progress(0);
    Background::Pause pause;
    if (client_->Busy()) {
      pause.seconds = client_->Due();
      transport_->Descriptors(&pause.descriptors);
    }
    asleep_ = true;
    return pause;
  } catch (const std::bad_alloc&) {  // it goes on when there is room
    return {0.1, {}};
  }
}

void Engine::SetThreads(size_t threads) {
  std::lock_guard<std::mutex> apply(apply_mutex_);
  std::unique_lock<std::shared_mutex> lock(pool_mutex_);
  if (threads != pool_->threads()) pool_ = std::make_unique<ThreadPool>(threads);
}

// --- lookup

Status Engine::Lookup(const BatchCall& call, Span<float* const> out, uint64_t* token) {
  HET_RETURN_IF_ERROR(CheckIds(call));
  const auto on_device = AllOnDevice(call);
  if (!on_device.ok()) return on_device.status();
  if (on_device.value()) return LookupThere(call, out, CallMemory(), token);
  try {
    std::unique_ptr<Step> step = NewStep();
    Status status;
    {
      std::shared_lock<std::shared_mutex> pool_lock(pool_mutex_);
      HET_RETURN_IF_ERROR(RefuseWhileLoading());
      step->Scatter(call, transport_->id(0), pool_.get());
      step->PrepareValues(call);
      const uint64_t reserved = token == nullptr ? 0 : ReserveToken();
      status = LookupDirect(call, step.get());
      if (status.ok()) status = LookupCached(call, step.get(), reserved);
      if (status.ok() && !out.empty()) GatherFeatures(call, step.get(), pool_.get(), out);
      if (status.ok() && token != nullptr) {
        *token = reserved;
        Remember(reserved, std::move(step));
      }
    }
    Recycle(std::move(step));
    return status;
  } catch (const std::bad_alloc&) {
    return OutOfMemory("a lookup");
  }
}

Status Engine::LookupDirect(const BatchCall& call, Step* step) {
  std::atomic<Table*> missing{nullptr};
  std::atomic<bool> out_of_memory{false};
  step->ForPartitions(pool_.get(), [&](uint32_t p) {
    try {
      step->plan.Unique(p);
    } catch (const std::bad_alloc&) {
      out_of_memory.store(true);
      return;
    }
    if (service_ == nullptr) return;
    service_->WithPartition(p, [&](Partition& partition) {
      for (const BatchPlan::Group& group : step->GroupsOf(p)) {
        Table& table = *call.tables[group.table];
        if (group.entries == 0 || table.options.cache) continue;
        Shard* shard = partition.Find(table.schema->id());
        if (shard == nullptr) {
          missing.store(&table);
          return;
        }
        LookupGroup(*shard, step->plan, group, step->values_of(group, table.schema->dim()));
      }
    });
  });
  if (out_of_memory.load()) throw std::bad_alloc();
  const Table* table = missing.load();
  return table == nullptr ? Status() : TableIsGone(*table);
}

Status Engine::LookupCached(const BatchCall& call, Step* step, uint64_t token) {
  if (!step->any_cached) return Status();
  const ClientCall call_of_client(this);
  CachedRead read;
  read.kind = remote() ? KindOf(call.tables, call.features) : 0;
  for (const BatchPlan::Group& group : step->plan.groups()) {
    const Table& table = *call.tables[group.table];
    if (group.entries == 0 || !table.options.cache) continue;
    if (!client_->HasTable(table.schema->id())) return TableIsGone(table);
    read.parts.push_back({table.schema->id(), group.partition, group.uniques, step->plan.keys(group),
                          step->plan.hashes(group), step->plan.rows(group), nullptr});
  }
  read.values.resize(step->plan.entries());
  const float** values = read.values.data();
  for (CachedRead::Part& part : read.parts) {
    part.values = values;
    values += part.uniques;
  }
  HET_RETURN_IF_ERROR(client_->Read(&read, token));
  // The rows of different groups are copied side by side; the client's mutex keeps the cache as it is.
  std::vector<const BatchPlan::Group*> groups;
  for (const BatchPlan::Group& group : step->plan.groups()) {
    if (group.entries != 0 && call.tables[group.table]->options.cache) groups.push_back(&group);
  }
  step->ForTasks(pool_.get(), groups.size(), [&](size_t i) {
    const size_t dim = call.tables[groups[i]->table]->schema->dim();
    CopyRows(read.parts[i].values, groups[i]->uniques, dim, step->values_of(*groups[i], dim));
  });
  return Status();
}

// --- apply

Status Engine::Apply(const BatchCall& call, const ApplyArgs& args, bool* skipped) {
  const auto on_device = AllOnDevice(call);
  if (on_device.ok() && on_device.value()) return ApplyThere(call, args, CallMemory(), skipped);
  *skipped = false;
  std::unique_ptr<Step> step;
  HET_RETURN_IF_ERROR(Consume(args.token, &step));
  std::lock_guard<std::mutex> apply_lock(apply_mutex_);
  Status status = on_device.ok() ? RefuseWhileLoading() : on_device.status();
  try {
    if (status.ok() && step == nullptr) {
      step = NewStep();
      step->Build(call, transport_->id(0), pool_.get());
    }
    if (status.ok()) status = ApplyStep(call, args, step.get(), skipped);
  } catch (const std::bad_alloc&) {
    status = OutOfMemory("HetApplyGrad");
  }
  if (!status.ok() || *skipped) Release(args.token);
  Recycle(std::move(step));
  return status;
}

Status Engine::ApplyStep(const BatchCall& call, const ApplyArgs& args, Step* step, bool* skipped) {
  step->PrepareValues(call);
  step->PrepareTouched(call);
  std::vector<uint8_t> changed(call.tables.size());  // tables that get a tick at all
  bool any_active = false;
  for (size_t f = 0; f < call.features.size(); ++f) {
    const size_t floats = call.features[f].ids.size() * call.tables[call.features[f].table]->schema->dim();
    step->active[f] = args.active.empty() ? AnyNonZero(args.gradients[f], floats) : args.active[f] != 0;
    if (!step->active[f]) continue;
    changed[call.features[f].table] = 1;
    any_active = true;
  }
  if (!any_active) {
    Release(args.token);
    return Status();
  }

  // Phase one, which may fail: sum the gradients, look at the sums, make room for new rows.
  std::atomic<bool> out_of_memory{false};
  std::atomic<Table*> missing{nullptr};
  std::atomic<const BatchPlan::Group*> non_finite{nullptr};
  step->ForPartitions(pool_.get(), [&](uint32_t p) {
    for (const BatchPlan::Group& group : step->GroupsOf(p)) {
      if (group.entries == 0) continue;
      const size_t dim = call.tables[group.table]->schema->dim();
      SumGroup(step->plan, group, args.gradients, step->active.data(), dim, step->values_of(group, dim),
               step->touched(group));
      if (!ScaleAndCheckFinite(step->values_of(group, dim), group.uniques * dim, args.scale)) {
        non_finite.store(&group);
      }
    }
    if (non_finite.load() != nullptr || service_ == nullptr) return;
    service_->WithPartition(p, [&](Partition& partition) {
      for (const BatchPlan::Group& group : step->GroupsOf(p)) {
        Table& table = *call.tables[group.table];
        if (group.entries == 0 || table.options.cache) continue;
        Shard* shard = partition.Find(table.schema->id());
        if (shard == nullptr) {
          missing.store(&table);
          return;
        }
        if (!MakeRows(shard, step->plan, group, step->touched(group))) out_of_memory.store(true);
      }
    });
  });
  Status status;
  if (const BatchPlan::Group* group = non_finite.load()) {
    if (args.non_finite == NonFinite::kSkip) {
      *skipped = true;
    } else {
      status = NonFiniteGradient(call, step, *group);
    }
  } else if (const Table* table = missing.load()) {
    status = TableIsGone(*table);
  } else if (out_of_memory.load()) {
    status = OutOfMemory("HetApplyGrad");
  }
  if (!status.ok() || *skipped) {
    UndoRows(call, step);
    return status;
  }

  // Phase two, which cannot fail in the embedded store: one tick for every key.
  const uint32_t now = service_ == nullptr ? 0 : service_->Now();
  step->ForPartitions(pool_.get(), [&](uint32_t p) {
    if (service_ == nullptr) return;
    service_->WithPartition(p, [&](Partition& partition) {
      for (const BatchPlan::Group& group : step->GroupsOf(p)) {
        Table& table = *call.tables[group.table];
        if (group.entries == 0 || table.options.cache) continue;
        Shard* shard = partition.Find(table.schema->id());
        if (shard == nullptr) continue;
        TickGroup(shard, &step->plan, group, args.learning_rates[group.table],
                  step->values_of(group, table.schema->dim()), step->touched(group), now);
        partition.RowsChanged(table.schema->id());
        partition.SweepTable(shard, now, group.uniques, nullptr);
      }
    });
  });
  status = ApplyCached(call, args, step);
  for (size_t t = 0; t < changed.size(); ++t) call.tables[t]->applies.fetch_add(changed[t]);
  return status;
}

void Engine::UndoRows(const BatchCall& call, Step* step) {
  for (const BatchPlan::Group& group : step->plan.groups()) {
    Table& table = *call.tables[group.table];
    if (group.entries == 0 || table.options.cache) continue;
    service_->WithPartition(group.partition, [&](Partition& partition) {
      Shard* shard = partition.Find(table.schema->id());
      if (shard != nullptr) DropNewRows(shard, step->plan, group, step->touched(group));
    });
  }
}

Status Engine::ApplyCached(const BatchCall& call, const ApplyArgs& args, Step* step) {
  if (!step->any_cached) return Status();
  const ClientCall call_of_client(this);
  CachedWrite write;
  for (const BatchPlan::Group& group : step->plan.groups()) {
    const Table& table = *call.tables[group.table];
    if (group.entries == 0 || !table.options.cache) continue;
    if (!client_->HasTable(table.schema->id())) return TableIsGone(table);
    write.parts.push_back({table.schema->id(), group.partition, group.uniques, step->plan.keys(group),
                           step->plan.hashes(group), step->plan.rows(group),
                           step->values_of(group, table.schema->dim()), step->touched(group),
                           args.learning_rates[group.table]});
  }
  return client_->Write(&write, args.token, pool_.get());
}

Status Engine::Flush() {
  const ClientCall call_of_client(this);
  try {
    const Status device = device_->Flush();
    const Status status = client_->Flush();
    return device.ok() ? status : device;
  } catch (const std::bad_alloc&) {
    return OutOfMemory("a flush");
  }
}

Status Engine::Refresh() {
  HET_RETURN_IF_ERROR(Flush());
  std::lock_guard<std::mutex> lock(client_mutex_);
  client_->ForgetClean();
  return Status();
}

void Engine::MarkDurable() {
  std::lock_guard<std::mutex> lock(client_mutex_);
  client_->MarkDurable();
}

}  // namespace het
