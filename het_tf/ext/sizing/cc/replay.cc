#include "het_tf/ext/sizing/cc/replay.h"

#include <algorithm>
#include <deque>

#include "het_tf/core/base/cpu_seconds.h"
#include "het_tf/core/plan/row_ops.h"
#include "het_tf/core/wire/layout.h"
#include "het_tf/ext/streams/cc/next_uses.h"

namespace het {
namespace {

// No row is swept, so the time does not matter; a fixed one makes runs equal.
uint32_t NoTime() { return 1; }

void Subtract(Counters* from, const Counters& what) {
#define HET_SUBTRACT(name, help) from->name -= what.name;
  HET_COUNTERS(HET_SUBTRACT)
#undef HET_SUBTRACT
}

void Add(Counters* to, const Counters& what) {
#define HET_ADD(name, help) to->name += what.name;
  HET_COUNTERS(HET_ADD)
#undef HET_ADD
  for (size_t i = 0; i < std::size(to->lag_histogram); ++i) to->lag_histogram[i] += what.lag_histogram[i];
}

Span<const OthersKeys> View(const Vector<OthersKeys>& keys) { return {keys.data(), keys.size()}; }

}  // namespace

struct Replay::Worker {
  Worker(std::unique_ptr<ReplayNetwork> carrier, uint32_t at)
      : network(std::move(carrier)), client(network.get()), number(at) {}

  std::unique_ptr<ReplayNetwork> network;
  Client client;
  const size_t number;
  ReplayBatch batch;  // this step's
  NextUses uses;
  std::deque<std::unique_ptr<ReplayBatch>> planned;  // this step's and the next ones, oldest first
  std::deque<std::unique_ptr<GlobalStep>> global;  // where rows travel on demand: this step and the next ones
  OthersUse use;                                   // of them
  uint64_t token = 0;

