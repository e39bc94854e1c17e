// A table whose cache is on a device beside a direct one and one with an ordinary cache: the same rows,
// whatever comes in whatever order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>

#include "tests/cpp/testing/device/device_engine.h"

namespace het::testing {
namespace {

struct Setting {
  const char* optimizer;
  size_t capacity;
  Bound pull_bound, push_bound;
  uint32_t admit_after;
  const char* policy;
};

class DeviceSchedules : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    const Status loaded = DeviceLibrary::Load(DeviceLibraryPath(), 0);
    ASSERT_TRUE(loaded.ok()) << loaded.message();
  }
};

std::vector<Setting> Settings() {
  std::vector<Setting> all;
  const Bound bounds[][2] = {{0, 0},
                             {1, 1},
                             {10, 10},
                             {kUnbounded, kUnbounded},
                             {kUnbounded, 0},
                             {0, 4},
                             {Bound(10, 2), Bound(4, 3)}};
  size_t i = 0;
  for (const char* optimizer :
       {"sgd", "momentum", "rmsprop", "adam", "adagrad", "row_wise_adagrad", "ftrl"}) {
    for (const size_t capacity : {1, 100, 5000}) {
      const auto& bound = bounds[i % 7];
      const char* const policies[] = {"lru", "lfu", "light_lfu"};
      all.push_back({optimizer, capacity, bound[0], bound[1], i % 4 == 3 ? 2u : 1u, policies[(i / 2) % 3]});
      ++i;
    }
  }
  for (const auto& bound : bounds) all.push_back({"sgd", 40, bound[0], bound[1], 2, "lru"});
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, DeviceSchedules, ::testing::ValuesIn(Settings()), [](const auto& info) {
  const Setting& s = info.param;
  auto bound = [](const Bound& b) {
    if (b == kUnbounded) return std::string("x");
    return std::to_string(b.most) + (b.every == 0 ? "" : "by" + std::to_string(b.every));
  };
  return std::string(s.optimizer) + "_" + std::to_string(s.capacity) + "_" + bound(s.pull_bound) + "_" +
         bound(s.push_bound) + "_" + std::to_string(s.admit_after) + "_" + s.policy;
});

// The same calls on three engines: a direct one, one with a cache, one with a cache on the device.
class Trio {
 public:
  explicit Trio(const Setting& setting) : setting_(setting) {
    const char* const devices[] = {"", "cpu", "gpu"};
    for (int e = 0; e < 3; ++e) {
      engines_.push_back(std::make_unique<Engine>(devices[e], 1));
      TableOptions options = CacheOf(devices[e], setting.capacity, setting.pull_bound, setting.push_bound);
      if (options.cache) {
        options.cache->admit_after = setting.admit_after;
        options.cache->policy = ParsePolicy(setting.policy).value();
      }
      for (const auto& [name, dim] : {std::pair<const char*, uint32_t>("a", 4), {"b", 3}}) {
        TableSpec spec = SpecOf(name, dim, setting.optimizer);
        if (!exact()) {
          spec.initializer = {"uniform", -1, 1};
          spec.l2 = 0.01;
        }
        // Those of the other table follow the number of workers.
        if (options.cache && spec.name == "b") options.cache->staleness = setting.pull_bound.most;
        const Status created = engines_.back()->CreateTable(spec, options);
        EXPECT_TRUE(created.ok()) << created.message();
      }
    }
  }

  bool exact() const { return std::string(setting_.optimizer) == "sgd"; }
  Engine& engine(size_t e) { return *engines_[e]; }

  // f(engine) on each, which answers a status.
  template <typename F>
  void Each(const char* what, F f) {
    for (auto& engine : engines_) {
      const Status status = f(engine.get());
      ASSERT_TRUE(status.ok()) << what << " of '" << engine->name() << "': " << status.message();
    }
  }
  void Expect(const std::vector<float>& wanted, const std::vector<float>& given, const std::string& what) {
    ASSERT_EQ(wanted.size(), given.size()) << what;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const float room = exact() ? 0 : 2e-5f * std::max(1.0f, std::abs(wanted[i]));
      ASSERT_NEAR(wanted[i], given[i], room) << what << ", float " << i;
    }
  }

  struct Steps {
    std::vector<StepOf> of;
  };
  std::shared_ptr<Steps> Lookup(const std::vector<FeatureInput>& inputs, bool training,
                                const std::string& what) {
    auto steps = std::make_shared<Steps>();
    for (size_t e = 0; e < 3; ++e) {
      steps->of.emplace_back(engines_[e].get(), inputs);
      // Every other time the device's engine is given memory of the device; here that is memory.
      const Status status = steps->of.back().Lookup(training, e == 2 && ++calls_ % 2 == 0);
      EXPECT_TRUE(status.ok()) << what << ": " << status.message();
    }
    for (size_t f = 0; f < inputs.size(); ++f) {
      for (size_t e = 1; e < 3; ++e) {
        Expect(steps->of[0].rows[f], steps->of[e].rows[f],
               what + ", '" + engines_[e]->name() + "', feature " + std::to_string(f));
      }
    }
    return steps;
  }
  void Apply(Steps* steps, const std::vector<std::vector<float>>& gradients, const std::string& what) {
    for (size_t e = 0; e < 3; ++e) {
      const Status status = steps->of[e].Apply(gradients, exact() ? 1.0f : 0.05f, NonFinite::kRaise,
                                               e == 2 && ++calls_ % 3 == 0);
      ASSERT_TRUE(status.ok()) << what << ": " << status.message();
    }
  }

 private:
  const Setting setting_;
  std::vector<std::unique_ptr<Engine>> engines_;
  int calls_ = 0;
};

