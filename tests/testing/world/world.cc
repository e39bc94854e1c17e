// Steps, the store's failures and content. world_checks.cc compares them with the oracle.
#include "tests/testing/world/world.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "het_tf/core/wire/layout.h"
#include "tests/testing/optimizer_of.h"
#include "tests/testing/table_specs.h"

namespace het::testing {

World::World(const WorldConfig& config)
    : config_(config),
      service_(config.partitions, config.seed * 7919, [this] { return now; }),
      random_(config.seed) {
  const uint32_t dim = config.dim == 0 ? config.workers + 1 : config.dim;
  for (uint32_t t = 0; t < config.tables; ++t) {
    TableSpec spec = NewSpec("table" + std::to_string(t), dim + t, OptimizerOf(config.optimizer),
                             {"constant", kInitial, 0});
    spec.limits = config.limits;
    spec.stored = config.stored;
    schemas_.push_back(TableSchema::Create(spec).value());
    Require(service_.CreateTable(schemas_.back()));
  }
  if (config.age > 0) AgeRows();
  for (uint32_t p = 0; p < config.partitions; ++p) {
    replica_[p] = Snapshot(p);
    LimitSubscriptions(p);
  }
  for (uint32_t w = 0; w < config.workers; ++w) AddWorker();
}

World::~World() = default;

std::unique_ptr<TestStep> World::NewStep(const std::vector<std::vector<Key>>& keys_of_tables) {
  auto step = std::make_unique<TestStep>();
  for (size_t t = 0; t < keys_of_tables.size(); ++t)
    step->Add(*schemas_[t], service_.id(0), keys_of_tables[t]);
  return step;
}

Status World::Read(size_t w, TestStep* step, bool training) {
  step->changes = changes_;
  if (step->token == 0 && training) {
    step->token = NewToken();
    BeginTraining(w, step);
  }
  const Status status = device(w) != nullptr ? device(w)->Read(step->MakeRead(), step->token)
                                             : client(w).Read(step->MakeRead(), step->token);
  NoteDiscards();
  if (status.ok()) CheckRead(w, step);
  under_way_[w].erase(step);
  return status;
}

void World::ReadEarly(size_t w, TestStep* step) {
  under_way_[w][step] = changes_;
  step->token = NewToken();
  NoteBegin(step);
  BeginTraining(w, step);
  client(w).ReadEarly(step->MakeRead(), step->token);
}

void World::EndLookup(size_t w, TestStep* step) {
  under_way_[w].erase(step);
  client(w).EndLookup(step->token);
}

std::unique_ptr<ReadOp> World::BeginRead(size_t w, TestStep* step, bool training) {
  step->token = training ? NewToken() : 0;
  if (device(w) != nullptr) return std::make_unique<ReadOp>();
  under_way_[w][step] = changes_;
  NoteBegin(step);
  if (training) BeginTraining(w, step);
  return client(w).BeginRead(step->MakeRead(), step->token);
}

Status World::FinishRead(size_t w, ReadOp* op, TestStep* step) {
  if (device(w) != nullptr) {  // the read begins here
    const bool training = step->token != 0;
    step->token = 0;
    return Read(w, step, training);
  }
  const Status status = client(w).FinishRead(op);
  NoteDiscards();
  if (status.ok()) CheckRead(w, step);
  under_way_[w].erase(step);
  return status;
}

Status World::Write(size_t w, TestStep* step, const OthersUse* others) {
  FillGradients(w, step);
  std::map<TableKey, std::vector<float>> gradients;
  step->ForEachSum([&](const TableKey& key, Span<float> g, bool touched) {
    if (touched) gradients[key].assign(g.begin(), g.end());
  });
  const uint64_t before = Ticks(w);
  std::map<TableKey, Clock> before_clocks;
  for (auto& [key, g] : gradients) {
    Know(key);
    before_clocks[key] = WorkerClock(w, key);
  }
  CachedWrite* write = step->MakeWrite(learning_rate());
  write->others = others;
  const Status status = device(w) != nullptr ? device(w)->Write(*write, step->token)
                                             : client(w).Write(write, step->token, nullptr);
  if (!status.ok()) blocked_ = true;
  if (Ticks(w) != before) {
    for (auto& [key, g] : gradients) Issue(w, key, g);
  }
  NoteDiscards();
  if (status.ok() && others == nullptr) CheckWrite(w, step, before_clocks);
  return status;
}

void World::FillGradients(size_t w, TestStep* step) {
  // 4 bits can represent integers up to 7: the sum of a few updates of 0 or 1.
  const int64_t low = counting() && config_.cache.wire == RowFormat::kInt4 ? 0 : -3;
  const int64_t high = low == 0 ? 1 : 3;
  step->ForEachSum([&](const TableKey&, Span<float> g, bool) {
    for (size_t i = 0; i < g.size(); ++i) {
      g[i] = static_cast<float>(random_.Between(low, high)) * (counting() ? 1.0f : 0.25f);
      if (counting() && i < config_.workers && g.size() > config_.workers) g[i] = i == w ? 1 : 0;
    }
  });
}

TestStep World::CountAsOwn(size_t w, MergedSums* sums) {
  TestStep step;
  for (size_t t = 0; t < schemas_.size(); ++t) {
    MergedSums::OfTable& of = sums->tables[t];
    const size_t dim = schemas_[t]->dim();
    // A key occurs for each sender, and each of two halves of its gradient. 4 bits hold few of their size.
    const bool int4 = config_.cache.wire == RowFormat::kInt4;
    std::map<Key, std::vector<float>> whole;
    for (size_t i = 0; i < of.keys.size(); ++i) {
      float* const g = of.sums.data() + i * dim;
      std::vector<float>& sum = whole[of.keys[i]];
      const bool first = sum.empty();
      sum.resize(dim);
      for (size_t c = 0; c < dim; ++c) {
        if (c < config_.workers) g[c] = c == w && first ? 1 : 0;
        if (c >= config_.workers && int4) g[c] = first && g[c] > 0 ? 1 : 0;
        sum[c] += g[c];
      }
    }
    std::vector<Key> keys;
    for (const auto& [key, sum] : whole) keys.push_back(key);
    step.Add(*schemas_[t], service_.id(0), keys);
    step.ForEachSum([&](const TableKey& key, Span<float> sum, bool) {
      if (key.first == schemas_[t]->id()) std::copy_n(whole.at(key.second).data(), dim, sum.data());
    });
  }
  return step;
}

uint64_t World::MostUnapplied(size_t w) {
  uint64_t most = 0;
  for (auto& [key, issued] : issued_) most = std::max(most, UnappliedTicks(w, key));
  return most;
}

Status World::Flush(size_t w) {
  const Status status = device(w) != nullptr ? device(w)->Flush() : client(w).Flush();
  NoteDiscards();
  if (!status.ok()) return status;
  for (auto& [key, issued] : issued_) {
    if (UnappliedTicks(w, key) != 0) Error("unapplied ticks after a flush", w, key);
  }
  return status;
}

Status World::Drain() {
  for (size_t w = 0; w < workers_.size(); ++w) transport(w).faults = Faults::None();
  for (int round = 0; round < 2; ++round) {
    for (size_t w = 0; w < workers_.size(); ++w) {
      std::vector<std::vector<Key>> all(schemas_.size());
      for (auto& [key, issued] : issued_) {
        for (size_t t = 0; t < schemas_.size(); ++t) {
          if (schemas_[t]->id() == key.first) all[t].push_back(key.second);
        }
      }
      for (size_t t = 0; t < all.size(); ++t) {
        for (Key key = 1000000; key < 1000000 + 8 * service_.partitions(); ++key) all[t].push_back(key);
      }
      std::unique_ptr<TestStep> step = NewStep(all);
      HET_RETURN_IF_ERROR(Read(w, step.get(), false));
      HET_RETURN_IF_ERROR(Flush(w));
    }
  }
  return Status();
}

uint64_t World::UnappliedTicks(size_t w, const TableKey& key) {
  return device(w) != nullptr ? device(w)->UnappliedTicks(key.first, key.second)
                              : client(w).UnappliedTicks(key.first, key.second);
}

template <typename Fn>
void World::OnServer(const TableKey& key, Fn fn) {
  const uint64_t hash = HashKey(key.second, service_.hash_seed());
  service_.WithPartition(Layout(service_.id(0)).Of(key.first, hash), [&](Partition& p) {
    const Shard* shard = p.Find(key.first);
    const uint32_t row = shard == nullptr ? kNoRow : shard->rows().Find(key.second, hash);
    if (row != kNoRow) fn(*shard, row);
  });
}

int64_t World::ServerClock(const TableKey& key) {
  Clock clock = 0;
  OnServer(key, [&](const Shard& shard, uint32_t row) { clock = shard.rows().meta(row).clock; });
  return clock;
}

Clock World::WorkerClock(size_t w, const TableKey& key) {
  if (device(w) != nullptr) {
    const HetDevRowState row = device(w)->Find(key.first, key.second);
    return row.base + row.ticks;
  }
  const TableCache* cache = client(w).cache(key.first);
  const uint32_t line = cache->lines().Find(key.second);
  return line == kNoRow ? 0 : cache->lines().clock(line);
}

std::vector<float> World::ServerRow(const TableKey& key) {
  const TableSchema& schema = *SchemaOf(key.first);
  std::vector<float> copy(schema.row_floats());
  schema.InitRow(key.second, copy.data());
  OnServer(key, [&](const Shard& shard, uint32_t row) {
    std::copy_n(shard.Read(shard.rows().data(row)), copy.size(), copy.data());
  });
  return copy;
}

uint64_t World::Sum(uint64_t Counters::*counter) {
  uint64_t sum = 0;
  for (size_t w = 0; w < workers_.size(); ++w) {
    for (const Schema& schema : Tables(w)) sum += client(w).Stats(schema->id()).*counter;
  }
  return sum;
}

void World::Require(const Status& status) {
  if (!status.ok()) std::abort();
}

void World::LimitSubscriptions(uint32_t p) {
  service_.WithPartition(p,
                         [&](Partition& partition) { partition.subscribers().set_limit(config_.most_held); });
}

void World::AgeRows() {
  for (const Schema& schema : schemas_) {
    for (Key key = -2; key <= 9; ++key) {
      const auto ticks = static_cast<uint32_t>(random_.Below(config_.age + 1));
      if (ticks == 0) continue;
      const uint64_t hash = HashKey(key, service_.hash_seed());
      service_.WithPartition(Layout(service_.id(0)).Of(schema->id(), hash), [&](Partition& partition) {
        Shard* const shard = partition.Find(schema->id());
        bool created = false;
        const uint32_t row = shard->FindOrCreate(key, hash, &created);
        shard->rows().meta(row).clock += ticks;
        if (counting()) shard->Edit(row)[0] -= static_cast<float>(ticks);
        if (counting()) shard->Set(row);
        shard->RaiseNewest(shard->rows().meta(row).clock);
      });
      std::vector<uint64_t>& issued = issued_[{schema->id(), key}];
      issued.resize(config_.workers);
      issued[0] += ticks;
      if (!counting()) continue;
      std::vector<float>& sum = sums_[{schema->id(), key}];
      sum.resize(schema->dim());
      sum[0] += static_cast<float>(ticks);
    }
  }
}

void World::AddWorker() {
  Worker worker;
  auto transport = std::make_unique<FaultyTransport>(&service_, random_.Next(), config_.shards);
  worker.transport = transport.get();
  worker.transport->faults = config_.faults;
  worker.transport->replicate = [this](uint32_t p) {
    if (replica_stands_still) return false;
    replica_[p] = Snapshot(p);
    return true;
  };
  if (config_.limits && config_.limits->max_rows != 0)
    worker.transport->pushes = [this](const auto& handle) { HandleAndSweep(handle); };
  ClientConfig client = config_.client;
  client.seed = workers_.size();
  CacheConfig cache = config_.cache;
  if (config_.stream != StreamMode::kNone) {
    worker.process = std::make_unique<StreamWorker>(&service_, std::move(transport), client, cache, schemas_);
    worker.client = &worker.process->client();
    return workers_.push_back(std::move(worker));
  }
  worker.own_transport = std::move(transport);
  worker.own_client = std::make_unique<Client>(worker.transport, client);
  worker.client = worker.own_client.get();
  if (workers_.size() < config_.devices) {
    worker.device = std::make_unique<DeviceCache>(worker.client, service_.id(0), random_.Next());
    // As het_tf.Cache(device="gpu").
    cache.wire = RowFormat::kFloat32;
    cache.capacity = std::max<size_t>(cache.capacity, 1);
    cache.layer = 0;
    cache.push_max_age.reset();
  }
  for (const Schema& schema : schemas_) {
    Require(worker.device != nullptr ? worker.device->AddTable(schema, cache)
                                     : worker.client->AddTable(schema, cache));
  }
  workers_.push_back(std::move(worker));
}

uint64_t World::Ticks(size_t w) {
  uint64_t ticks = 0;
  for (const Schema& schema : Tables(w)) ticks += client(w).Stats(schema->id()).ticks;
  return ticks;
}

std::vector<Schema> World::Tables(size_t w) {
  std::vector<Schema> tables;
  for (const Schema& schema : schemas_) {
    if (client(w).HasTable(schema->id())) tables.push_back(schema);
  }
  return tables;
}

const Schema& World::SchemaOf(uint64_t id) const {
  for (const Schema& schema : schemas_) {
    if (schema->id() == id) return schema;
  }
  std::abort();
}

}  // namespace het::testing
