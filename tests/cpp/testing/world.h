// A small world for protocol tests: a store, workers with caches behind faulty networks, and an oracle that
// knows what was asked for.
//
// Counting tables make the state legible. Optimizer "sgd", learning rate 1, dim = workers + 1: the gradient
// of worker w has 1 in coordinate w and a random integer in the last. So coordinate v of any copy of a row
// says exactly how many ticks of worker v it contains, and all values are small integers, bit for bit.
//
// With another optimizer and one worker the oracle keeps a mirror: the same ticks on a row that never left
// home.
//
// Checks append what is wrong to errors(); an empty list is a pass.
#ifndef HET_TESTS_CPP_TESTING_WORLD_H_
#define HET_TESTS_CPP_TESTING_WORLD_H_

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "het_tf/core/client.h"
#include "het_tf/core/local_service.h"
#include "tests/cpp/testing/faulty_transport.h"
#include "tests/cpp/testing/random.h"
#include "tests/cpp/testing/test_step.h"
#include "tests/cpp/testing/toy_device.h"
#include "tests/cpp/testing/world_config.h"

namespace het::testing {

class World {
 public:
  explicit World(const WorldConfig& config)
      : config_(config),
        service_(config.partitions, config.seed * 7919, [this] { return now; }),
        random_(config.seed) {
    const uint32_t dim = config.dim == 0 ? config.workers + 1 : config.dim;
    for (uint32_t t = 0; t < config.tables; ++t) {
      TableSpec spec;
      spec.name = "table" + std::to_string(t);
      spec.dim = dim + t;
      spec.optimizer.name = config.optimizer;
      spec.initializer = {"constant", kInitial, 0};
      spec.limits = config.limits;
      schemas_.push_back(TableSchema::Create(spec).value());
      Require(service_.CreateTable(schemas_.back()));
    }
    for (uint32_t p = 0; p < config.partitions; ++p) {
      replica_[p] = Snapshot(p);
      LimitHoldings(p);
    }
    for (uint32_t w = 0; w < config.workers; ++w) AddWorker();
  }

  uint32_t now = 1700000000;  // seconds, as the store's owner sees them

  LocalService& service() { return service_; }
  const WorldConfig& config() const { return config_; }
  const Schema& schema(size_t table) const { return schemas_[table]; }
  FaultyTransport& transport(size_t w) { return *workers_[w].transport; }
  Client& client(size_t w) { return *workers_[w].client; }
  // Null: the worker's caches are where the client is.
  ToyDevice* device(size_t w) { return workers_[w].device.get(); }
  Random& random() { return random_; }
  const std::vector<std::string>& errors() const { return errors_; }
  std::string FirstError() const {
    return errors_.empty() ? "" : errors_[0] + "\n  in a world of " + config_.ToString();
  }
  bool counting() const { return config_.optimizer == "sgd"; }
  bool lossy() const { return lossy_; }
  bool keeps() const { return config_.client.durability != Durability::kApplied; }
  bool blocked() const { return blocked_; }
  float learning_rate() const { return counting() ? 1.0f : 0.1f; }

  // --- steps
  std::unique_ptr<TestStep> NewStep(const std::vector<std::vector<Key>>& keys_of_tables) {
    auto step = std::make_unique<TestStep>();
    for (size_t t = 0; t < keys_of_tables.size(); ++t)
      step->Add(*schemas_[t], service_.id(0), keys_of_tables[t]);
    return step;
  }
  uint64_t NewToken() { return ++last_token_; }

