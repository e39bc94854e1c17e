#include "het_tf/core/replay/replay.h"

#include <algorithm>
#include <deque>

#include "het_tf/core/base/cpu_seconds.h"
#include "het_tf/core/engine/next_uses.h"
#include "het_tf/core/plan/row_ops.h"
#include "het_tf/core/wire/layout.h"

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

// The client of `share` workers.
struct Replay::Host {
  Host(std::unique_ptr<ReplayNetwork> carrier, uint32_t at, const ReplaySettings& settings)
      : network(std::move(carrier)),
        client(network.get()),
        number(at),
        own(settings.share > 1 ? settings.share : 0) {}

  std::unique_ptr<ReplayNetwork> network;
  Client client;
  const size_t number;
  ReplayBatch all;  // of all its workers
  NextUses uses;
  std::deque<std::unique_ptr<ReplayBatch>> planned;  // this step's and the next ones, oldest first
  std::vector<ReplayBatch> own;                      // of each of them, where there are several
  std::deque<std::unique_ptr<GlobalStep>> global;  // where rows travel on demand: this step and the next ones
  OthersUse use;                                   // of them
  uint64_t token = 0;

  ReplayBatch* OfWorker(uint32_t i) { return own.empty() ? &all : &own[i]; }
  Span<const ReplayBatch> own_batches() const {
    return own.empty() ? Span<const ReplayBatch>(&all, 1) : Span<const ReplayBatch>(own.data(), own.size());
  }
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
  if (settings_.share == 0 || settings_.workers % settings_.share != 0) {
    return InvalidArgument(std::to_string(settings_.share) + " workers share a cache, of " +
                           std::to_string(settings_.workers) + ": give a number that divides those");
  }
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
      RowStore& rows = shard->rows();
      const uint32_t row = shard->FindOrCreate(key, hash, &created);
      rows.meta(row).clock = 1;
      std::fill_n(rows.data(row), settings_.schema->dim(), 1.0f);
    });
  }
  return Status();
}

Status Replay::AddHosts() {
  const SyncPolicy sync = settings_.cache.sync();
  exact_ = sync.Exact();
  if (settings_.on_demand) ahead_ = exact_ ? 1 : 1 + static_cast<size_t>(sync.subscribes);
  for (uint32_t h = 0; h < settings_.workers / settings_.share; ++h) {
    hosts_.push_back(std::make_unique<Host>(watcher_->Network(&service_, settings_.shards), h, settings_));
    Client& client = hosts_.back()->client;
    CacheConfig cache = settings_.cache;
    cache.push_max_age.reset();  // steps of a replay take no time
    HET_RETURN_IF_ERROR(client.AddTable(settings_.schema, cache));
    watcher_->Begin(hosts_.back()->network.get(), &client);
  }
  return Status();
}

Result<ReplayOutcome> Replay::Run() {
  HET_RETURN_IF_ERROR(Check());
  HET_RETURN_IF_ERROR(service_.CreateTable(settings_.schema));
  HET_RETURN_IF_ERROR(AddHosts());
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
  outcome.store_rows = service_.Rows(settings_.schema->id());
  for (uint32_t p = 0; p < settings_.partitions; ++p) {
    service_.WithPartition(p, [&](Partition& partition) {
      outcome.store_bytes += partition.bytes() + partition.subscribers().bytes() + sizeof(Shard);
    });
  }
  return outcome;
}

