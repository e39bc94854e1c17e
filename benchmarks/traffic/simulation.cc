#include "benchmarks/traffic/simulation.h"

#include <algorithm>
#include <deque>

#include "het_tf/core/engine/next_uses.h"

namespace het::traffic {
namespace {

// No row is swept, so the time does not matter; a fixed one makes runs equal.
uint32_t NoTime() { return 1; }

Schema MakeSchema(uint32_t dim, const std::string& optimizer) {
  TableSpec spec;
  spec.name = "traffic";
  spec.dim = dim;
  spec.optimizer.name = optimizer;
  spec.initializer = {"zeros", 0, 0};
  auto schema = TableSchema::Create(spec);
  if (schema.ok()) return schema.value();
  return nullptr;
}

// The samples of one read or write.
struct Batch {
  std::vector<Key> keys;      // of the entries
  std::vector<uint32_t> ids;  // of the plan's unique keys, at the same places
  BatchPlan plan;
  uint32_t number = 0;    // where batches are planned
  Vector<uint32_t> next;  // next_uses.h

  void Build(const Stream& stream, size_t begin, size_t samples, const PartitionId& store, ThreadPool* pool) {
    const size_t entries = samples * stream.fields();
    const uint32_t* const of_entry = stream.sample(begin);
    keys.resize(entries);
    ids.resize(entries);
    for (size_t i = 0; i < entries; ++i) keys[i] = stream.key(of_entry[i]);
    const FeatureIds feature{0, Span<const int64_t>(keys.data(), entries), std::nullopt};
    plan.Build(Span<const FeatureIds>(&feature, 1), 1, store, pool);
    for (const BatchPlan::Group& group : plan.groups()) {
      for (size_t e = 0; e < group.entries; ++e) {
        ids[group.first + plan.inverse(group)[e]] = of_entry[plan.entry(group)[e].index];
      }
    }
  }
};

}  // namespace

// The client of `share` workers.
struct Simulation::Host {
  Host(LocalService* service, const Settings& settings)
      : transport(service, settings.shards),
        client(&transport),
        own(settings.share > 1 ? settings.share : 0) {}

  CountingTransport transport;
  Client client;
  Batch all;  // of all its workers
  NextUses uses;
  std::deque<std::unique_ptr<Batch>> planned;      // this step's and the next ones, oldest first
  std::vector<Batch> own;                          // of each of them, where there are several
  std::deque<std::unique_ptr<GlobalStep>> global;  // where rows travel on demand: this step and the next ones
  OthersUse use;                                   // of them
  uint64_t token = 0;
  uint32_t number = 0;

