#include "benchmarks/traffic/simulation.h"

#include <boost/unordered/unordered_flat_map.hpp>

namespace het::traffic {
namespace {

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

class Watcher : public ReplayWatcher {
 public:
  Watcher(const Stream& stream, const Settings& settings)
      : settings_(settings), ticks_(stream.distinct(), 1), contained_(stream.distinct()) {
    for (uint32_t id = 0; id < stream.distinct(); ++id) ids_[stream.key(id)] = id;
  }

  std::unique_ptr<ReplayNetwork> Network(LocalService* service, uint32_t shards) override {
    return std::make_unique<CountingTransport>(service, shards);
  }
  void Begin(ReplayNetwork* network, Client* client) override {
    const uint64_t table = settings_.replay.schema->id();
    networks_.push_back(static_cast<CountingTransport*>(network));
    clients_.push_back(client);
    networks_.back()->cached = [cache = client->cache(table)](Key key) {
      return cache->lines().Find(key) != kNoRow;
    };
  }
  void BeginCounting() override {
    counting_ = true;
    before_ = Sum();
    for (Client* client : clients_) outcome_.unsent_rows_before += Cache(client).unsent().keys();
  }
  Status SeeRead(const ReplayBatch& batch, const Vector<const float*>& values) override;
  void SeeWrite(size_t client, const ReplayBatch& batch, Span<const OthersKeys> wanted) override;
  void EndWrite(size_t client) override { networks_[client]->written()->clear(); }
  void EndStep() override;
  void End() override;
  Outcome Take() { return std::move(outcome_); }

 private:
  const TableCache& Cache(Client* client) const { return *client->cache(settings_.replay.schema->id()); }
  Counts Sum() const {
    Counts sum;
    for (const CountingTransport* network : networks_) sum += network->counts();
    return sum;
  }
  // fn(id, place of the key among the plan's entries) for each unique key.
  template <typename Fn>
  void ForEachId(const BatchPlan& plan, Fn fn) const {
    for (const BatchPlan::Group& group : plan.groups()) {
      for (size_t u = 0; u < group.uniques; ++u) fn(ids_.at(plan.keys(group)[u]), group.first + u);
    }
  }

  const Settings& settings_;
  boost::unordered_flat_map<Key, uint32_t, KeyHash> ids_;
  std::vector<CountingTransport*> networks_;
  std::vector<Client*> clients_;
  std::vector<uint32_t> ticks_;      // made by anyone, of every id
  std::vector<uint32_t> contained_;  // in the row of every id that the running read brought
  bool counting_ = false;
  Counts before_;
  Outcome outcome_;
};

Status Watcher::SeeRead(const ReplayBatch& batch, const Vector<const float*>& values) {
  if (!counting_) return Status();
  for (const BatchPlan::Group& group : batch.plan.groups()) outcome_.uses += group.uniques;
  if (!settings_.replay.ones) return Status();
  std::string fault;
  ForEachId(batch.plan, [&](uint32_t id, size_t place) {
    const float* const value = values[place];
    contained_[id] = static_cast<uint32_t>(value[0]);
    if (contained_[id] > ticks_[id] || value[0] != value[settings_.dim - 1]) {
      fault =
          "a row holds " + std::to_string(value[0]) + " ticks; " + std::to_string(ticks_[id]) + " were made";
    }
  });
  ForEachId(batch.plan, [&](uint32_t id, size_t) {
    const size_t lag = ticks_[id] - contained_[id];
    if (lag >= outcome_.staleness.size()) outcome_.staleness.resize(lag + 1);
    ++outcome_.staleness[lag];
  });
  return fault.empty() ? Status() : Status(Code::kInternal, fault);
}

void Watcher::SeeWrite(size_t client, const ReplayBatch& batch, Span<const OthersKeys> wanted) {
  CountingTransport::Keys* const written = networks_[client]->written();
  for (const OthersKeys& keys : wanted) written->insert(keys.keys.begin(), keys.keys.end());
  for (const BatchPlan::Group& group : batch.plan.groups()) {
    for (size_t u = 0; u < group.uniques; ++u) written->insert(batch.plan.keys(group)[u]);
  }
  ForEachId(batch.plan, [&](uint32_t id, size_t) { ++ticks_[id]; });
}

void Watcher::EndStep() { outcome_.counts = Sum(); }

void Watcher::End() {
  outcome_.counts -= before_;
  outcome_.all = Sum();
  for (Client* client : clients_) {
    const Counters& own = client->Stats(settings_.replay.schema->id());
    outcome_.client_bytes +=
        own.row_bytes_in + own.row_bytes_out + own.metadata_bytes_in + own.metadata_bytes_out;
    outcome_.client_rows += own.miss_pull + own.update_pull + own.bound_push + own.evict_push;
    outcome_.pull = Cache(client).policy().config().pull_bound;
    outcome_.push = Cache(client).policy().config().push_bound;
  }
}

}  // namespace

Result<Outcome> Simulate(const Stream& stream, Settings settings) {
  ReplaySettings& replay = settings.replay;
  replay.schema = MakeSchema(settings.dim, settings.rows);
  if (replay.schema == nullptr) {
    return InvalidArgument("dim is " + std::to_string(settings.dim) + " and the rows are of " +
                           settings.rows + "; see TableSchema");
  }
  const size_t of_step = static_cast<size_t>(replay.workers) * settings.batch;
  replay.warm_steps = (settings.warm_samples + of_step - 1) / of_step;
  replay.ones = replay.cache.wire == RowFormat::kFloat32 && settings.rows == "sgd";
  replay.cache.workers = replay.workers;
  const Schema followed = MakeSchema(settings.dim, settings.optimizer);
  if (followed == nullptr) return InvalidArgument("there is no optimizer '" + settings.optimizer + "'");
  replay.cache.Follow(followed->optimizer());
  replay.cache.staleness.reset();  // else the rows' own optimizer would be followed
  const size_t entries = settings.batch * stream.fields();
  const auto append = [&](size_t batch, std::vector<Key>* keys) {
    const uint32_t* const ids = stream.sample(batch * settings.batch);
    for (size_t i = 0; i < entries; ++i) keys->push_back(stream.key(ids[i]));
  };
  Watcher watcher(stream, settings);
  Replay run({stream.samples() / settings.batch, append}, replay, &watcher);
  std::vector<Key> keys(stream.distinct());
  for (uint32_t id = 0; id < stream.distinct(); ++id) keys[id] = stream.key(id);
  HET_RETURN_IF_ERROR(run.MakeRows({keys.data(), keys.size()}));
  HET_ASSIGN_OR_RETURN(ReplayOutcome replayed, run.Run());
  Outcome outcome = watcher.Take();
  outcome.replay = replayed;
  return outcome;
}

}  // namespace het::traffic