ReplayOutcome Replay::Sum() const {
  ReplayOutcome sum;
  for (const auto& host : hosts_) {
    const uint64_t table = settings_.schema->id();
    const TableCache& cache = *host->client.cache(table);
    Add(&sum.counters, host->client.Stats(table));
    sum.traffic += host->network->traffic();
    sum.store_seconds += host->network->store_seconds();
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
  for (auto& host : hosts_) HET_RETURN_IF_ERROR(Read(host.get(), step));
  for (auto& host : hosts_) Foresee(host.get(), step);
  for (auto& host : hosts_) {
    for (uint32_t i = 0; i < settings_.share; ++i) HET_RETURN_IF_ERROR(Write(host.get(), i));
  }
  watcher_->EndStep();
  return Status();
}

void Replay::Drain() {
  for (const auto& host : hosts_) {
    while (host->network->on_the_way() || host->client.Busy()) {
      host->network->Arrive();
      host->client.Progress(0);
    }
  }
}

void Replay::Build(size_t first, size_t count, ReplayBatch* batch) {
  batch->keys.clear();
  for (size_t b = first; b < first + count; ++b) stream_.append(b, &batch->keys);
  const CpuSeconds cpu(&seconds_);
  const FeatureIds feature{0, Span<const int64_t>(batch->keys.data(), batch->keys.size()), std::nullopt};
  const uint64_t table = settings_.schema->id();
  batch->plan.Build({&feature, 1}, {&table, 1}, service_.id(0), &pool_);
}

void Replay::Next(Host* host, size_t step) {
  const auto build = [&](size_t of_step, ReplayBatch* batch) {
    Build(of_step * settings_.workers + host->number * settings_.share, settings_.share, batch);
  };
  if (settings_.window == 0) return build(step, &host->all);
  while (host->planned.size() <= settings_.window && step + host->planned.size() < Steps()) {
    host->planned.push_back(std::make_unique<ReplayBatch>());
    ReplayBatch* const batch = host->planned.back().get();
    build(step + host->planned.size() - 1, batch);
    batch->number = host->uses.Add(batch->plan, {settings_.schema->id()}, &batch->next);
  }
  for (const NextUses::Late& late : host->uses.TakeLate()) {
    host->client.SetNextUse(late.table, late.key, late.hash, late.number);
  }
  host->uses.End(host->planned.front()->number);
  std::swap(host->all, *host->planned.front());
  host->planned.pop_front();
}

void Replay::Foresee(Host* host, size_t step) {
  if (!settings_.on_demand) return;
  if (step > 0) host->global.pop_front();
  while (host->global.size() <= ahead_) host->global.push_back(Others(*host, step + host->global.size()));
  host->use = OthersUse();
  host->use.exact = exact_;
  if (exact_) host->use.outdated = View(host->global.front()->outdated());
  if (host->global.back() != nullptr) host->use.wanted = View(host->global.back()->others());
}

std::unique_ptr<GlobalStep> Replay::Others(const Host& host, size_t step) {
  if (step >= Steps()) return nullptr;
  std::vector<Key> keys;
  std::vector<int64_t> ends;
  for (uint32_t w = 0; w < settings_.workers; ++w) {
    stream_.append(step * settings_.workers + w, &keys);
    if ((w + 1) % settings_.share == 0) ends.push_back(static_cast<int64_t>(keys.size()));
  }
  const FeatureIds feature{0, Span<const int64_t>(keys.data(), keys.size()), std::nullopt};
  const GlobalStep::Ids all{
      {&feature, 1}, {{ends.data(), ends.size()}}, step + 1, static_cast<uint32_t>(host.number), false};
  return std::make_unique<GlobalStep>(all, std::vector<uint64_t>{settings_.schema->id()}, service_.id(0),
                                      &scratch_);
}

Status Replay::Read(Host* host, size_t step) {
  Next(host, step);
  const size_t first = step * settings_.workers + host->number * settings_.share;
  for (uint32_t i = 0; i < host->own.size(); ++i) Build(first + i, 1, &host->own[i]);
  BatchPlan& plan = host->all.plan;
  CachedRead read;
  read.follows = settings_.on_demand && exact_;
  read.planned = host->all.number;
  read.values.resize(plan.entries());
  for (const BatchPlan::Group& group : plan.groups()) {
    if (group.entries == 0) continue;
    read.parts.push_back({settings_.schema->id(), group.partition, group.uniques, plan.keys(group),
                          plan.hashes(group), plan.rows(group), read.values.data() + group.first,
                          read.planned == 0 ? nullptr : host->all.next.data() + group.first});
  }
  {
    const CpuSeconds cpu(&seconds_);
    HET_RETURN_IF_ERROR(
        host->Waiting(&waiting_reads_, [&] { return host->client.Read(&read, ++host->token); }));
    op_.MoveRows(plan, read.values, settings_.schema->dim());
  }
  return watcher_->SeeRead(host->all, host->own_batches(), read.values);
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

Status Replay::Write(Host* host, uint32_t i) {
  ReplayBatch* const batch = host->OfWorker(i);
  BatchPlan& plan = batch->plan;
  const size_t dim = settings_.schema->dim();
  size_t uniques = 0;
  for (const BatchPlan::Group& group : plan.groups()) uniques += group.uniques;
  op_.FillSums(uniques, dim, settings_.ones);
  CachedWrite write;
  size_t at = 0;
  for (const BatchPlan::Group& group : plan.groups()) {
    if (group.entries == 0) continue;
    // The lines are known from the read; a worker that shares them has the client look for its own.
    if (!host->own.empty()) std::fill_n(plan.rows(group), group.uniques, kNoRow);
    write.parts.push_back({settings_.schema->id(), group.partition, group.uniques, plan.keys(group),
                           plan.hashes(group), plan.rows(group), op_.sums() + at * dim, op_.touched() + at,
                           1.0f});
    at += group.uniques;
  }
  if (settings_.on_demand) write.others = &host->use;
  watcher_->SeeWrite(host->number, *batch, host->use.wanted);
  // All rows of the lookup are held until the last worker of the host writes.
  const bool last = i + 1 == settings_.share;
  {
    const CpuSeconds cpu(&seconds_);
    HET_RETURN_IF_ERROR(host->Waiting(&waiting_writes_, [&] {
      if (last) host->client.EndLookup(host->token);
      return host->client.Write(&write, last ? host->token : 0, &pool_);
    }));
  }
  watcher_->EndWrite(host->number);
  return Status();
}

}  // namespace het
