// The clock protocol under random schedules (testing/world/schedule.h): one table says which worlds there
// are.
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/cpp/testing/world/schedule.h"

namespace het::testing {
namespace {

// What a world of a kind has beside what RandomConfig draws by lot.
using Trait = std::function<void(WorldConfig*)>;

Trait Workers(uint32_t least, uint32_t most) {
  return [=](WorldConfig* c) { c->workers = least + static_cast<uint32_t>(c->seed % (most - least + 1)); };
}

Trait Faulty(double chance) {
  return [=](WorldConfig* c) { c->faults = Faults::Some(chance); };
}

Trait SometimesFaulty(uint64_t one_of) {
  return [=](WorldConfig* c) { c->faults = c->seed % one_of == 0 ? Faults::Some(0.05) : Faults(); };
}

// Frames are kept until they are safe, so that nothing may be lost.
void KeptForCheckpoint(WorldConfig* c) { c->client.durability = Durability::kCheckpoint; }

void KeptForReplica(WorldConfig* c) {
  c->client.durability = Durability::kReplicated;
  c->client.replica_interval = c->seed % 2 == 0 ? 0 : 0.2;
  c->client.keep_bytes = c->seed % 5 == 0 ? 2000 : size_t{1} << 30;
}

void Prefetching(WorldConfig* c) { c->prefetch = true; }

// I2 counts from the prefetch, I3 from how things stood then.
void CheckingAhead(WorldConfig* c) {
  c->prefetch = true;
  c->check_ahead = 1 + static_cast<uint32_t>(c->seed % 3);
}

// Counting worlds hold small integers, which every format can say: all is as with float32, bit for bit.
void Rounded(WorldConfig* c) { c->cache.wire = c->seed % 2 == 0 ? RowFormat::kInt8 : RowFormat::kFloat16; }

// Worlds of floats: formats that cannot say them, so remainders are left.
void RoundedFloats(WorldConfig* c) {
  constexpr RowFormat kFormats[] = {RowFormat::kInt8, RowFormat::kFloat16, RowFormat::kInt4};
  c->cache.wire = kFormats[c->seed % 3];
}

// Bounds follow the age of a row, as those of het_tf.Cache(staleness=...) do.
void ByAge(WorldConfig* c) {
  Random r(c->seed * 17 + 3);
  c->cache.pull_bound = Bound(r.Pick<int64_t>({1, 3, 12}), r.Pick<uint32_t>({1, 2, 5}));
  c->cache.push_bound = Bound(r.Pick<int64_t>({0, 1, 4, 10}), r.Pick<uint32_t>({1, 3, 8}));
}

// Some workers have ordinary caches, some have theirs on devices, toys (testing/world/toy_device.h).
void OnDevices(WorldConfig* c) {
  c->workers = 1 << (c->seed % 3);
  c->devices = 1 + static_cast<uint32_t>(c->seed / 3 % c->workers);
}

void OneOnADevice(WorldConfig* c) { c->devices = 1; }

// One worker whose cache holds every row and never replaces one: after a flush the store has all that it has
// ticked, as nearly as with float32, however coarse the format is. Reads without training may get rows from
// the store, rounded.
void NeverReplaced(WorldConfig* c) {
  c->read_tolerance = c->cache.wire == RowFormat::kFloat16 ? 0.001f : 0.03f;
  c->cache.pull_bound = kUnbounded;
  c->cache.capacity = 1000;
  c->cache.admit_after = 1;
}

// Rows come and go: each time they are rounded. The distance to one process is of the size of the format's
// step, and does not grow with the number of steps.
void AsCoarseAsTheFormat(WorldConfig* c) {
  c->tolerance = c->cache.wire == RowFormat::kInt8 ? 0.06f : 0.004f;
}

// One worker is exact at every bound.
void Exact(WorldConfig* c) {
  constexpr int64_t kBoundsOfExact[] = {0, 1, 10, kUnbounded};
  c->cache.pull_bound = c->cache.push_bound = kBoundsOfExact[c->seed % 4];
  c->dim = 3;
  c->tolerance = 1e-6f;
}

struct Kind {
  std::string name;
  uint64_t schedules;  // of each optimizer
  int steps;
  bool failovers;
  std::vector<Trait> traits;
  bool every_optimizer = false;
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class Schedules : public ::testing::TestWithParam<Kind> {};

TEST_P(Schedules, KeepTheInvariants) {
  const Kind& kind = GetParam();
  const std::vector<std::string> optimizers =
      kind.every_optimizer ? Optimizer::Names() : std::vector<std::string>{"sgd"};
  for (const std::string& optimizer : optimizers) {
    SCOPED_TRACE(optimizer);
    RunSchedules(kind.schedules, kind.steps, kind.failovers, [&](WorldConfig* c) {
      c->optimizer = optimizer;
      if (kind.every_optimizer) c->dim = 1 + static_cast<uint32_t>(c->seed % 7);
      for (const Trait& trait : kind.traits) trait(c);
    });
    if (HasFatalFailure()) return;
  }
}

const Kind kKinds[] = {
    {"OneWorker", 4000, 40, false, {}},
    {"OneWorkerEveryOptimizer", 500, 40, false, {}, true},
    {"OneWorkerFaults", 3000, 40, false, {Faulty(0.05)}},
    {"OneWorkerEveryOptimizerFaults", 300, 40, true, {Faulty(0.05), KeptForCheckpoint}, true},
    {"SeveralWorkers", 4000, 60, false, {Workers(2, 3)}},
    {"SeveralWorkersFaults", 3000, 60, false, {Workers(2, 3), Faulty(0.05)}},
    {"RestartsLoseNothing", 3000, 60, true, {Workers(1, 3), Faulty(0.03), KeptForCheckpoint}},
    // A replica takes over that knows what it was asked about, and no more.
    {"FailoversToAReplicaLoseNothing", 3000, 60, true, {Workers(1, 3), Faulty(0.03), KeptForReplica}},
    {"FailoversThatLoseFrames", 3000, 60, true, {Workers(1, 3), Faulty(0.03)}},

    {"Prefetch", 500, 60, false, {Prefetching}},
    {"PrefetchEveryOptimizer", 50, 60, false, {Prefetching}, true},
    {"PrefetchFaults", 500, 60, false, {Prefetching, Faulty(0.05)}},
    {"PrefetchSeveralWorkers", 500, 60, false, {Prefetching, Workers(2, 3)}},
    {"PrefetchFailovers", 500, 60, true, {Prefetching, Workers(2, 3), Faulty(0.03)}},
    {"PrefetchKeptFrames", 400, 60, true, {Prefetching, Workers(1, 3), Faulty(0.03), KeptForReplica}},

    {"CheckAhead", 500, 60, false, {CheckingAhead, Workers(1, 3)}},
    {"CheckAheadFaults", 500, 60, false, {CheckingAhead, Workers(1, 3), Faulty(0.05)}},
    {"CheckAheadFailovers", 500, 60, true, {CheckingAhead, Workers(1, 3), Faulty(0.03)}},
    {"CheckAheadKeptFrames", 400, 60, true, {CheckingAhead, Workers(1, 3), Faulty(0.03), KeptForReplica}},

    {"ByAge", 600, 60, false, {ByAge, Workers(1, 3)}},
    {"ByAgeFaults", 600, 60, false, {ByAge, Workers(2, 3), Faulty(0.05), Prefetching}},
    {"ByAgeFailovers", 600, 60, true, {ByAge, Workers(2, 3), Faulty(0.03), KeptForReplica}},

    {"Rounded", 600, 60, false, {Rounded, Workers(1, 3), SometimesFaulty(3)}},
    {"RoundedRestarts", 300, 60, true, {Rounded, Workers(1, 3), Faulty(0.03), KeptForCheckpoint}},
    {"RoundedFailovers", 200, 60, true, {Rounded, Workers(1, 3), Faulty(0.03), KeptForReplica}},
    {"RoundedRemaindersAreSent", 150, 60, false, {RoundedFloats, NeverReplaced, SometimesFaulty(3)}, true},
    {"RoundedLosesLittle",
     100,
     60,
     true,
     {Rounded, AsCoarseAsTheFormat, Faulty(0.02), KeptForCheckpoint},
     true},

    {"Device", 800, 40, false, {OneOnADevice}},
    {"DeviceEveryOptimizerFaults", 80, 40, true, {OneOnADevice, SometimesFaulty(2), KeptForCheckpoint}, true},
    {"DeviceEqualsOneProcess", 40, 60, false, {OneOnADevice, Exact}, true},
    {"DeviceSeveralWorkers", 800, 60, false, {OnDevices}},
    {"DeviceFaults", 800, 60, false, {OnDevices, Faulty(0.05)}},
    {"DeviceRestartsLoseNothing", 800, 60, true, {OnDevices, Faulty(0.03), KeptForCheckpoint}},
    {"DeviceFailoversToAReplica", 600, 60, true, {OnDevices, Faulty(0.03), KeptForReplica}},
    {"DeviceFailoversThatLoseFrames", 600, 60, true, {OnDevices, Faulty(0.03)}},
    {"DeviceByAge", 600, 60, false, {ByAge, OnDevices}},
    {"DeviceByAgeFaults", 600, 60, false, {ByAge, OnDevices, Faulty(0.05)}},
    {"DeviceByAgeFailovers", 3000, 60, true, {ByAge, OnDevices, Faulty(0.03), KeptForReplica}},
};

INSTANTIATE_TEST_SUITE_P(OfEveryKind, Schedules, ::testing::ValuesIn(kKinds),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace het::testing
