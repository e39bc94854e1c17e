// One worker of a parameter server with a random schedule, to run in a process of its own, and the checks of
// what it reads: I1-I4 of docs/protocol.md, against the ledger (ledger.h) and, for I2, against what a second
// connection finds at the server just before.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/client/client.h"
#include "het_tf/ps/client/redis_store.h"
#include "het_tf/ps/client/redis_transport.h"
#include "tests/cpp/testing/random.h"
#include "tests/cpp/testing/redis/ledger.h"
#include "tests/cpp/testing/test_step.h"

namespace het::testing {

struct PsWorkerConfig {
  ServerAddress address;
  uint32_t workers = 2;
  CacheConfig cache;
  ClientConfig client;
  uint64_t seed = 1;
  uint64_t steps = 400;       // 0: until the ledger says stop
  double most_pause = 0.001;  // seconds that it may sleep between two steps
  double flushes = 0.03;  // of all steps: the unsent ticks of a row get no further than from one to the next
  // What servers may lose of that which they have acknowledged. kRepaired: workers send it again, and until
  // then others miss more than I2 and I3 allow. kLost: workers no longer have it, so I4 does not hold either.
  enum Losses { kNone, kRepaired, kLost } losses = kNone;

  // I3 of a row with so many ticks, and what it says of steps that are over.
  static constexpr Clock kOld = kBirthGap - 1;
  int64_t most_unseen(Clock ticks) const { return MostUnseen(ticks, 1); }
  int64_t most_unseen_done(Clock ticks) const { return MostUnseen(ticks, 0); }
  TableSpec spec() const;

 private:
  int64_t MostUnseen(Clock ticks, int64_t in_progress) const;
};

// Who reads rows of the parameter server: a client with its connections.
class PsClient {
 public:
  static constexpr double kOpenSeconds = 30;

  // Aborts the process when there is no server: a test has started one.
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
  // What there was when a read began: it must see that, within the bounds.
  struct Before {
    int64_t begun[kMostWorkers], done[kMostWorkers];
    int64_t foreign_at_server = -1;  // not asked
  };

  Ledger::Worker& Mine() { return ledger_->workers[rank_]; }
  void Pause();
  bool Succeeds(const Status& status, const char* what);
  void Publish();
  std::vector<Key> Keys();

  // False: a call failed, and the ledger knows.
  bool OneStep();
  // Null: it failed.
  std::unique_ptr<TestStep> Read(std::unique_ptr<TestStep> step, bool training);
  bool Write(std::unique_ptr<TestStep> step);
  Ledger::Ticks& TicksOf(uint32_t v, Key key) { return ledger_->workers[v].ticks[key]; }
  // Of all workers, begun ones included.
  Clock AllTicks(Key key);

  // What this worker's copy of a row contains; 0: it has none.
  Clock ClockOf(Key key);
  // The ticks of other workers in a row.
  int64_t Foreign(const float* value) const;
  void CheckRow(Key key, const float* value, const Before& before);

  const PsWorkerConfig config_;
  Ledger* const ledger_;
  const uint32_t rank_;
  Random random_;
  PsClient ps_;
  PsClient observer_;
  uint64_t last_token_ = 0;
  std::map<Key, Before> before_;    // when the newest training lookup began
  std::unique_ptr<TestStep> open_;  // a lookup whose gradient comes later
};

}  // namespace het::testing
