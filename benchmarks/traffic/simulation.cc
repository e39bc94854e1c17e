#include "benchmarks/traffic/simulation.h"

#include <algorithm>

namespace het::traffic {
namespace {

// No row is swept, so the time does not matter; a fixed one makes runs equal.
uint32_t NoTime() { return 1; }

Schema MakeSchema(uint32_t dim) {
  TableSpec spec;
  spec.name = "traffic";
  spec.dim = dim;
  spec.optimizer.name = "sgd";
  spec.initializer = {"zeros", 0, 0};
  auto schema = TableSchema::Create(spec);
  if (schema.ok()) return schema.value();
  return nullptr;
}

}  // namespace

struct Simulation::Worker {
  explicit Worker(LocalService* service) : transport(service), client(&transport) {}

  CountingTransport transport;
  Client client;
  BatchPlan plan;
  std::vector<Key> keys;      // of the batch's entries
  std::vector<uint32_t> ids;  // of the plan's unique keys, at the same places
  uint64_t token = 0;
  uint32_t number = 0;
};

Simulation::Simulation(const Stream& stream, const Settings& settings)
    : stream_(stream),
      settings_(settings),
      service_(settings.partitions, 0, NoTime),
      schema_(MakeSchema(settings.dim)),
      pool_(1),
      ticks_(stream.distinct()) {}

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
  if (schema_ == nullptr)
    return InvalidArgument("dim is " + std::to_string(settings_.dim) + "; see TableSchema");
  const size_t of_step = static_cast<size_t>(settings_.workers) * settings_.batch;
  const size_t steps = stream_.samples() / of_step;
  const size_t warm = (settings_.warm_samples + of_step - 1) / of_step;
  if (warm >= steps) {
    return InvalidArgument("the stream has " + std::to_string(stream_.samples()) + " samples: with " +
                           std::to_string(of_step) + " a step there are " + std::to_string(steps) +
                           " steps, of which " + std::to_string(warm) + " warm up and none is left to count");
  }
  HET_RETURN_IF_ERROR(service_.CreateTable(schema_));
  if (settings_.rows_exist) MakeRows();
  for (uint32_t w = 0; w < settings_.workers; ++w) {
    workers_.push_back(std::make_unique<Worker>(&service_));
    workers_.back()->number = w;
    HET_RETURN_IF_ERROR(workers_.back()->client.AddTable(schema_, settings_.cache));
  }
  Counts before;
  uint64_t hits = 0;
  uint64_t reads = 0;
  auto sum = [this](Counts* counts, uint64_t* reads, uint64_t* hits) {
    *reads = *hits = 0;
    for (const auto& worker : workers_) {
      *counts += worker->transport.counts();
      const Counters& own = worker->client.Stats(schema_->id());
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
    }
    Counts now;
    const uint64_t old_hits = hits;
    const uint64_t old_reads = reads;
    for (auto& worker : workers_) HET_RETURN_IF_ERROR(Read(worker.get(), step, counted));
    for (auto& worker : workers_) {
      const uint64_t waited = worker->transport.counts().round_trips;
      HET_RETURN_IF_ERROR(Write(worker.get()));
      outcome_.busy_writes += counted && worker->transport.counts().round_trips != waited;
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
  for (const auto& worker : workers_) {
    while (worker->transport.on_the_way() || worker->client.Busy()) {
      worker->transport.Arrive();
      worker->client.Progress(0);
    }
  }
  sum(&outcome_.all, &reads, &hits);
  for (const auto& worker : workers_) {
    const Counters& own = worker->client.Stats(schema_->id());
    outcome_.client_bytes +=
        own.row_bytes_in + own.row_bytes_out + own.metadata_bytes_in + own.metadata_bytes_out;
    outcome_.client_rows += own.miss_pull + own.update_pull + own.bound_push + own.evict_push;
    outcome_.cached_rows += worker->client.cache(schema_->id())->lines().size();
    outcome_.unsent_rows += worker->client.cache(schema_->id())->Unsent();
  }
  return std::move(outcome_);
}

Status Simulation::Read(Worker* worker, size_t step, bool counted) {
  const size_t begin = (step * settings_.workers + worker->number) * settings_.batch;
  const size_t entries = settings_.batch * stream_.fields();
  const uint32_t* const ids = stream_.sample(begin);
  worker->keys.resize(entries);
  for (size_t i = 0; i < entries; ++i) worker->keys[i] = stream_.key(ids[i]);
  const FeatureIds feature{0, Span<const int64_t>(worker->keys.data(), entries), std::nullopt};
  BatchPlan& plan = worker->plan;
  plan.Build(Span<const FeatureIds>(&feature, 1), 1, service_.id(0), &pool_);
  worker->ids.resize(entries);

  CachedRead read;
  read.values.resize(entries);
  for (const BatchPlan::Group& group : plan.groups()) {
    if (group.entries == 0) continue;
    for (size_t e = 0; e < group.entries; ++e) {
      worker->ids[group.first + plan.inverse(group)[e]] = ids[plan.entry(group)[e].index];
    }
    read.parts.push_back({schema_->id(), group.partition, group.uniques, plan.keys(group), plan.hashes(group),
                          plan.rows(group), read.values.data() + group.first});
  }
  worker->transport.Arrive();
  const uint64_t waited = worker->transport.counts().round_trips;
  HET_RETURN_IF_ERROR(worker->client.Read(&read, ++worker->token));
  if (!counted) return Status();
  outcome_.busy_reads += worker->transport.counts().round_trips != waited;
  for (const BatchPlan::Group& group : plan.groups()) {
    for (size_t u = 0; u < group.uniques; ++u) {
      const float* value = read.values[group.first + u];
      const auto contained = static_cast<uint32_t>(value[0]);
      const uint32_t made = ticks_[worker->ids[group.first + u]];
      if (contained > made || value[0] != value[settings_.dim - 1]) {
        return Status(Code::kInternal, "a row holds " + std::to_string(value[0]) + " ticks; " +
                                           std::to_string(made) + " were made");
      }
      const size_t lag = made - contained;
      if (lag >= outcome_.staleness.size()) outcome_.staleness.resize(lag + 1);
      ++outcome_.staleness[lag];
    }
  }
  return Status();
}

Status Simulation::Write(Worker* worker) {
  BatchPlan& plan = worker->plan;
  CountingTransport::Keys* written = worker->transport.written();
  written->clear();
  size_t uniques = 0;
  for (const BatchPlan::Group& group : plan.groups()) uniques += group.uniques;
  sums_.assign(uniques * settings_.dim, -1.0f);
  touched_.assign(uniques, 1);
  CachedWrite write;
  size_t at = 0;
  for (const BatchPlan::Group& group : plan.groups()) {
    if (group.entries == 0) continue;
    write.parts.push_back({schema_->id(), group.partition, group.uniques, plan.keys(group),
                           plan.hashes(group), plan.rows(group), sums_.data() + at * settings_.dim,
                           touched_.data() + at, 1.0f});
    at += group.uniques;
    for (size_t u = 0; u < group.uniques; ++u) {
      written->insert(plan.keys(group)[u]);
      ++ticks_[worker->ids[group.first + u]];
    }
  }
  worker->transport.Arrive();
  HET_RETURN_IF_ERROR(worker->client.Write(&write, worker->token, &pool_));
  written->clear();
  return Status();
}

}  // namespace het::traffic
