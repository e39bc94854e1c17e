// Tables whose cache is on a device, toys (testing/toy_device.h), in the clock protocol's random schedules.
#include "tests/cpp/testing/world/schedule.h"

namespace het::testing {
namespace {

TEST(DeviceProtocol, OneWorker) {
  RunSchedules(800, 40, false, [](WorldConfig* c) { c->devices = 1; });
}

TEST(DeviceProtocol, OneWorkerEveryOptimizerFaults) {
  for (const std::string& name : Optimizer::Names()) {
    SCOPED_TRACE(name);
    RunSchedules(80, 40, true, [&](WorldConfig* c) {
      c->devices = 1;
      c->optimizer = name;
      c->dim = 1 + static_cast<uint32_t>(c->seed % 7);
      if (c->seed % 2 == 0) c->faults = Faults::Some(0.05);
      c->client.durability = Durability::kCheckpoint;
    });
  }
}

// Some workers have ordinary caches, some have theirs on devices.
void Mixed(WorldConfig* c) {
  c->workers = 1 << (c->seed % 3);
  c->devices = 1 + static_cast<uint32_t>(c->seed / 3 % c->workers);
}

TEST(DeviceProtocol, SeveralWorkers) { RunSchedules(800, 60, false, Mixed); }

TEST(DeviceProtocol, Faults) {
  RunSchedules(800, 60, false, [](WorldConfig* c) {
    Mixed(c);
    c->faults = Faults::Some(0.05);
  });
}

TEST(DeviceProtocol, RestartsLoseNothing) {
  RunSchedules(800, 60, true, [](WorldConfig* c) {
    Mixed(c);
    c->faults = Faults::Some(0.03);
    c->client.durability = Durability::kCheckpoint;
  });
}

TEST(DeviceProtocol, FailoversToAReplicaLoseNothing) {
  RunSchedules(600, 60, true, [](WorldConfig* c) {
    Mixed(c);
    c->faults = Faults::Some(0.03);
    c->client.durability = Durability::kReplicated;
    c->client.replica_interval = c->seed % 2 == 0 ? 0 : 0.2;
    c->client.keep_bytes = c->seed % 5 == 0 ? 2000 : size_t{1} << 30;
  });
}

TEST(DeviceProtocol, FailoversThatLoseFrames) {
  RunSchedules(600, 60, true, [](WorldConfig* c) {
    Mixed(c);
    c->faults = Faults::Some(0.03);
  });
}

// One worker is exact at every bound.
TEST(DeviceProtocol, OneWorkerEqualsOneProcess) {
  for (const std::string& name : Optimizer::Names()) {
    for (int64_t bound : {int64_t{0}, int64_t{1}, int64_t{10}, kUnbounded}) {
      SCOPED_TRACE(name + ", bound " + std::to_string(bound));
      RunSchedules(10, 60, false, [&](WorldConfig* c) {
        c->devices = 1;
        c->optimizer = name;
        c->dim = 3;
        c->tolerance = 1e-6f;
        c->cache.pull_bound = c->cache.push_bound = bound;
      });
    }
  }
}

}  // namespace
}  // namespace het::testing