TEST_P(DeviceSchedules, GiveTheRowsOfADirectTable) {
  Trio trio(GetParam());
  std::mt19937_64 random(7);
  const char* const scale = std::getenv("HET_TEST_SCALE");
  const int calls = static_cast<int>(120 * (scale == nullptr ? 1 : std::atof(scale)));
  std::vector<std::pair<std::shared_ptr<Trio::Steps>, std::vector<size_t>>> waiting;

  auto ids = [&random](size_t most) {
    std::vector<Key> some(random() % most);
    for (Key& id : some) {
      // Some are in every batch, many occur once, some are far away.
      const uint64_t kind = random() % 10;
      id = static_cast<Key>(kind < 4 ? random() % 8 : random() % 300);
      if (kind == 9) id = static_cast<Key>(static_cast<uint64_t>(id) * (~uint64_t{0} / 311));
    }
    return some;
  };
  auto inputs = [&] {
    const size_t most = random() % 8 == 0 ? 400 : 40;
    return std::vector<FeatureInput>{{"a", ids(most), Key{3}}, {"b", ids(most)}, {"a", ids(most)}};
  };
  auto apply_one = [&](const std::string& what) {
    const size_t which = random() % waiting.size();
    const auto taken = waiting[which];
    waiting.erase(waiting.begin() + static_cast<ptrdiff_t>(which));
    std::vector<std::vector<float>> gradients;
    for (const size_t floats : taken.second) {
      gradients.emplace_back(floats);
      if (random() % 5 == 0) continue;  // this feature gets no gradient
      for (float& g : gradients.back()) {
        g = static_cast<float>(static_cast<int>(random() % 9) - 4) * (trio.exact() ? 1.0f : 0.25f);
      }
    }
    trio.Apply(taken.first.get(), gradients, what);
  };
  for (int c = 0; c < calls && !::testing::Test::HasFatalFailure(); ++c) {
    const std::string what = "call " + std::to_string(c);
    const uint64_t kind = random() % 100;
    const std::vector<Key> some = ids(20);
    const Span<const Key> keys(some.data(), some.size());
    if (kind < 45 || waiting.size() < 1) {
      auto steps = trio.Lookup(inputs(), true, what);
      std::vector<size_t> floats;
      for (const auto& rows : steps->of[0].rows) floats.push_back(rows.size());
      // Some gradients never come.
      if (random() % 10 != 0) waiting.push_back({steps, floats});
      if (waiting.size() <= random() % 3) continue;
      apply_one(what + ", apply");
    } else if (kind < 65) {
      apply_one(what + ", apply");
    } else if (kind < 80) {
      trio.Lookup(inputs(), false, what + ", without training");
    } else if (kind < 84) {
      trio.Each("Flush", [](Engine* engine) { return engine->Flush(); });
    } else if (kind < 87) {
      trio.Each("Refresh", [](Engine* engine) { return engine->Refresh(); });
    } else if (kind < 91) {
      const std::vector<float> rows(some.size() * 4, 5);
      trio.Each("Assign", [&](Engine* engine) { return engine->Assign("a", keys, rows.data(), false); });
    } else if (kind < 94) {
      trio.Each("Remove", [&](Engine* engine) {
        size_t removed = 0;
        return engine->Remove("b", keys, &removed);
      });
    } else if (kind < 95) {
      trio.Each("Clear", [](Engine* engine) { return engine->Clear("b"); });
    } else if (kind < 98) {
      const auto workers = static_cast<uint32_t>(1 + random() % 4);
      trio.Each("SetWorkers", [&](Engine* engine) { return engine->SetWorkers("b", workers); });
    } else {
      ASSERT_EQ(trio.engine(0).Size("b").value(), trio.engine(2).Size("b").value()) << what;
    }
  }
  for (const char* table : {"a", "b"}) {
    const TableRows direct = trio.engine(0).Scan(table).value();
    const TableRows device = trio.engine(2).Scan(table).value();
    std::map<Key, size_t> at;
    for (size_t i = 0; i < device.keys.size(); ++i) at[device.keys[i]] = i;
    ASSERT_EQ(direct.keys.size(), device.keys.size()) << table;
    const size_t width = direct.keys.empty() ? 0 : direct.rows.size() / direct.keys.size();
    for (size_t i = 0; i < direct.keys.size(); ++i) {
      ASSERT_EQ(at.count(direct.keys[i]), 1u);
      const size_t j = at[direct.keys[i]];
      trio.Expect({direct.rows.begin() + static_cast<ptrdiff_t>(i * width),
                   direct.rows.begin() + static_cast<ptrdiff_t>((i + 1) * width)},
                  {device.rows.begin() + static_cast<ptrdiff_t>(j * width),
                   device.rows.begin() + static_cast<ptrdiff_t>((j + 1) * width)},
                  std::string("table ") + table);
      EXPECT_EQ(direct.clocks[i], device.clocks[j]);
    }
    EXPECT_EQ(trio.engine(0).Find(table).value()->applies.load(),
              trio.engine(2).Find(table).value()->applies.load());
  }
}

}  // namespace
}  // namespace het::testing