  Batch* OfWorker(uint32_t i) { return own.empty() ? &all : &own[i]; }
};

Simulation::Simulation(const Stream& stream, const Settings& settings)
    : stream_(stream),
      settings_(settings),
      service_(settings.partitions, 0, NoTime),
      schema_(MakeSchema(settings.dim, settings.rows)),
      pool_(1),
      ticks_(stream.distinct()),
      contained_(stream.distinct()) {}

Simulation::~Simulation() = default;

void Simulation::MakeRows() {
  for (uint32_t id = 0; id < stream_.distinct(); ++id) {
    const Key key = stream_.key(id);
    const uint64_t hash = HashKey(key, service_.hash_seed());
    service_.WithPartition(PartitionOf(hash, settings_.partitions), [&](Partition& partition) {
      Shard* shard = partition.Find(schema_->id());
      bool created = false;
      RowStore& rows = shard->rows();
      const uint32_t row = shard->FindOrCreate(key, hash, &created);
      rows.meta(row).clock = 1;
      std::fill_n(rows.data(row), settings_.dim, 1.0f);
    });
    ticks_[id] = 1;
  }
}

Result<Outcome> Simulation::Run() {
  if (schema_ == nullptr) {
    return InvalidArgument("dim is " + std::to_string(settings_.dim) + " and the rows are of " +
                           settings_.rows + "; see TableSchema");
  }
  if (settings_.workers % settings_.share != 0) {
    return InvalidArgument(std::to_string(settings_.share) + " workers share a cache, of " +
                           std::to_string(settings_.workers) + ": give a number that divides those");
  }
  const size_t of_step = static_cast<size_t>(settings_.workers) * settings_.batch;
  const size_t steps = stream_.samples() / of_step;
  const size_t warm = (settings_.warm_samples + of_step - 1) / of_step;
  if (warm >= steps) {
    return InvalidArgument("the stream has " + std::to_string(stream_.samples()) + " samples: with " +
                           std::to_string(of_step) + " a step there are " + std::to_string(steps) +
                           " steps, of which " + std::to_string(warm) + " warm up and none is left to count");
  }
  settings_.cache.workers = settings_.workers / settings_.share;
  settings_.cache.Follow(settings_.optimizer);
  settings_.cache.staleness.reset();  // else the rows' own optimizer would be followed
  const SyncPolicy sync = settings_.cache.sync();
  exact_ = sync.pull.most == 0 && sync.push.most == 0;
  if (settings_.on_demand) ahead_ = exact_ ? 1 : 1 + static_cast<size_t>(sync.subscribes);
  HET_RETURN_IF_ERROR(service_.CreateTable(schema_));
  if (settings_.rows_exist) MakeRows();
  for (uint32_t h = 0; h < settings_.workers / settings_.share; ++h) {
    hosts_.push_back(std::make_unique<Host>(&service_, settings_));
    hosts_.back()->number = h;
    HET_RETURN_IF_ERROR(hosts_.back()->client.AddTable(schema_, settings_.cache));
    if (settings_.on_demand && exact_) hosts_.back()->client.cache(schema_->id())->FollowStream();
    hosts_.back()->transport.cached = [cache = hosts_.back()->client.cache(schema_->id())](Key key) {
      return cache->lines().Find(key) != kNoRow;
    };
  }
  Counts before;
  uint64_t hits = 0;
  uint64_t reads = 0;
  auto sum = [this](Counts* counts, uint64_t* reads, uint64_t* hits) {
    *reads = *hits = 0;
    for (const auto& host : hosts_) {
      *counts += host->transport.counts();
      const Counters& own = host->client.Stats(schema_->id());
      *reads += own.reads;
      *hits += own.hits;
    }
  };
  for (size_t step = 0; step < steps; ++step) {
    const bool counted = step >= warm;
    if (step == warm) {
      sum(&before, &reads, &hits);
      outcome_.reads = reads;
      outcome_.hits = hits;
      outcome_.unsent_rows_before = Unsent();
    }
    Counts now;
    const uint64_t old_hits = hits;
    const uint64_t old_reads = reads;
    for (auto& host : hosts_) HET_RETURN_IF_ERROR(Read(host.get(), step, counted));
    for (auto& host : hosts_) Foresee(host.get(), step);
    for (auto& host : hosts_) {
      for (uint32_t i = 0; i < settings_.share; ++i) {
        const uint64_t waited = host->transport.counts().round_trips;
        HET_RETURN_IF_ERROR(Write(host.get(), i));
        outcome_.busy_writes += counted && host->transport.counts().round_trips != waited;
      }
    }
    sum(&now, &reads, &hits);
    outcome_.hit_rate.push_back(static_cast<double>(hits - old_hits) /
                                static_cast<double>(std::max<uint64_t>(1, reads - old_reads)));
  }
  sum(&outcome_.counts, &reads, &hits);
  outcome_.reads = reads - outcome_.reads;
  outcome_.hits = hits - outcome_.hits;
  outcome_.counts -= before;
  outcome_.steps = steps - warm;
  // Unsent updates stay where they are, as many as there were before the first counted step; but what is on
  // its way arrives, so that the client has counted all that we have.
  for (const auto& host : hosts_) {
    while (host->transport.on_the_way() || host->client.Busy()) {
      host->transport.Arrive();
      host->client.Progress(0);
    }
  }
  sum(&outcome_.all, &reads, &hits);
  outcome_.unsent_rows = Unsent();
  for (const auto& host : hosts_) {
    const Counters& own = host->client.Stats(schema_->id());
    outcome_.client_bytes +=
        own.row_bytes_in + own.row_bytes_out + own.metadata_bytes_in + own.metadata_bytes_out;
    outcome_.client_rows += own.miss_pull + own.update_pull + own.bound_push + own.evict_push;
    const TableCache& cache = *host->client.cache(schema_->id());
    outcome_.cached_rows += cache.lines().size();
    outcome_.pull = cache.config().pull_bound;
    outcome_.push = cache.config().push_bound;
  }
  return std::move(outcome_);
}

size_t Simulation::Unsent() const {
  size_t rows = 0;
  for (const auto& host : hosts_) rows += host->client.cache(schema_->id())->Unsent();
  return rows;
}

void Simulation::Next(Host* host, size_t step) {
  const size_t samples = static_cast<size_t>(settings_.batch) * settings_.share;
  const auto build = [&](size_t of_step, Batch* batch) {
    const size_t begin = (of_step * (settings_.workers / settings_.share) + host->number) * samples;
    batch->Build(stream_, begin, samples, service_.id(0), &pool_);
  };
  if (settings_.window == 0) return build(step, &host->all);
  const size_t steps = stream_.samples() / (samples * (settings_.workers / settings_.share));
  while (host->planned.size() <= settings_.window && step + host->planned.size() < steps) {
    host->planned.push_back(std::make_unique<Batch>());
    Batch* const batch = host->planned.back().get();
    build(step + host->planned.size() - 1, batch);
    batch->number = host->uses.Add(batch->plan, {schema_->id()}, &batch->next);
  }
  for (const NextUses::Late& late : host->uses.TakeLate()) {
    host->client.SetNextUse(late.table, late.key, late.hash, late.number);
  }
  host->uses.End(host->planned.front()->number);
  std::swap(host->all, *host->planned.front());
  host->planned.pop_front();
}

void Simulation::Foresee(Host* host, size_t step) {
  if (!settings_.on_demand) return;
  if (step > 0) host->global.pop_front();
  while (host->global.size() <= ahead_) host->global.push_back(Others(*host, step + host->global.size()));
  host->use = OthersUse();
  host->use.exact = exact_;
  const auto keys = [](const Vector<OthersKeys>& of) { return Span<const OthersKeys>(of.data(), of.size()); };
  if (exact_) host->use.outdated = keys(host->global.front()->outdated());
  if (host->global.back() != nullptr) host->use.wanted = keys(host->global.back()->others());
}

std::unique_ptr<GlobalStep> Simulation::Others(const Host& host, size_t step) {
  const size_t of_step = static_cast<size_t>(settings_.workers) * settings_.batch;
  if ((step + 1) * of_step > stream_.samples()) return nullptr;
  const size_t entries = of_step * stream_.fields();
  const uint32_t* const ids = stream_.sample(step * of_step);
  std::vector<Key> keys(entries);
  for (size_t i = 0; i < entries; ++i) keys[i] = stream_.key(ids[i]);
  std::vector<int64_t> ends;
  for (size_t h = 1; h <= hosts_.size(); ++h)
    ends.push_back(static_cast<int64_t>(entries * h / hosts_.size()));
  const FeatureIds feature{0, Span<const int64_t>(keys.data(), entries), std::nullopt};
  const GlobalStep::Ids all{{&feature, 1}, {{ends.data(), ends.size()}}, step + 1, host.number, false};
  return std::make_unique<GlobalStep>(all, std::vector<uint64_t>{schema_->id()}, service_.id(0), &scratch_);
}

Status Simulation::Read(Host* host, size_t step, bool counted) {
  const size_t samples = static_cast<size_t>(settings_.batch) * settings_.share;
  const size_t begin = (step * (settings_.workers / settings_.share) + host->number) * samples;
  Next(host, step);
  for (uint32_t i = 0; i < host->own.size(); ++i) {
    host->own[i].Build(stream_, begin + i * settings_.batch, settings_.batch, service_.id(0), &pool_);
  }

  BatchPlan& plan = host->all.plan;
  CachedRead read;
  read.planned = host->all.number;
  read.values.resize(plan.entries());
  for (const BatchPlan::Group& group : plan.groups()) {
    if (group.entries == 0) continue;
    read.parts.push_back({schema_->id(), group.partition, group.uniques, plan.keys(group), plan.hashes(group),
                          plan.rows(group), read.values.data() + group.first,
                          read.planned == 0 ? nullptr : host->all.next.data() + group.first});
  }
  host->transport.Arrive();
  const uint64_t waited = host->transport.counts().round_trips;
  HET_RETURN_IF_ERROR(host->client.Read(&read, ++host->token));
  if (!counted) return Status();
  outcome_.busy_reads += host->transport.counts().round_trips != waited;
  for (uint32_t i = 0; i < settings_.share; ++i) {
    const BatchPlan& own = host->OfWorker(i)->plan;
    for (const BatchPlan::Group& group : own.groups()) outcome_.uses += group.uniques;
  }
  if (!observes()) return Status();
  for (const BatchPlan::Group& group : plan.groups()) {
    for (size_t u = 0; u < group.uniques; ++u) {
      const float* value = read.values[group.first + u];
      const uint32_t id = host->all.ids[group.first + u];
      contained_[id] = static_cast<uint32_t>(value[0]);
      if (contained_[id] > ticks_[id] || value[0] != value[settings_.dim - 1]) {
        return Status(Code::kInternal, "a row holds " + std::to_string(value[0]) + " ticks; " +
                                           std::to_string(ticks_[id]) + " were made");
      }
    }
  }
  for (uint32_t i = 0; i < settings_.share; ++i) {
    const Batch& own = *host->OfWorker(i);
    for (const BatchPlan::Group& group : own.plan.groups()) {
      for (size_t u = 0; u < group.uniques; ++u) {
        const uint32_t id = own.ids[group.first + u];
        const size_t lag = ticks_[id] - contained_[id];
        if (lag >= outcome_.staleness.size()) outcome_.staleness.resize(lag + 1);
        ++outcome_.staleness[lag];
      }
    }
  }
  return Status();
}

// Ones, where a row is to count its ticks. Else numbers of any size, as gradients
// are: what a format makes of a one is no measure of its bytes.
void Simulation::FillSums(size_t floats) {
  sums_.assign(floats, -1.0f);
  if (observes()) return;
  for (float& sum : sums_) {
    noise_ = noise_ * 6364136223846793005 + 1442695040888963407;
    sum = static_cast<float>(static_cast<int64_t>(noise_)) * 0x1p-63f;
  }
}

Status Simulation::Write(Host* host, uint32_t i) {
  Batch* const batch = host->OfWorker(i);
  BatchPlan& plan = batch->plan;
  CountingTransport::Keys* written = host->transport.written();
  written->clear();
  for (const OthersKeys& wanted : host->use.wanted) written->insert(wanted.keys.begin(), wanted.keys.end());
  size_t uniques = 0;
  for (const BatchPlan::Group& group : plan.groups()) uniques += group.uniques;
  FillSums(uniques * settings_.dim);
  touched_.assign(uniques, 1);
  CachedWrite write;
  size_t at = 0;
  for (const BatchPlan::Group& group : plan.groups()) {
    if (group.entries == 0) continue;
    // The lines are known from the read; a worker that shares them has the client look for its own.
    if (!host->own.empty()) std::fill_n(plan.rows(group), group.uniques, kNoRow);
    write.parts.push_back({schema_->id(), group.partition, group.uniques, plan.keys(group),
                           plan.hashes(group), plan.rows(group), sums_.data() + at * settings_.dim,
                           touched_.data() + at, 1.0f});
    at += group.uniques;
    for (size_t u = 0; u < group.uniques; ++u) {
      written->insert(plan.keys(group)[u]);
      ++ticks_[batch->ids[group.first + u]];
    }
  }
  if (settings_.on_demand) write.others = &host->use;
  host->transport.Arrive();
  // All rows of the lookup are held until the last worker of the host writes.
  const bool last = i + 1 == settings_.share;
  if (last) host->client.EndLookup(host->token);
  HET_RETURN_IF_ERROR(host->client.Write(&write, last ? host->token : 0, &pool_));
  written->clear();
  return Status();
}

}  // namespace het::traffic
