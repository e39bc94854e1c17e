#include "tests/testing/redis/ps_fleet.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "het_tf/core/client/client.h"
#include "het_tf/ext/ps/client/redis_store.h"
#include "het_tf/ext/ps/client/redis_transport.h"
#include "tests/testing/random.h"
#include "tests/testing/table_specs.h"
#include "tests/testing/test_step.h"

namespace het::testing {

TableSpec PsWorkerConfig::spec() const {
  return NewSpec("counting", workers + 1, "sgd", {"constant", kLedgerInitial, 0});
}

int64_t PsWorkerConfig::MostUnseen(Clock ticks, int64_t in_progress) const {
  if (cache.pull_bound == kUnbounded || cache.push_bound == kUnbounded) return kUnbounded;
  const int64_t held_back = cache.sync().most_unapplied(ticks);
  return cache.pull_bound.Of(ticks) + (static_cast<int64_t>(workers) - 1) * (held_back + in_progress);
}

// A reader of the parameter server: a client with its connections.
class PsClient {
 public:
  static constexpr double kOpenSeconds = 30;

  // Aborts the process if there is no server: the test must have started one.
  PsClient(const PsWorkerConfig& config, const CacheConfig& cache)
      : schema_(TableSchema::Create(config.spec()).value()),
        store_(std::move(RedisStore::Open(config.address, "", kOpenSeconds, nullptr).value())),
        cluster_(config.address) {
    if (!store_->CreateTable(schema_).ok() || !cluster_.Refresh(kOpenSeconds).ok()) std::abort();
    transport_ = std::make_unique<RedisTransport>(std::move(cluster_), store_->keys(), store_->hash_seed());
    client_ = std::make_unique<Client>(transport_.get(), config.client);
    if (!client_->AddTable(schema_, cache).ok()) std::abort();
  }

  Client& client() { return *client_; }
  RedisStore& store() { return *store_; }
  const TableSchema& schema() const { return *schema_; }
  std::unique_ptr<TestStep> NewStep(const std::vector<Key>& keys) {
    auto step = std::make_unique<TestStep>();
    step->Add(*schema_, transport_->id(0), keys);
    return step;
  }

 private:
  const Schema schema_;
  std::unique_ptr<RedisStore> store_;
  RedisCluster cluster_;  // moved on to the transport
  std::unique_ptr<RedisTransport> transport_;
  std::unique_ptr<Client> client_;
};

// A worker process with a random schedule, and the checks of its reads: I1-I4 of docs/protocol.md, against
// the ledger and, for I2, against a second connection's read of the server just before.
class PsWorker {
 public:
  PsWorker(const PsWorkerConfig& config, Ledger* ledger, uint32_t rank)
      : config_(config),
        ledger_(ledger),
        rank_(rank),
        random_(config.seed * kMostWorkers + rank),
        ps_(config, config.cache),
        observer_(config, CacheConfig()) {}

  void Run() {
    Mine().ready = true;
    for (uint32_t v = 0; v < config_.workers; ++v) {
      while (!ledger_->workers[v].ready) std::this_thread::yield();
    }
    while (!ledger_->stop) {
      if (!OneStep()) return;
      ++Mine().steps;
      Publish();
      if (random_.Chance(0.2)) Pause();
    }
    // A worker resends a partition's lost updates at its next contact.
    std::vector<Key> all;
    for (Key key = 0; key < kLedgerKeys; ++key) all.push_back(key);
    if (Read(ps_.NewStep(all), /*training=*/false) == nullptr) return;
    Succeeds(ps_.client().Flush(), "the last flush");
    Publish();
  }

 private:
  // The state when a read began, which it must see within the bounds.
  struct Before {
    int64_t begun[kMostWorkers], done[kMostWorkers];
    int64_t foreign_at_server = -1;  // not asked
  };

  Ledger::Worker& Mine() { return ledger_->workers[rank_]; }
  void Pause() { std::this_thread::sleep_for(std::chrono::duration<double>(random_.Unit() * 0.001)); }
  bool Succeeds(const Status& status, const char* what) {
    if (!status.ok())
      ledger_->Error("worker " + std::to_string(rank_) + ", " + what + ": " + status.message());
    return status.ok();
  }
  void Publish() {
    uint64_t pushes = 0;
    for (uint32_t p = 0; p < ps_.store().keys().size(); ++p)
      pushes += ps_.client().session(p).log().next_seq() - 1;
    Mine().pushes = pushes;
    Mine().resends = ps_.client().Stats(ps_.schema().id()).resends;
    Mine().lost = ps_.client().Stats(ps_.schema().id()).lost_pushes;
  }
  std::vector<Key> Keys() {
    std::vector<Key> keys;
    for (uint64_t n = random_.Below(13); n > 0; --n) {
      keys.push_back(random_.Between(0, random_.Chance(0.5) ? 3 : kLedgerKeys - 1));
    }
    return keys;
  }

