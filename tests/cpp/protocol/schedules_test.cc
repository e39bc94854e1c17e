// The clock protocol under random schedules (testing/schedule.h).
#include "tests/cpp/testing/world/schedule.h"

namespace het::testing {
namespace {

TEST(Protocol, OneWorker) {
  RunSchedules(4000, 40, false, [](WorldConfig*) {});
}

TEST(Protocol, OneWorkerEveryOptimizer) {
  for (const std::string& name : Optimizer::Names()) {
    SCOPED_TRACE(name);
    RunSchedules(500, 40, false, [&](WorldConfig* c) {
      c->optimizer = name;
      c->dim = 1 + static_cast<uint32_t>(c->seed % 7);
    });
  }
}

TEST(Protocol, OneWorkerFaults) {
  RunSchedules(3000, 40, false, [](WorldConfig* c) { c->faults = Faults::Some(0.05); });
}

TEST(Protocol, OneWorkerEveryOptimizerFaults) {
  for (const std::string& name : Optimizer::Names()) {
    SCOPED_TRACE(name);
    RunSchedules(300, 40, true, [&](WorldConfig* c) {
      c->optimizer = name;
      c->dim = 1 + static_cast<uint32_t>(c->seed % 7);
      c->faults = Faults::Some(0.05);
      c->client.durability = Durability::kCheckpoint;
    });
  }
}

TEST(Protocol, SeveralWorkers) {
  RunSchedules(4000, 60, false, [](WorldConfig* c) { c->workers = 2 + static_cast<uint32_t>(c->seed % 2); });
}

TEST(Protocol, SeveralWorkersFaults) {
  RunSchedules(3000, 60, false, [](WorldConfig* c) {
    c->workers = 2 + static_cast<uint32_t>(c->seed % 2);
    c->faults = Faults::Some(0.05);
  });
}

TEST(Protocol, RestartsLoseNothing) {
  RunSchedules(3000, 60, true, [](WorldConfig* c) {
    c->workers = 1 + static_cast<uint32_t>(c->seed % 3);
    c->faults = Faults::Some(0.03);
    c->client.durability = Durability::kCheckpoint;
  });
}

// A replica takes over that knows what it was asked about, and no more.
TEST(Protocol, FailoversToAReplicaLoseNothing) {
  RunSchedules(3000, 60, true, [](WorldConfig* c) {
    c->workers = 1 + static_cast<uint32_t>(c->seed % 3);
    c->faults = Faults::Some(0.03);
    c->client.durability = Durability::kReplicated;
    c->client.replica_interval = c->seed % 2 == 0 ? 0 : 0.2;
    c->client.keep_bytes = c->seed % 5 == 0 ? 2000 : size_t{1} << 30;
  });
}

TEST(Protocol, FailoversThatLoseFrames) {
  RunSchedules(3000, 60, true, [](WorldConfig* c) {
    c->workers = 1 + static_cast<uint32_t>(c->seed % 3);
    c->faults = Faults::Some(0.03);
  });
}

}  // namespace
}  // namespace het::testing
