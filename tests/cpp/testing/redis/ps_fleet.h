// Several worker processes before one parameter server, seen from the test: it starts them, does something to
// them or to the servers, watches what the servers hold, and in the end counts.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/cpp/testing/redis/ps_worker.h"
#include "tests/cpp/testing/redis/redis_shards.h"

namespace het::testing {

constexpr uint32_t kFleetPartitions = 6;

class PsFleet {
 public:
  PsFleet(const PsWorkerConfig& config, RedisShards* shards);
  ~PsFleet();

  Ledger& ledger() { return *ledger_; }
  const PsWorkerConfig& config() const { return config_; }
  const std::vector<std::string>& partition_keys() { return observer_->store().keys(); }

  void Start();
  // kill -9.
  void KillWorker(uint32_t w);
  bool Running();
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
  void AwaitPushes(uint64_t more);
  // Workers end, by themselves or because they are told to.
  void Finish();

  // I1 as the server sees it: whatever a worker's finished steps have ticked is there, but for s_push.
  void CheckServer();
  // I5 after the end: the server holds every tick and every change of every worker, once. Of worker `dead`,
  // who was killed, a row may lack as many ticks as may be unsent, and that of the step that was running.
  void CheckConserved(uint32_t dead = kMostWorkers);
  // Where servers have lost what nobody kept: nothing is there twice. *lost: the ticks that are not there.
  void CheckNothingDoubled(int64_t* lost) { CountTicks(kMostWorkers, lost); }

 private:
  void CountTicks(uint32_t dead, int64_t* lost);

  PsWorkerConfig config_;
  SharedLedger ledger_;
  std::vector<pid_t> pids_;
  std::vector<int> exits_;
  std::unique_ptr<PsClient> observer_;
};

}  // namespace het::testing