  // Returns false if a call failed, which the ledger records.
  bool OneStep() {
    if (random_.Chance(0.03)) return Succeeds(ps_.client().Flush(), "a flush");
    const uint64_t what = random_.Below(20);
    if (what == 1) return Read(ps_.NewStep(Keys()), /*training=*/false) != nullptr;
    if (what == 2) return Read(ps_.NewStep(Keys()), true) != nullptr;  // its gradient never comes
    if (what == 3 && open_ == nullptr) {
      open_ = Read(ps_.NewStep(Keys()), true);
      return open_ != nullptr;
    }
    if (what == 4 && open_ != nullptr) return Write(std::move(open_));
    auto step = Read(ps_.NewStep(Keys()), true);
    if (random_.Chance(0.05)) Pause();
    return step != nullptr && Write(std::move(step));
  }
  // Returns null after a failure.
  std::unique_ptr<TestStep> Read(std::unique_ptr<TestStep> step, bool training) {
    step->token = training ? ++last_token_ : 0;
    const bool ask = random_.Chance(0.2);
    // An inference read: the observer keeps no row, so it fetches every row.
    if (ask && !Succeeds(observer_.client().Read(step->MakeRead(), 0), "a look at the server"))
      return nullptr;
    std::map<Key, Before> now;
    for (Key key = 0; key < kLedgerKeys; ++key) {
      for (uint32_t v = 0; v < config_.workers; ++v) {
        now[key].done[v] = TicksOf(v, key).done;
        now[key].begun[v] = TicksOf(v, key).begun;
      }
    }
    for (auto& [where, part] : step->parts()) {
      for (size_t u = 0; u < part.keys.size() && ask; ++u) {
        now[part.keys[u]].foreign_at_server = Foreign(part.values[u]);
      }
    }
    if (!Succeeds(ps_.client().Read(step->MakeRead(), step->token), "a lookup")) return nullptr;
    // With notified checks, bounds hold as of the answer to the lookup before.
    const bool earlier = training && config_.cache.checks != Checks::kAsked && !before_.empty();
    for (auto& [where, part] : step->parts()) {
      for (size_t u = 0; u < part.keys.size(); ++u) {
        CheckRow(part.keys[u], part.values[u], (earlier ? before_ : now)[part.keys[u]]);
      }
    }
    if (training && !step->parts().empty()) before_ = std::move(now);  // an empty lookup does not count
    return step;
  }
  bool Write(std::unique_ptr<TestStep> step) {
    for (auto& [where, part] : step->parts()) {
      for (size_t u = 0; u < part.keys.size(); ++u) {
        part.touched[u] = !random_.Chance(0.1);
        if (!part.touched[u]) continue;
        float* g = part.sums.data() + u * part.dim;
        const int64_t last = random_.Between(-3, 3);
        std::fill_n(g, part.dim, 0.0f);
        g[rank_] = 1;
        g[config_.workers] = static_cast<float>(last);
        TicksOf(rank_, part.keys[u]).sum += last;
        ++TicksOf(rank_, part.keys[u]).begun;
      }
    }
    std::map<Key, Clock> before;
    for (auto& [where, part] : step->parts()) {
      for (Key key : part.keys) before[key] = ClockOf(key);
    }
    if (!Succeeds(ps_.client().Write(step->MakeWrite(1), step->token, nullptr), "an update")) return false;
    for (auto& [where, part] : step->parts()) {
      for (size_t u = 0; u < part.keys.size(); ++u) {
        if (!part.touched[u]) continue;
        ++TicksOf(rank_, part.keys[u]).done;
        // The base may have fallen meanwhile, with the store's clock; or the row has left.
        const Clock now = ClockOf(part.keys[u]);
        const Clock clock = std::max(now == 0 ? AllTicks(part.keys[u]) : now, before[part.keys[u]] + 1);
        const int64_t bound = config_.cache.sync().most_unapplied(clock);
        if (bound == kUnbounded) continue;
        const auto unapplied =
            static_cast<int64_t>(ps_.client().UnappliedTicks(ps_.schema().id(), part.keys[u]));
        ledger_->held_back += unapplied > 0;
        if (unapplied > bound) {
          ledger_->Error("I1: worker " + std::to_string(rank_) + " ends a step with " +
                         std::to_string(unapplied) + " unapplied ticks of key " +
                         std::to_string(part.keys[u]));
        }
      }
    }
    return true;
  }
  Ledger::Ticks& TicksOf(uint32_t v, Key key) { return ledger_->workers[v].ticks[key]; }
  // Ticks of all workers, including those of running steps.
  Clock AllTicks(Key key) {
    Clock ticks = 0;
    for (uint32_t v = 0; v < config_.workers; ++v) ticks += TicksOf(v, key).begun;
    return ticks;
  }

