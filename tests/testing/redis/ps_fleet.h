// Several worker processes and one parameter server, controlled by the test: it starts the workers, disturbs
// them or the servers, watches the servers' content, and finally counts.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "het_tf/core/client/client.h"
#include "tests/testing/redis/ledger.h"
#include "tests/testing/redis/redis_shards.h"
#include "tests/testing/redis/shared_memory.h"

namespace het::testing {

constexpr uint32_t kFleetPartitions = 6;

struct PsWorkerConfig {
  ServerAddress address;
  uint32_t workers = 2;
  CacheConfig cache;
  ClientConfig client;
  uint64_t seed = 1;
  // Servers may lose acknowledged updates, which workers resend: until then others miss more than I2 and I3
  // allow.
  bool may_lose = false;

  // I3 for a row with this many ticks, also for ended steps.
  int64_t most_unseen(Clock ticks) const { return MostUnseen(ticks, 1); }
  int64_t most_unseen_done(Clock ticks) const { return MostUnseen(ticks, 0); }
  TableSpec spec() const;

 private:
  int64_t MostUnseen(Clock ticks, int64_t in_progress) const;
};

class PsClient;

class PsFleet {
 public:
  PsFleet(const PsWorkerConfig& config, RedisShards* shards);
  ~PsFleet();

  Ledger& ledger() { return *ledger_; }
  const std::vector<std::string>& partition_keys();

  void Start();
  // kill -9.
  void KillWorker(uint32_t w);
  bool Running();
  // Waits until it holds, all workers have ended, or five minutes have passed, which is a failure.
  template <typename Fn>
  void Await(Fn done) {
    for (int tries = 0; tries < 150000; ++tries) {
      if (done() || !Running() || ledger_->errors > 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ADD_FAILURE() << "five minutes are over";
  }
  // Waits for `more` further pushes.
  void AwaitPushes(uint64_t more);
  // Waits until the workers end, by themselves or on request.
  void Finish();

  // I1 at the server: it has all ticks of a worker's ended steps, except s_push.
  void CheckServer();
  // I5 at the end: the server holds every tick and change of every worker once. Rows of the killed worker
  // `dead` may lack as many ticks as may be unsent, and those of the running step.
  void CheckConserved(uint32_t dead = kMostWorkers);

 private:
  PsWorkerConfig config_;
  Shared<Ledger> ledger_;
  std::vector<pid_t> pids_;
  std::vector<int> exits_;
  std::unique_ptr<PsClient> observer_;
};

}  // namespace het::testing
