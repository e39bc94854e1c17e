// Several worker processes before one parameter server, seen from the test: it starts them, does something to
// them or to the servers, watches what the servers hold, and in the end counts.
#ifndef HET_TESTS_CPP_TESTING_PS_FLEET_H_
#define HET_TESTS_CPP_TESTING_PS_FLEET_H_

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include "tests/cpp/testing/ps_worker.h"
#include "tests/cpp/testing/redis_shards.h"

namespace het::testing {

constexpr uint32_t kFleetPartitions = 6;

class PsFleet {
 public:
  PsFleet(const PsWorkerConfig& config, RedisShards* shards)
      : config_(config), ledger_(NewLedger()), pids_(config.workers, -1), exits_(config.workers, -1) {
    if (config_.address.nodes.empty()) config_.address = shards->address();
    // Few partitions: each gets pushes in nearly every step. A new namespace would have kNewPartitions.
    RedisCluster cluster(config_.address);
    EXPECT_TRUE(cluster.Refresh(10).ok());
    const std::string key = MetaKey("");
    const auto made = cluster.Ask(
        key, {"HSET", key, "partitions", std::to_string(kFleetPartitions), "hash_seed", "99"}, 10);
    EXPECT_TRUE(made.ok() && made.value().ok());
    observer_ = std::make_unique<PsClient>(config_, CacheConfig());
  }
  ~PsFleet() {
    for (pid_t pid : pids_) {
      if (pid <= 0) continue;
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }

  Ledger& ledger() { return *ledger_; }
  const PsWorkerConfig& config() const { return config_; }
  const std::vector<std::string>& partition_keys() { return observer_->store().keys(); }

  void Start() {
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
  // kill -9.
  void KillWorker(uint32_t w) {
    kill(pids_[w], SIGKILL);
    waitpid(pids_[w], &exits_[w], 0);
    pids_[w] = -1;
  }
  bool Running() {
    bool any = false;
    for (uint32_t w = 0; w < config_.workers; ++w) {
      if (pids_[w] > 0 && waitpid(pids_[w], &exits_[w], WNOHANG) == pids_[w]) pids_[w] = -1;
      any = any || pids_[w] > 0;
    }
    return any;
  }
  // Until it is so, or all workers have ended, or a minute is over, which is a failure.
  template <typename Fn>
  void Await(Fn done) {
    for (int tries = 0; tries < 30000; ++tries) {
      if (done() || !Running() || ledger_->errors > 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ADD_FAILURE() << "a minute is over";
  }
  // Goes on until so many more pushes were made than there are now.
  void AwaitPushes(uint64_t more) {
    const uint64_t until = ledger_->Sum(&Ledger::Worker::pushes) + more;
    Await([&] { return ledger_->Sum(&Ledger::Worker::pushes) >= until; });
  }
  // Workers end, by themselves or because they are told to.
  void Finish() {
    ledger_->stop = true;
    Await([this] { return !Running(); });
    for (uint32_t w = 0; w < config_.workers; ++w) {
      EXPECT_EQ(pids_[w], -1) << "worker " << w << " hangs";
      EXPECT_TRUE(WIFEXITED(exits_[w]) ? WEXITSTATUS(exits_[w]) == 0 : WTERMSIG(exits_[w]) == SIGKILL)
          << "worker " << w << " ended with " << exits_[w];
    }
    EXPECT_EQ(ledger_->FirstError(), "") << ledger_->errors << " errors";
  }

  // I1 as the server sees it: whatever a worker's finished steps have ticked is there, but for s_push.
  void CheckServer() {
    std::vector<Key> keys;
    for (Key key = 0; key < kLedgerKeys; ++key) keys.push_back(key);
    auto step = observer_->NewStep(keys);
    std::map<std::pair<uint32_t, Key>, int64_t> done;
    for (uint32_t w = 0; w < config_.workers; ++w) {
      for (Key key : keys) done[{w, key}] = ledger_->workers[w].ticks[key].done;
    }
    // Not a training read: nothing stays here, every row is fetched.
    const Status status = observer_->client().Read(step->MakeRead(), 0);
    ASSERT_TRUE(status.ok()) << status.message();
    for (const auto& [who, ticks] : done) {
      const float* value = step->Value(observer_->schema().id(), who.second);
      const int64_t lacks = ticks - static_cast<int64_t>(kLedgerInitial - value[who.first]);
      Ledger::Raise(&ledger_->unapplied, lacks);
      if (config_.push() == kUnbounded || lacks <= config_.push()) continue;
      ledger_->Error("I1: the server lacks " + std::to_string(lacks) + " ticks that worker " +
                     std::to_string(who.first) + " has finished, key " + std::to_string(who.second));
    }
  }
  // I5 after the end: the server holds every tick and every change of every worker, once. Of worker `dead`,
  // who was killed, a row may lack as many ticks as may be unsent, and that of the step that was running.
  void CheckConserved(uint32_t dead = kMostWorkers) {
    int64_t lost = 0;
    CountTicks(dead, &lost);
    EXPECT_EQ(lost, 0) << "ticks of workers that live";
  }
  // Where servers have lost what nobody kept: nothing is there twice. *lost: the ticks that are not there.
  void CheckNothingDoubled(int64_t* lost) { CountTicks(kMostWorkers, lost); }

 private:
  void CountTicks(uint32_t dead, int64_t* lost) {
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
          EXPECT_LE(made.done - there, config_.push()) << "key " << key << ": more than s_push is lost";
        } else {
          *lost += made.begun - there;
        }
      }
      if (dead == kMostWorkers && *lost == 0) {
        EXPECT_EQ(kLedgerInitial - value[config_.workers], static_cast<float>(sum)) << "key " << key;
      }
      EXPECT_EQ(found == at.end() ? 0 : rows.clocks[found->second], ticks) << "clock of key " << key;
    }
  }

  PsWorkerConfig config_;
  SharedLedger ledger_;
  std::vector<pid_t> pids_;
  std::vector<int> exits_;
  std::unique_ptr<PsClient> observer_;
};

}  // namespace het::testing

#endif  // HET_TESTS_CPP_TESTING_PS_FLEET_H_