  // The clock of this worker's copy of a row; 0: no copy.
  Clock ClockOf(Key key) {
    const TableCache* cache = ps_.client().cache(ps_.schema().id());
    const uint32_t line = cache->lines().Find(key);
    return line == kNoRow ? 0 : cache->lines().clock(line);
  }
  // The other workers' ticks in a row.
  int64_t Foreign(const float* value) const {
    int64_t ticks = 0;
    for (uint32_t v = 0; v < config_.workers; ++v) {
      if (v != rank_) ticks += static_cast<int64_t>(kLedgerInitial - value[v]);
    }
    return ticks;
  }
  void CheckRow(Key key, const float* value, const Before& before) {
    const auto error = [&](const std::string& what) {
      ledger_->Error(what + " (worker " + std::to_string(rank_) + ", key " + std::to_string(key) + ", step " +
                     std::to_string(Mine().steps) + ")");
    };
    int64_t unseen = 0, unseen_done = 0;
    for (uint32_t v = 0; v < config_.workers; ++v) {
      const auto seen = static_cast<int64_t>(kLedgerInitial - value[v]);
      const int64_t there_are = TicksOf(v, key).begun;
      if (seen < 0 || seen > there_are || (v == rank_ && seen != there_are)) {
        error((v == rank_ ? "I4: sees " : "sees ") + std::to_string(seen) + " of " +
              std::to_string(there_are) + " ticks of worker " + std::to_string(v));
      }
      if (v == rank_) continue;
      unseen += std::max<int64_t>(before.begun[v] - seen, 0);
      unseen_done += std::max<int64_t>(before.done[v] - seen, 0);
    }
    if (config_.may_lose) return;
    const int64_t behind = before.foreign_at_server - Foreign(value);
    if (config_.cache.pull_bound != kUnbounded && before.foreign_at_server >= 0 &&
        behind > config_.cache.pull_bound.Of(AllTicks(key))) {
      error("I2: the row lacks " + std::to_string(behind) + " foreign ticks that the server had");
    }
    const int64_t most = config_.most_unseen(AllTicks(key));
    if (most == kUnbounded) return;
    const int64_t most_done = config_.most_unseen_done(AllTicks(key));
    if (unseen > most || unseen_done > most_done) {
      error("I3: " + std::to_string(unseen) + " foreign ticks unseen, " + std::to_string(unseen_done) +
            " of them of ended steps; allowed are " + std::to_string(most) + " and " +
            std::to_string(most_done));
    }
  }