  Status Read(size_t w, TestStep* step, bool training = true) {
    step->token = training ? NewToken() : 0;
    BeginAhead(w, step);
    const Status status = device(w) != nullptr ? device(w)->Read(step->MakeRead(), step->token)
                                               : client(w).Read(step->MakeRead(), step->token);
    if (status.ok()) FinishAhead(w, *step);
    if (status.ok()) CheckRead(w, step);
    return status;
  }
  // A read of these keys will come. Not of a worker whose caches are on a device.
  void Prefetch(size_t w, const std::vector<std::vector<Key>>& keys_of_tables) {
    ahead_.resize(config_.workers);
    ahead_[w].push_back({NewStep(keys_of_tables), 0});
    TestStep* const step = ahead_[w].back().step.get();
    NoteBegin(step);
    client(w).ReadAhead(*step->MakeRead(config_.check_ahead));
  }
  // A read that other calls may overtake: FinishRead ends it.
  std::unique_ptr<ReadOp> BeginRead(size_t w, TestStep* step, bool training) {
    step->token = training ? NewToken() : 0;
    BeginAhead(w, step);
    if (step->begin.empty()) NoteBegin(step);
    return device(w) != nullptr ? device(w)->BeginRead(step->MakeRead(), step->token)
                                : client(w).BeginRead(step->MakeRead(), step->token);
  }
  Status FinishRead(size_t w, ReadOp* op, TestStep* step) {
    const Status status = device(w) != nullptr ? device(w)->FinishRead(op) : client(w).FinishRead(op);
    if (status.ok()) FinishAhead(w, *step);
    if (status.ok()) CheckRead(w, step);
    return status;
  }
  // Gives every touched key a tick.
  Status Write(size_t w, TestStep* step) {
    std::map<TableKey, std::vector<float>> gradients;
    for (auto& [where, p] : step->parts()) {
      for (size_t u = 0; u < p.keys.size(); ++u) {
        float* g = p.sums.data() + u * p.dim;
        for (uint32_t i = 0; i < p.dim; ++i) {
          g[i] = static_cast<float>(random_.Between(-3, 3)) * (counting() ? 1.0f : 0.25f);
          if (counting() && i < config_.workers && p.dim > config_.workers) g[i] = i == w ? 1 : 0;
        }
        if (p.touched[u]) gradients[{p.table, p.keys[u]}].assign(g, g + p.dim);
      }
    }
    const uint64_t before = Ticks(w);
    CachedWrite* write = step->MakeWrite(learning_rate());
    const Status status = device(w) != nullptr ? device(w)->Write(write, step->token)
                                               : client(w).Write(write, step->token, nullptr);
    if (!status.ok()) blocked_ = true;
    if (Ticks(w) != before) {
      for (auto& [key, g] : gradients) Issue(w, key, g);
    }
    if (status.ok()) CheckWrite(w, step);
    return status;
  }
  Status Flush(size_t w) {
    const Status status = device(w) != nullptr ? device(w)->Flush() : client(w).Flush();
    if (!status.ok()) return status;
    for (auto& [key, issued] : issued_) {
      if (UnappliedTicks(w, key) != 0) Error("unapplied ticks after a flush", w, key);
    }
    return status;
  }

  // --- the store's fate
  Bytes Snapshot(uint32_t p) {
    Bytes bytes;
    service_.WithPartition(p, [&](Partition& partition) { partition.Serialize(&bytes); });
    return bytes;
  }
  // The partition comes to life again from `bytes`; connections close, or (a proxy in between) do not.
  void Restart(uint32_t p, const Bytes& bytes, bool close = true) {
    Require(service_.Revive(p, Span<const uint8_t>(bytes.data(), bytes.size())));
    LimitHoldings(p);
    if (!close) return;
    for (auto& worker : workers_) worker.transport->PartitionMoved(p);
  }
  void Failover(uint32_t p, const Bytes& older) {
    lossy_ = true;
    Restart(p, older);
  }
  // The one replica, which is as old as the last question about it, takes over.
  void Promote(uint32_t p) { Failover(p, replica_[p]); }
  bool replica_stands_still = false;

  // --- invariants

