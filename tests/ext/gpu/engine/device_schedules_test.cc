// An engine with tables cached on a device and one with direct tables: equal rows for any sequence of calls.
// Faults and several workers: protocol/schedules_test.cc.

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/ext/gpu/device/host/streams.h"
#include "tests/testing/device/device_engine.h"
#include "tests/testing/random.h"

namespace het::testing {
namespace {

// A step on both engines, and the floats of each feature's rows.
struct Pair {
  std::vector<StepOf> of;
  std::vector<std::vector<float>> gradients;
};

// The parameter is the seed.
class DeviceSchedules : public ::testing::TestWithParam<uint64_t> {
 protected:
  DeviceSchedules()
      : random_(GetParam()), optimizer_(Optimizer::Names()[GetParam() % Optimizer::Names().size()]) {}

  void SetUp() override {
    ASSERT_TRUE(Ok(DeviceLibrary::Load(DeviceLibraryPath(), 0)));
    const std::vector<Bound> bounds = {0, 1, 4, 10, kUnbounded, Bound(10, 2), Bound(4, 3)};
    TableOptions options =
        CacheOf("gpu", random_.Pick<size_t>({1, 40, 100, 5000}), random_.Pick(bounds), random_.Pick(bounds));
    options.cache->policy = random_.Pick<Policy>({Policy::kLru, Policy::kLfu});
    for (const auto& [name, dim] : {std::pair<const char*, uint32_t>("a", 4), {"b", 3}}) {
      TableSpec spec = SpecOf(name, dim, optimizer_);
      if (!exact()) {
        spec.initializer = {"uniform", -1, 1};
        spec.l2 = 0.01;
      }
      // The bounds of the other table follow the number of workers.
      if (spec.name == "b") {
        options.cache->staleness = options.cache->pull_bound.most;
        options.cache->workers = static_cast<uint32_t>(random_.Between(1, 4));
      }
      ASSERT_TRUE(direct_.tables().Create(spec, TableOptions()).ok());
      ASSERT_TRUE(Ok(device_.tables().Create(spec, options)));
    }
  }

  bool exact() const { return optimizer_ == "sgd"; }

  // Calls f(engine) on each, which returns a status.
  template <typename F>
  void Each(F f) {
    for (Engine* engine : {&direct_, &device_}) {
      ASSERT_TRUE(Ok(f(engine))) << engine->name();
    }
  }
  void Expect(const float* wanted, const float* given, size_t floats, const std::string& what) {
    for (size_t i = 0; i < floats; ++i) {
      const float room = exact() ? 0 : 2e-5f * std::max(1.0f, std::abs(wanted[i]));
      ASSERT_NEAR(wanted[i], given[i], room) << what << ", float " << i;
    }
  }