  const PsWorkerConfig config_;
  Ledger* const ledger_;
  const uint32_t rank_;
  Random random_;
  PsClient ps_;
  PsClient observer_;
  uint64_t last_token_ = 0;
  std::map<Key, Before> before_;    // at the begin of the newest training lookup
  std::unique_ptr<TestStep> open_;  // a lookup whose gradient comes later
};

PsFleet::PsFleet(const PsWorkerConfig& config, RedisShards* shards)
    : config_(config), ledger_(NewShared<Ledger>()), pids_(config.workers, -1), exits_(config.workers, -1) {
  if (config_.address.nodes.empty()) config_.address = shards->address();
  // Few partitions, so that nearly every step pushes to each. A new namespace would have kNewPartitions.
  RedisCluster cluster(config_.address);
  EXPECT_TRUE(cluster.Refresh(10).ok());
  const std::string key = MetaKey("");
  const auto made =
      cluster.Ask(key, {"HSET", key, "partitions", std::to_string(kFleetPartitions), "hash_seed", "99"}, 10);
  EXPECT_TRUE(made.ok() && made.value().ok());
  observer_ = std::make_unique<PsClient>(config_, CacheConfig());
}

const std::vector<std::string>& PsFleet::partition_keys() { return observer_->store().keys(); }

PsFleet::~PsFleet() {
  for (pid_t pid : pids_) {
    if (pid <= 0) continue;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

void PsFleet::Start() {
  for (uint32_t w = 0; w < config_.workers; ++w) {
    pids_[w] = fork();
    if (pids_[w] != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    PsWorkerConfig own = config_;
    own.client.notice = [this, w](const std::string& text) { ledger_->Notice(w, text); };
    PsWorker(own, ledger_.get(), w).Run();
    _exit(0);
  }
  Await([this] {
    for (uint32_t w = 0; w < config_.workers; ++w) {
      if (!ledger_->workers[w].ready) return false;
    }
    return true;
  });
}

void PsFleet::KillWorker(uint32_t w) {
  kill(pids_[w], SIGKILL);
  waitpid(pids_[w], &exits_[w], 0);
  pids_[w] = -1;
}

bool PsFleet::Running() {
  bool any = false;
  for (uint32_t w = 0; w < config_.workers; ++w) {
    if (pids_[w] > 0 && waitpid(pids_[w], &exits_[w], WNOHANG) == pids_[w]) pids_[w] = -1;
    any = any || pids_[w] > 0;
  }
  return any;
}

void PsFleet::AwaitPushes(uint64_t more) {
  const uint64_t until = ledger_->Sum(&Ledger::Worker::pushes) + more;
  Await([&] { return ledger_->Sum(&Ledger::Worker::pushes) >= until; });
}

void PsFleet::Finish() {
  ledger_->stop = true;
  Await([this] { return !Running(); });
  for (uint32_t w = 0; w < config_.workers; ++w) {
    EXPECT_EQ(pids_[w], -1) << "worker " << w << " hangs";
    EXPECT_TRUE(WIFEXITED(exits_[w]) ? WEXITSTATUS(exits_[w]) == 0 : WTERMSIG(exits_[w]) == SIGKILL)
        << "worker " << w << " ended with " << exits_[w];
  }
  EXPECT_EQ(ledger_->FirstError(), "") << ledger_->errors << " errors";
}

void PsFleet::CheckServer() {
  std::vector<Key> keys;
  for (Key key = 0; key < kLedgerKeys; ++key) keys.push_back(key);
  auto step = observer_->NewStep(keys);
  std::map<std::pair<uint32_t, Key>, int64_t> done;
  for (uint32_t w = 0; w < config_.workers; ++w) {
    for (Key key : keys) done[{w, key}] = ledger_->workers[w].ticks[key].done;
  }
  // An inference read: it keeps no row, so it fetches every row.
  const Status status = observer_->client().Read(step->MakeRead(), 0);
  ASSERT_TRUE(status.ok()) << status.message();
  const SyncPolicy sync = config_.cache.sync();
  for (const auto& [who, ticks] : done) {
    const float* value = step->Value(observer_->schema().id(), who.second);
    const int64_t lacks = ticks - static_cast<int64_t>(kLedgerInitial - value[who.first]);
    Clock all = 0;
    for (uint32_t w = 0; w < config_.workers; ++w) all += ledger_->workers[w].ticks[who.second].begun;
    if (!sync.bounds_pushes() || lacks <= sync.most_unapplied(all)) continue;
    ledger_->Error("I1: the server lacks " + std::to_string(lacks) + " ticks that worker " +
                   std::to_string(who.first) + " has finished, key " + std::to_string(who.second));
  }
}

void PsFleet::CheckConserved(uint32_t dead) {
  const auto scanned = observer_->store().Scan(observer_->schema());
  ASSERT_TRUE(scanned.ok()) << scanned.status().message();
  const TableRows& rows = scanned.value();
  const uint32_t dim = config_.workers + 1;
  std::map<Key, size_t> at;
  for (size_t i = 0; i < rows.keys.size(); ++i) at[rows.keys[i]] = i;
  const std::vector<float> fresh(dim, kLedgerInitial);
  for (Key key = 0; key < kLedgerKeys; ++key) {
    const auto found = at.find(key);
    const float* value = found == at.end() ? fresh.data() : rows.rows.data() + found->second * dim;
    int64_t ticks = 0;
    int64_t sum = 0;
    for (uint32_t w = 0; w < config_.workers; ++w) {
      const Ledger::Ticks& made = ledger_->workers[w].ticks[key];
      const auto there = static_cast<int64_t>(kLedgerInitial - value[w]);
      ticks += there;
      sum += made.sum;
      EXPECT_LE(there, made.begun) << "ticks of worker " << w << ", key " << key;
      if (w == dead) {
        EXPECT_LE(made.done - there, config_.cache.push_bound.most)
            << "key " << key << ": more than s_push is lost";
      } else {
        EXPECT_EQ(there, made.begun) << "ticks of surviving worker " << w << ", key " << key;
      }
    }
    if (dead == kMostWorkers) {
      EXPECT_EQ(kLedgerInitial - value[config_.workers], static_cast<float>(sum)) << "key " << key;
    }
    EXPECT_EQ(found == at.end() ? 0 : rows.clocks[found->second], ticks) << "clock of key " << key;
  }
}

}  // namespace het::testing
