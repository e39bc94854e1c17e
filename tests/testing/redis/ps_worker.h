// A worker process of a parameter server with a random schedule, and the checks of its reads: I1-I4 of
// docs/protocol.md, against the ledger (ledger.h) and, for I2, against a second connection's read of the
// server just before.
#pragma once

#include <memory>
#include <vector>

#include "het_tf/core/client/client.h"
#include "het_tf/ext/ps/client/redis_store.h"
#include "het_tf/ext/ps/client/redis_transport.h"
#include "tests/testing/random.h"
#include "tests/testing/redis/ledger.h"
#include "tests/testing/test_step.h"

namespace het::testing {

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

// A reader of the parameter server: a client with its connections.
class PsClient {
 public:
  static constexpr double kOpenSeconds = 30;

  // Aborts the process if there is no server: the test must have started one.
  PsClient(const PsWorkerConfig& config, const CacheConfig& cache);

  Client& client() { return *client_; }
  RedisStore& store() { return *store_; }
  const TableSchema& schema() const { return *schema_; }
  std::unique_ptr<TestStep> NewStep(const std::vector<Key>& keys);

 private:
  const Schema schema_;
  std::unique_ptr<RedisStore> store_;
  RedisCluster cluster_;  // moved on to the transport
  std::unique_ptr<RedisTransport> transport_;
  std::unique_ptr<Client> client_;
};

class PsWorker {
 public:
  PsWorker(const PsWorkerConfig& config, Ledger* ledger, uint32_t rank);

  void Run();

 private:
  // The state when a read began, which it must see within the bounds.
  struct Before {
    int64_t begun[kMostWorkers], done[kMostWorkers];
    int64_t foreign_at_server = -1;  // not asked
  };

  Ledger::Worker& Mine() { return ledger_->workers[rank_]; }
  void Pause();
  bool Succeeds(const Status& status, const char* what);
  void Publish();
  std::vector<Key> Keys();

  // Returns false if a call failed, which the ledger records.
  bool OneStep();
  // Returns null after a failure.
  std::unique_ptr<TestStep> Read(std::unique_ptr<TestStep> step, bool training);
  bool Write(std::unique_ptr<TestStep> step);
  Ledger::Ticks& TicksOf(uint32_t v, Key key) { return ledger_->workers[v].ticks[key]; }
  // Ticks of all workers, including those of running steps.
  Clock AllTicks(Key key);

  // The clock of this worker's copy of a row; 0: no copy.
  Clock ClockOf(Key key);
  // The other workers' ticks in a row.
  int64_t Foreign(const float* value) const;
  void CheckRow(Key key, const float* value, const Before& before);

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

}  // namespace het::testing
