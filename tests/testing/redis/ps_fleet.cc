#include "tests/testing/redis/ps_fleet.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace het::testing {

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