  // Whether the call had to wait for the store.
  template <typename Call>
  Status Waiting(uint64_t* waiting, const Call& call) {
    network->Arrive();
    const uint64_t before = network->traffic().round_trips;
    HET_RETURN_IF_ERROR(call());
    *waiting += network->traffic().round_trips != before;
    return Status();
  }
};

Replay::Replay(ReplayStream stream, ReplaySettings settings, ReplayWatcher* watcher)
    : stream_(std::move(stream)),
      settings_(std::move(settings)),
      watcher_(watcher),
      service_(settings_.partitions, 0, NoTime),
      pool_(1) {}

Replay::~Replay() = default;

Status Replay::Check() const {
  if (settings_.warm_steps < Steps()) return Status();
  return InvalidArgument("the stream has " + std::to_string(stream_.batches) + " batches: with " +
                         std::to_string(settings_.workers) + " workers these are " + std::to_string(Steps()) +
                         " steps, of which " + std::to_string(settings_.warm_steps) +
                         " warm up and none is left to count");
}

Status Replay::MakeRows(Span<const Key> keys) {
  HET_RETURN_IF_ERROR(service_.CreateTable(settings_.schema));
  const TableLayout layout = Layout(service_.id(0)).OfTable(settings_.schema->id());
  for (const Key key : keys) {
    const uint64_t hash = layout.Hash(key);
    service_.WithPartition(layout.Of(hash), [&](Partition& partition) {
      Shard* shard = partition.Find(settings_.schema->id());
      bool created = false;
      const uint32_t row = shard->FindOrCreate(key, hash, &created);
      shard->rows().meta(row).clock = 1;
      std::fill_n(shard->Edit(row), settings_.schema->dim(), 1.0f);
      shard->Set(row);
    });
  }
  return Status();
}

Status Replay::AddWorkers() {
  const SyncPolicy sync = settings_.cache.sync();
  exact_ = sync.Exact();
  if (settings_.on_demand) ahead_ = exact_ ? 1 : 1 + static_cast<size_t>(sync.subscribes);
  for (uint32_t w = 0; w < settings_.workers; ++w) {
    workers_.push_back(std::make_unique<Worker>(watcher_->Network(&service_, settings_.shards), w));
    Client& client = workers_.back()->client;
    CacheConfig cache = settings_.cache;
    cache.push_max_age.reset();  // steps of a replay take no time
    HET_RETURN_IF_ERROR(client.AddTable(settings_.schema, cache));
    watcher_->Begin(workers_.back()->network.get(), &client);
  }
  return Status();
}

Result<ReplayOutcome> Replay::Run() {
  HET_RETURN_IF_ERROR(Check());
  HET_RETURN_IF_ERROR(service_.CreateTable(settings_.schema));
  HET_RETURN_IF_ERROR(AddWorkers());
  ReplayOutcome before;
  for (size_t step = 0; step < Steps(); ++step) {
    if (step == settings_.warm_steps) {
      before = Sum();
      watcher_->BeginCounting();
    }
    HET_RETURN_IF_ERROR(Step(step));
  }
  ReplayOutcome outcome = Sum();
  outcome.steps = Steps() - settings_.warm_steps;
  Subtract(&outcome.counters, before.counters);
  outcome.traffic -= before.traffic;
  outcome.waiting_reads -= before.waiting_reads;
  outcome.waiting_writes -= before.waiting_writes;
  outcome.client_seconds -= before.client_seconds;
  outcome.store_seconds -= before.store_seconds;
  // Unsent updates stay where they are; but what is on its way arrives.
  Drain();
  watcher_->End();
  for (uint32_t p = 0; p < settings_.partitions; ++p) {
    service_.WithPartition(p, [&](Partition& partition) {
      outcome.store_rows += partition.Find(settings_.schema->id())->rows().size();
      outcome.store_bytes += partition.bytes() + partition.soft_bytes() + sizeof(Shard);
    });
  }
  return outcome;
}

ReplayOutcome Replay::Sum() const {
  ReplayOutcome sum;
  for (const auto& worker : workers_) {
    const uint64_t table = settings_.schema->id();
    const TableCache& cache = *worker->client.cache(table);
    Add(&sum.counters, worker->client.Stats(table));
    sum.traffic += worker->network->traffic();
    sum.store_seconds += worker->network->store_seconds();
    sum.cached_rows += cache.marks().resident();
    sum.unsent_rows += cache.unsent().keys();
  }
  sum.evictions = sum.counters.evictions;
  sum.client_seconds = seconds_ - sum.store_seconds;
  sum.waiting_reads = waiting_reads_;
  sum.waiting_writes = waiting_writes_;
  return sum;
}

Status Replay::Step(size_t step) {
  for (auto& worker : workers_) HET_RETURN_IF_ERROR(Read(worker.get(), step));
  for (auto& worker : workers_) Foresee(worker.get(), step);
  for (auto& worker : workers_) HET_RETURN_IF_ERROR(Write(worker.get()));
  watcher_->EndStep();
  return Status();
}

void Replay::Drain() {
  for (const auto& worker : workers_) {
    while (worker->network->on_the_way() || worker->client.Busy()) {
      worker->network->Arrive();
      worker->client.Progress(0);
    }
  }
}

void Replay::Build(size_t number, ReplayBatch* batch) {
  batch->keys.clear();
  stream_.append(number, &batch->keys);
  const CpuSeconds cpu(&seconds_);
  const FeatureIds feature{0, Span<const int64_t>(batch->keys.data(), batch->keys.size()), std::nullopt};
  const uint64_t table = settings_.schema->id();
  batch->plan.Build({&feature, 1}, {&table, 1}, service_.id(0), &pool_);
}

void Replay::Next(Worker* worker, size_t step) {
  const auto build = [&](size_t of_step, ReplayBatch* batch) {
    Build(of_step * settings_.workers + worker->number, batch);
  };
  if (settings_.window == 0) return build(step, &worker->batch);
  while (worker->planned.size() <= settings_.window && step + worker->planned.size() < Steps()) {
    worker->planned.push_back(std::make_unique<ReplayBatch>());
    ReplayBatch* const batch = worker->planned.back().get();
    build(step + worker->planned.size() - 1, batch);
    batch->number = worker->uses.Add(batch->plan, {settings_.schema->id()}, &batch->next);
  }
  for (const NextUses::Late& late : worker->uses.TakeLate()) {
    worker->client.SetNextUse(late.table, late.key, late.hash, late.number);
  }
  worker->uses.End(worker->planned.front()->number);
  std::swap(worker->batch, *worker->planned.front());
  worker->planned.pop_front();
}

void Replay::Foresee(Worker* worker, size_t step) {
  if (!settings_.on_demand) return;
  if (step > 0) worker->global.pop_front();
  while (worker->global.size() <= ahead_)
    worker->global.push_back(Others(*worker, step + worker->global.size()));
  worker->use = OthersUse();
  worker->use.exact = exact_;
  if (exact_) worker->use.outdated = View(worker->global.front()->outdated());
  if (worker->global.back() != nullptr) worker->use.wanted = View(worker->global.back()->others());
}

std::unique_ptr<GlobalStep> Replay::Others(const Worker& worker, size_t step) {
  if (step >= Steps()) return nullptr;
  std::vector<Key> keys;
  std::vector<int64_t> ends;
  for (uint32_t w = 0; w < settings_.workers; ++w) {
    stream_.append(step * settings_.workers + w, &keys);
    ends.push_back(static_cast<int64_t>(keys.size()));
  }
  const FeatureIds feature{0, Span<const int64_t>(keys.data(), keys.size()), std::nullopt};
  const GlobalStep::Ids all{
      {&feature, 1}, {{ends.data(), ends.size()}}, step + 1, static_cast<uint32_t>(worker.number), false};
  return std::make_unique<GlobalStep>(all, std::vector<uint64_t>{settings_.schema->id()}, service_.id(0),
                                      &scratch_);
}

Status Replay::Read(Worker* worker, size_t step) {
  Next(worker, step);
  BatchPlan& plan = worker->batch.plan;
  CachedRead read;
  read.follows = settings_.on_demand && exact_;
  read.planned = worker->batch.number;
  read.values.resize(plan.entries());
  for (const BatchPlan::Group& group : plan.groups()) {
    if (group.entries == 0) continue;
    read.parts.push_back({settings_.schema->id(), group.partition, group.uniques, plan.keys(group),
                          plan.hashes(group), plan.rows(group), read.values.data() + group.first,
                          read.planned == 0 ? nullptr : worker->batch.next.data() + group.first});
  }
  {
    const CpuSeconds cpu(&seconds_);
    HET_RETURN_IF_ERROR(
        worker->Waiting(&waiting_reads_, [&] { return worker->client.Read(&read, ++worker->token); }));
    op_.MoveRows(plan, read.values, settings_.schema->dim());
  }
  return watcher_->SeeRead(worker->batch, read.values);
}

void ReplayOp::MoveRows(const BatchPlan& plan, const Vector<const float*>& rows, size_t dim) {
  const uint8_t active = 1;
  features_.resize(plan.entries() * dim);
  float* const feature = features_.data();
  const Span<float* const> out(&feature, 1);
  const float* const gradient = feature;
  for (const BatchPlan::Group& group : plan.groups()) {
    if (group.entries == 0) continue;
    CopyToFeatures(plan, group, rows.data() + group.first, dim, out);
    sums_.resize(group.uniques * dim);
    touched_.resize(group.uniques);
    SumGroup(plan, group, {&gradient, 1}, &active, dim, sums_.data(), touched_.data());
  }
}

void ReplayOp::FillSums(size_t rows, size_t dim, bool ones) {
  touched_.assign(rows, 1);
  sums_.assign(rows * dim, -1.0f);
  if (ones) return;
  for (float& sum : sums_) {
    noise_ = noise_ * 6364136223846793005 + 1442695040888963407;
    sum = static_cast<float>(static_cast<int64_t>(noise_)) * 0x1p-63f;
  }
}

Status Replay::Write(Worker* worker) {
  BatchPlan& plan = worker->batch.plan;
  const size_t dim = settings_.schema->dim();
  size_t uniques = 0;
  for (const BatchPlan::Group& group : plan.groups()) uniques += group.uniques;
  op_.FillSums(uniques, dim, settings_.ones);
  CachedWrite write;
  size_t at = 0;
  for (const BatchPlan::Group& group : plan.groups()) {
    if (group.entries == 0) continue;
    write.parts.push_back({settings_.schema->id(), group.partition, group.uniques, plan.keys(group),
                           plan.hashes(group), plan.rows(group), op_.sums() + at * dim, op_.touched() + at,
                           1.0f});
    at += group.uniques;
  }
  if (settings_.on_demand) write.others = &worker->use;
  watcher_->SeeWrite(worker->number, worker->batch, worker->use.wanted);
  {
    const CpuSeconds cpu(&seconds_);
    HET_RETURN_IF_ERROR(worker->Waiting(&waiting_writes_, [&] {
      worker->client.EndLookup(worker->token);
      return worker->client.Write(&write, worker->token, &pool_);
    }));
  }
  watcher_->EndWrite(worker->number);
  return Status();
}

}  // namespace het