  std::vector<Key> Ids(uint64_t most) {
    std::vector<Key> ids(random_.Below(most));
    for (Key& id : ids) {
      // Some ids are in every batch, in large ones often; many occur once, some are far away.
      const uint64_t kind = random_.Below(10);
      id = static_cast<Key>(random_.Below(kind < 4 ? (most > 100 ? 2 : 8) : 300));
      if (kind == 9) id = static_cast<Key>(static_cast<uint64_t>(id) * (~uint64_t{0} / 311));
    }
    return ids;
  }
  // A random choice puts the device engine's rows in device memory, which here is memory.
  Pair Lookup(bool training) {
    const uint64_t most = random_.Chance(0.1) ? 400 : 40;
    const std::vector<FeatureInput> inputs = {{"a", Ids(most), Key{3}}, {"b", Ids(most)}, {"a", Ids(most)}};
    Pair pair;
    for (Engine* engine : {&direct_, &device_}) {
      EXPECT_TRUE(Ok(
          pair.of.emplace_back(engine, inputs).Lookup(training, engine == &device_ && random_.Chance(0.5))))
          << engine->name();
    }
    HetDevHostFinish();  // rows in device memory are there when their stream is done
    for (size_t f = 0; f < inputs.size(); ++f) {
      const auto &wanted = pair.of[0].rows[f], &given = pair.of[1].rows[f];
      Expect(wanted.data(), given.data(), wanted.size(), "feature " + std::to_string(f));
      auto& gradients = pair.gradients.emplace_back(wanted.size());
      if (random_.Chance(0.2)) continue;  // this feature gets no gradient
      const bool padding_alone = inputs[f].padding_id && random_.Chance(0.2);
      const size_t dim = pair.of[0].tables()[f % 2]->schema->dim();
      for (size_t i = 0; i < gradients.size(); ++i) {
        if (padding_alone && inputs[f].ids[i / dim] != *inputs[f].padding_id) continue;
        gradients[i] = static_cast<float>(random_.Between(-4, 4)) * (exact() ? 1.0f : 0.25f);
      }
    }
    return pair;
  }
  void Apply(Pair* pair) {
    for (const bool device : {false, true}) {
      ASSERT_TRUE(
          Ok(pair->of[device].Apply(pair->gradients, exact() ? 1.0f : 0.05f, device && random_.Chance(0.3))));
    }
  }
  void ExpectEqualTables() {
    for (const char* table : {"a", "b"}) {
      const TableRows direct = direct_.tables().Scan(table).value(),
                      device = device_.tables().Scan(table).value();
      std::map<Key, size_t> at;
      for (size_t i = 0; i < device.keys.size(); ++i) at[device.keys[i]] = i;
      ASSERT_EQ(direct.keys.size(), device.keys.size()) << table;
      const size_t width = direct.keys.empty() ? 0 : direct.rows.size() / direct.keys.size();
      for (size_t i = 0; i < direct.keys.size(); ++i) {
        ASSERT_EQ(at.count(direct.keys[i]), 1u);
        const size_t j = at[direct.keys[i]];
        Expect(&direct.rows[i * width], &device.rows[j * width], width, std::string("table ") + table);
        EXPECT_EQ(direct.clocks[i], device.clocks[j]);
      }
      EXPECT_EQ(direct_.tables().Find(table).value()->applies.load(),
                device_.tables().Find(table).value()->applies.load());
    }
  }

  Random random_;
  const std::string optimizer_;
  Engine direct_{"direct"}, device_{"device"};
};

TEST_P(DeviceSchedules, GiveTheRowsOfADirectTable) {
  std::vector<Pair> waiting;
  for (uint64_t call = 0; call < Scaled(120) && !HasFatalFailure(); ++call) {
    SCOPED_TRACE("call " + std::to_string(call));
    const uint64_t kind = random_.Below(100);
    const std::vector<Key> some = Ids(20);
    const Span<const Key> keys(some.data(), some.size());
    if (kind < 45) {
      waiting.push_back(Lookup(true));
      if (random_.Chance(0.1)) waiting.pop_back();  // some gradients never come
    } else if (kind < 80) {
      if (waiting.empty()) continue;
      std::swap(waiting[random_.Below(waiting.size())], waiting.back());
      Apply(&waiting.back());
      waiting.pop_back();
    } else if (kind < 88) {
      Lookup(false);
    } else if (kind < 90) {
      Each([](Engine* engine) { return engine->caches().Flush(); });
    } else if (kind < 92) {
      Each([](Engine* engine) { return engine->caches().Refresh(); });
    } else if (kind < 94) {
      const std::vector<float> rows(some.size() * 4, 5);
      Each([&](Engine* engine) { return engine->tables().Assign("a", keys, rows.data(), false); });
    } else if (kind < 96) {
      size_t removed = 0;
      Each([&](Engine* engine) { return engine->tables().Remove("b", keys, &removed); });
    } else {
      Each([](Engine* engine) { return engine->tables().Clear("b"); });
    }
  }
  ExpectEqualTables();
}

INSTANTIATE_TEST_SUITE_P(Seeds, DeviceSchedules, ::testing::Range<uint64_t>(0, 28));

}  // namespace
}  // namespace het::testing