  // I5, at any moment: every tick is at the server, in a frame that is not applied, queued or in a line,
  // once.
  void CheckConservation() {
    if (!keeps() && lossy_) return;
    std::map<TableKey, int64_t> found;
    for (size_t w = 0; w < workers_.size(); ++w) {
      for (const Schema& schema : schemas_) {
        TableCache* cache = client(w).cache(schema->id());
        cache->ForEachLine([&](uint32_t line) {
          found[{schema->id(), cache->lines().meta(line).key}] += cache->pending(line);
        });
        for (const TableCache::Queued& q : cache->queue()) found[{schema->id(), q.key}] += q.ticks;
        if (device(w) == nullptr) continue;
        for (auto& [key, row] : device(w)->rows(schema->id())) found[{schema->id(), key}] += row.ticks;
      }
      for (uint32_t p = 0; p < service_.partitions(); ++p) {
        const Link& link = client(w).link(p);
        const uint64_t last =
            service_.WithPartition(p, [&](Partition& partition) { return partition.LastSeq(link.client); });
        for (const PushFrame& frame : link.frames) {
          if (frame.seq <= last) continue;
          for (const PushFrame::Section& s : frame.sections) {
            for (size_t i = 0; i < s.keys.size(); ++i)
              found[{s.cache->schema().id(), s.keys[i]}] += s.ticks[i];
          }
        }
      }
    }
    for (auto& [key, issued] : issued_) {
      found[key] += ServerClock(key);
      int64_t ticks = 0;
      for (uint64_t n : issued) ticks += static_cast<int64_t>(n);
      if (found[key] != ticks) {
        Error("I5: " + std::to_string(ticks) + " ticks issued, " + std::to_string(found[key]) + " found", 0,
              key);
      }
    }
  }
  // After everything was flushed: the server holds every tick and every change.
  void CheckDrained() {
    for (auto& [key, issued] : issued_) {
      int64_t ticks = 0;
      for (uint64_t n : issued) ticks += static_cast<int64_t>(n);
      if (ServerClock(key) != ticks) {
        Error(
            "drained: " + std::to_string(ticks) + " ticks issued, clock " + std::to_string(ServerClock(key)),
            0, key);
      }
      const std::vector<float> row = ServerRow(key);
      if (counting()) {
        const std::vector<float>& sum = sums_[key];
        for (size_t i = 0; i < sum.size(); ++i) {
          if (row[i] != kInitial - sum[i]) Error("drained: value " + std::to_string(row[i]), 0, key);
        }
      } else if (config_.workers == 1) {
        Compare("drained", key, row.data(), config_.tolerance);
      }
    }
  }
  // Every worker hears from every partition (and so of its fate), then flushes.
  Status Drain() {
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

  uint64_t UnappliedTicks(size_t w, const TableKey& key) {
    return device(w) != nullptr ? device(w)->UnappliedTicks(key.first, key.second)
                                : client(w).UnappliedTicks(key.first, key.second);
  }
  int64_t ServerClock(const TableKey& key) {
    Clock clock = 0;
    OnServer(key, [&](const RowStore& rows, uint32_t row) { clock = rows.meta(row).clock; });
    return clock;
  }
  std::vector<float> ServerRow(const TableKey& key) {
    const TableSchema& schema = *SchemaOf(key.first);
    std::vector<float> copy(schema.row_floats());
    schema.InitRow(key.second, copy.data());
    OnServer(key, [&](const RowStore& rows, uint32_t row) {
      copy.assign(rows.data(row), rows.data(row) + rows.row_floats());
    });
    return copy;
  }
  uint64_t Issued(size_t w, const TableKey& key) {
    const auto it = issued_.find(key);
    return it == issued_.end() ? 0 : it->second[w];
  }
  uint64_t Sum(uint64_t Counters::*counter) {
    uint64_t sum = 0;
    for (size_t w = 0; w < workers_.size(); ++w) {
      for (const Schema& schema : schemas_) sum += client(w).Stats(schema->id()).*counter;
    }
    return sum;
  }
  // A read through BeginRead and Progress ends with this.
  void CheckRead(size_t w, TestStep* step) {
    for (auto& [where, p] : step->parts()) {
      for (size_t u = 0; u < p.keys.size(); ++u) CheckValue(w, {p.table, p.keys[u]}, p.values[u], *step);
    }
  }
  void Error(const std::string& what, size_t w, const TableKey& key) {
    errors_.push_back(what + " (worker " + std::to_string(w) + ", table " + SchemaOf(key.first)->spec().name +
                      ", key " + std::to_string(key.second) + ")");
  }

 private:
  struct Worker {
    std::unique_ptr<FaultyTransport> transport;
    std::unique_ptr<Client> client;
    std::unique_ptr<ToyDevice> device;
  };

  static void Require(const Status& status) {
    if (!status.ok()) std::abort();
  }
  void LimitHoldings(uint32_t p) {
    service_.WithPartition(p,
                           [&](Partition& partition) { partition.holdings().set_limit(config_.most_held); });
  }
  void AddWorker() {
    Worker worker;
    worker.transport = std::make_unique<FaultyTransport>(&service_, random_.Next(), config_.shards);
    worker.transport->faults = config_.faults;
    worker.transport->replicate = [this](uint32_t p) {
      if (replica_stands_still) return false;
      replica_[p] = Snapshot(p);
      return true;
    };
    worker.client = std::make_unique<Client>(worker.transport.get(), config_.client);
    if (workers_.size() < config_.devices) {
      worker.device = std::make_unique<ToyDevice>(worker.client.get(), service_.id(0), random_.Next());
    }
    CacheConfig cache = config_.cache;
    if (worker.device != nullptr) cache.checks = "asked";
    for (const Schema& schema : schemas_) {
      Require(worker.device != nullptr ? worker.device->AddTable(schema, cache)
                                       : worker.client->AddTable(schema, cache));
    }
    workers_.push_back(std::move(worker));
  }
  uint64_t Ticks(size_t w) {
    uint64_t ticks = 0;
    for (const Schema& schema : schemas_) ticks += client(w).Stats(schema->id()).ticks;
    return ticks;
  }
  const Schema& SchemaOf(uint64_t id) const {
    for (const Schema& schema : schemas_) {
      if (schema->id() == id) return schema;
    }
    std::abort();
  }
  // fn(rows, row) if the store has the row.
  template <typename Fn>
  void OnServer(const TableKey& key, Fn fn) {
    const uint64_t hash = HashKey(key.second, service_.hash_seed());
    service_.WithPartition(PartitionOf(hash, service_.partitions()), [&](Partition& p) {
      const Shard* shard = p.Find(key.first);
      const uint32_t row = shard == nullptr ? kNoRow : shard->rows().Find(key.second, hash);
      if (row != kNoRow) fn(shard->rows(), row);
    });
  }

  void Issue(size_t w, const TableKey& key, const std::vector<float>& g) {
    auto& issued = issued_[key];
    issued.resize(config_.workers);
    ++issued[w];
    auto& sum = sums_[key];
    sum.resize(g.size());
    for (size_t i = 0; i < g.size(); ++i) sum[i] += g[i];
    if (counting() || config_.workers > 1) return;
    const TableSchema& schema = *SchemaOf(key.first);
    std::vector<float> used = g;
    schema.Tick(learning_rate(), used.data(), Mirror(key), nullptr);
  }
  float* Mirror(const TableKey& key) {
    std::vector<float>& row = mirror_[key];
    if (row.empty()) {
      row.resize(SchemaOf(key.first)->row_floats());
      SchemaOf(key.first)->InitRow(key.second, row.data());
    }
    return row.data();
  }
  void Compare(const char* what, const TableKey& key, const float* value, float tolerance) {
    const float* expected = Mirror(key);
    for (uint32_t i = 0; i < SchemaOf(key.first)->dim(); ++i) {
      if (std::abs(value[i] - expected[i]) <= tolerance * (1 + std::abs(expected[i]))) continue;
      Error(std::string(what) + ": " + std::to_string(value[i]) + ", one process has " +
                std::to_string(expected[i]),
            0, key);
      return;
    }
  }

  void NoteBegin(TestStep* step) {
    for (auto& [where, p] : step->parts()) {
      for (Key key : p.keys) {
        TestStep::Begin& begin = step->begin[{p.table, key}];
        begin.server = ServerClock({p.table, key});
        for (uint32_t v = 0; v < config_.workers; ++v) begin.issued.push_back(Issued(v, {p.table, key}));
      }
    }
  }
  // A read of a batch that was checked ahead counts from there, unless too many others came in between.
  void BeginAhead(size_t w, TestStep* step) {
    if (ahead_.empty() || config_.check_ahead == 0 || config_.cache.pull_bound == 0) return;
    for (const Ahead& ahead : ahead_[w]) {
      if (!ahead.step->SameKeys(*step)) continue;
      if (ahead.passed <= config_.check_ahead) step->begin = ahead.step->begin;
      return;
    }
  }
  void FinishAhead(size_t w, const TestStep& step) {
    if (ahead_.empty()) return;
    bool found = false;
    for (size_t i = 0; i < ahead_[w].size();) {
      if (!found && ahead_[w][i].step->SameKeys(step)) {
        found = true;
        ahead_[w].erase(ahead_[w].begin() + static_cast<ptrdiff_t>(i));
      } else {
        ahead_[w][i++].passed += step.token != 0;
      }
    }
  }

  // I2, I3 and I4 for one value that a read has returned.
  void CheckValue(size_t w, const TableKey& key, const float* value, const TestStep& step) {
    const auto found = step.begin.find(key);
    const TestStep::Begin* begin = found == step.begin.end() ? nullptr : &found->second;
    // A row of a training read stays in its line and is written to; one of inference is a copy.
    const bool copied = begin != nullptr && step.token == 0;
    if (!counting()) {
      if (config_.workers == 1 && !copied) {
        Compare("I4", key, value, std::max(config_.tolerance, config_.read_tolerance));
      }
      return;
    }
    if (!keeps() && lossy_) return;
    TableCache* cache = client(w).cache(key.first);
    if (cache->schema().dim() <= config_.workers) return;
    int64_t contained = 0;
    int64_t unseen = 0;
    for (uint32_t v = 0; v < config_.workers; ++v) {
      const auto count = static_cast<int64_t>(kInitial - value[v]);
      contained += count;
      const auto issued = static_cast<int64_t>(Issued(v, key));
      const int64_t before = begin == nullptr ? issued : static_cast<int64_t>(begin->issued[v]);
      const int64_t least = copied ? before : issued;
      if (v == w && (count > issued || count < least)) {
        Error("I4: sees " + std::to_string(count) + " of its own " + std::to_string(issued) + " ticks", w,
              key);
      }
      if (count < 0 || count > issued) {
        Error("sees " + std::to_string(count) + " ticks of " + std::to_string(v) + ", who made " +
                  std::to_string(issued),
              w, key);
      }
      if (v != w) unseen += std::max<int64_t>(before - count, 0);
    }
    if (device(w) != nullptr) {
      const ToyDevice::Row* row = device(w)->Find(key, step.token);
      if (row != nullptr && row->x.data() == value && !row->invalid && row->base + row->ticks != contained) {
        Error("base " + std::to_string(row->base) + " + " + std::to_string(row->ticks) +
                  ", but the row contains " + std::to_string(contained) + " ticks",
              w, key);
      }
    }
    const uint32_t line = cache->lines().Find(key.second);
    if (line != kNoRow && cache->lines().data(line) == value && !cache->invalid(line)) {
      if (cache->base(line) + cache->pending(line) != contained) {
        Error("base " + std::to_string(cache->base(line)) + " + pending " +
                  std::to_string(cache->pending(line)) + ", but the row contains " +
                  std::to_string(contained) + " ticks",
              w, key);
      }
    }
    const int64_t pull = config_.cache.pull_bound;
    const int64_t push = config_.cache.push_bound;
    // A read was checked after it had begun; a failover may have taken the store back since then.
    const int64_t server = begin == nullptr ? ServerClock(key) : std::min(begin->server, ServerClock(key));
    if (pull != kUnbounded && server - contained > pull) {
      Error("I2: server at " + std::to_string(server) + ", row at " + std::to_string(contained), w, key);
    }
    if (pull != kUnbounded && push != kUnbounded && !lossy_ && !blocked_ &&
        unseen > pull + (static_cast<int64_t>(config_.workers) - 1) * (push + 1)) {
      Error("I3: " + std::to_string(unseen) + " foreign ticks unseen", w, key);
    }
  }
  void CheckWrite(size_t w, TestStep* step) {
    if (config_.cache.push_bound == kUnbounded) return;
    for (auto& [where, p] : step->parts()) {
      for (size_t u = 0; u < p.keys.size(); ++u) {
        if (!p.touched[u]) continue;
        const uint64_t unapplied = UnappliedTicks(w, {p.table, p.keys[u]});
        if (unapplied <= static_cast<uint64_t>(config_.cache.push_bound)) continue;
        Error("I1: " + std::to_string(unapplied) + " ticks unapplied after a write", w, {p.table, p.keys[u]});
      }
    }
  }

  const WorldConfig config_;
  LocalService service_;
  Random random_;
  std::vector<Schema> schemas_;
  std::vector<Worker> workers_;
  struct Ahead {
    std::unique_ptr<TestStep> step;
    size_t passed;  // training reads with other keys
  };
  std::vector<std::vector<Ahead>> ahead_;  // by worker: what was prefetched, and how things stood then
  uint64_t last_token_ = 0;
  bool lossy_ = false;                                // a failover lost acknowledged frames
  bool blocked_ = false;                              // a write gave up: its ticks may be past the push bound
  std::map<TableKey, std::vector<uint64_t>> issued_;  // by worker
  std::map<TableKey, std::vector<float>> sums_;       // of gradients
  std::map<TableKey, std::vector<float>> mirror_;
  std::map<uint32_t, Bytes> replica_;  // partitions as the replica has them
  std::vector<std::string> errors_;
};

}  // namespace het::testing

#endif  // HET_TESTS_CPP_TESTING_WORLD_H_
