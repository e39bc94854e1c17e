// Tables whose cache is on a device, through the engine: beside a direct table and one with an ordinary cache
// they give the same rows, whatever comes in whatever order. The device is the reference
// (device/reference.h), or the library that HET_DEVICE_LIBRARY names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "het_tf/core/alloc.h"
#include "het_tf/core/client.h"
#include "het_tf/core/gradient_sums.h"
#include "het_tf/core/local_store.h"
#include "het_tf/core/local_transport.h"
#include "tests/cpp/testing/device_engine.h"
#include "tests/cpp/testing/temp_folder.h"

namespace het::testing {
namespace {

using ::testing::HasSubstr;

// Runs first: afterwards the library is loaded, once and for all.
TEST(BeforeTheLibrary, TheMessageSaysWhatIsMissing) {
  Engine engine("test");
  const Status none = engine.CreateTable(SpecOf("t", 2), CacheOf("gpu", 10, 0, 0));
  EXPECT_EQ(none.code(), Code::kFailedPrecondition);
  EXPECT_THAT(none.message(), HasSubstr("cache_device=\"cpu\""));
  EXPECT_TRUE(engine.TableNames().empty());
  EXPECT_EQ(DeviceLibrary::Load("/nowhere.so", 0).code(), Code::kNotFound);
  EXPECT_EQ(DeviceLibrary::Load("libm.so.6", 0).code(), Code::kFailedPrecondition);
  EXPECT_EQ(DeviceLibrary::Load(DeviceLibraryPath(), -1).code(), Code::kInvalidArgument);
  const Status loaded = DeviceLibrary::Load(DeviceLibraryPath(), 0);
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  EXPECT_TRUE(DeviceLibrary::Load(DeviceLibraryPath(), 0).ok());
  EXPECT_THAT(DeviceLibrary::Load(DeviceLibraryPath(), 1).message(), HasSubstr("GPU 0"));
  EXPECT_EQ(DeviceLibrary::Load("libm.so.6", 0).code(), Code::kFailedPrecondition);
}

TEST(DeviceOptions, AreCheckedAndWritten) {
  const auto parse = [](const std::string& cache) { return ParseTableOptions("{\"cache\": " + cache + "}"); };
  EXPECT_THAT(parse("{\"device\": \"tpu\"}").status().message(), HasSubstr("'tpu'; it must be \"cpu\""));
  EXPECT_EQ(parse("{\"device\": 1}").status().code(), Code::kInvalidArgument);
  EXPECT_THAT(parse("{\"device\": \"gpu\", \"capacity\": 0}").status().message(),
              HasSubstr("at least 1 row"));
  const auto gpu = parse("{\"device\": \"gpu\", \"capacity\": 7}");
  ASSERT_TRUE(gpu.ok());
  EXPECT_THAT(gpu.value().ToJson(), HasSubstr("\"device\":\"gpu\""));
  EXPECT_THAT(parse("{\"device\": \"cpu\"}").value().ToJson(), ::testing::Not(HasSubstr("device")));
}

class DeviceEngine : public ::testing::Test {
 protected:
  DeviceEngine() : engine_("test", 1) {}
  void SetUp() override {
    const Status loaded = DeviceLibrary::Load(DeviceLibraryPath(), 0);
    ASSERT_TRUE(loaded.ok()) << loaded.message();
  }
  void Create(const std::string& name, uint32_t dim, const TableOptions& options,
              const std::string& optimizer = "sgd") {
    const Status created = engine_.CreateTable(SpecOf(name, dim, optimizer), options);
    ASSERT_TRUE(created.ok()) << created.message();
  }
  float Value(const std::string& table, Key id) {
    const std::vector<float> values = Values(&engine_, table, {id});
    return values.empty() ? -99999.0f : values[0];
  }

  Engine engine_;
};

// --- random schedules

struct Setting {
  const char* optimizer;
  size_t capacity;
  int64_t pull_bound, push_bound;
  uint32_t admit_after;
  const char* policy;
};

class DeviceSchedules : public ::testing::TestWithParam<Setting> {};

std::vector<Setting> Settings() {
  std::vector<Setting> all;
  const int64_t bounds[][2] = {{0, 0}, {1, 1}, {10, 10}, {kUnbounded, kUnbounded}, {kUnbounded, 0}, {0, 3}};
  size_t i = 0;
  for (const char* optimizer :
       {"sgd", "momentum", "rmsprop", "adam", "adagrad", "row_wise_adagrad", "ftrl"}) {
    for (const size_t capacity : {1, 100, 5000}) {
      const auto& bound = bounds[i % 6];
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
  auto bound = [](int64_t b) { return b == kUnbounded ? std::string("x") : std::to_string(b); };
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
        options.cache->policy = setting.policy;
      }
      for (const auto& [name, dim] : {std::pair<const char*, uint32_t>("a", 4), {"b", 3}}) {
        TableSpec spec = SpecOf(name, dim, setting.optimizer);
        if (!exact()) {
          spec.initializer = {"uniform", -1, 1};
          spec.l2 = 0.01;
        }
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
      const int64_t pull = static_cast<int64_t>(random() % 4), push = static_cast<int64_t>(random() % 4);
      trio.Each("SetBounds", [&](Engine* engine) { return engine->SetBounds("a", pull, push); });
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

// --- tokens

TEST_F(DeviceEngine, ATokenIsUsedOnceAndByEitherPath) {
  Create("t", 2, CacheOf("gpu", 100, 3, 3));
  StepOf step(&engine_, {{"t", {1, 2, 1}}});
  for (const bool there : {false, true}) {
    ASSERT_TRUE(step.Lookup(true, there).ok());
    ASSERT_TRUE(step.Apply(step.Gradients(-1), 1, NonFinite::kRaise, !there).ok());
    const Status again = step.Apply(step.Gradients(-1), 1, NonFinite::kRaise, there);
    EXPECT_EQ(again.code(), Code::kFailedPrecondition);
    EXPECT_THAT(again.message(), HasSubstr("was used before"));
  }
  EXPECT_EQ(Value("t", 1), 4);
  EXPECT_EQ(Value("t", 2), 2);
}

TEST_F(DeviceEngine, LookupsThatAreNeverAppliedHoldNothing) {
  Create("t", 2, CacheOf("gpu", 64, kUnbounded, kUnbounded));
  StepOf first(&engine_, {{"t", {1, 2, 3}}});
  ASSERT_TRUE(first.Lookup(true).ok());
  for (Key i = 0; i < 10000; ++i) {
    StepOf step(&engine_, {{"t", {i, i + 1, i + 2}}});
    ASSERT_TRUE(step.Lookup(true).ok());
  }
  // New rows still enter, and the oldest token still works.
  const uint64_t evictions = CacheStats(&engine_, "t")["evictions"];
  EXPECT_GT(evictions, 9000u);
  ASSERT_TRUE(first.Apply(first.Gradients(-1)).ok());
  EXPECT_EQ(Value("t", 2), 1);
  EXPECT_LE(CacheStats(&engine_, "t")["rows"], 64);
}

// The rows of a step stay with it: while it waits others make no row of it leave, or it finds them again.
TEST_F(DeviceEngine, ABatchLargerThanTheCacheLearns) {
  Create("t", 2, CacheOf("gpu", 1, 0, kUnbounded));
  std::vector<Key> ids(500);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<Key>(i);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Train(&engine_, {{"t", ids}}).ok());
  for (const float value : Values(&engine_, "t", ids)) ASSERT_EQ(value, 3);
  const nlohmann::json stats = CacheStats(&engine_, "t");
  EXPECT_EQ(stats["rows"], 32);  // a whole bucket
  EXPECT_EQ(stats["transient_rows"], 3 * 468);
  EXPECT_EQ(stats["evict_push"], 3 * 468);
  EXPECT_EQ(stats["unsent_rows"], 32);
  EXPECT_EQ(stats["bound_push"], 0);
}

TEST_F(DeviceEngine, StampsBeginAgain) {
  Create("t", 2, CacheOf("gpu", 64, kUnbounded, kUnbounded));
  ASSERT_TRUE(Train(&engine_, {{"t", {1, 2}}}).ok());
  engine_.device()->set_stamp(DeviceCalls::kLastStamp - 1);
  StepOf waits(&engine_, {{"t", {1, 5}}});
  ASSERT_TRUE(waits.Lookup(true).ok());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Train(&engine_, {{"t", {1, 2, 3}}}).ok());
  ASSERT_TRUE(waits.Apply(waits.Gradients(-1)).ok());
  EXPECT_EQ(Value("t", 1), 6);
  EXPECT_EQ(Value("t", 3), 4);
  EXPECT_EQ(Value("t", 5), 1);
}

// --- gradients

TEST_F(DeviceEngine, NonFiniteGradientsRaiseOrSkip) {
  for (const char* device : {"gpu", "cpu"}) {
    const std::string a = std::string("a") + device, b = std::string("b") + device;
    Create(a, 2, CacheOf(device, 100, 0, 0));
    Create(b, 3, CacheOf(device, 100, 0, 0));
    StepOf step(&engine_, {{a, {7, 8}}, {b, {9, 10}}});
    auto gradients = step.Gradients(1);
    gradients[1][4] = std::nanf("");
    ASSERT_TRUE(step.Lookup(true).ok());
    const Status raised = step.Apply(gradients);
    EXPECT_EQ(raised.code(), Code::kInvalidArgument);
    EXPECT_THAT(raised.message(), HasSubstr("gradient of table '" + b + "' for id 10 is NaN or Inf"));
    EXPECT_EQ(step.Apply(gradients).code(), Code::kFailedPrecondition) << "the token is used up";
    ASSERT_TRUE(step.Lookup(true).ok());
    ASSERT_TRUE(step.Apply(gradients, 1, NonFinite::kSkip).ok());
    EXPECT_TRUE(step.skipped);
    EXPECT_EQ(Value(a, 7), 0);
    EXPECT_EQ(engine_.Find(a).value()->applies.load(), 0);
    ASSERT_TRUE(step.Lookup(true).ok());
    ASSERT_TRUE(step.Apply(step.Gradients(-1), 1, NonFinite::kSkip).ok());
    EXPECT_FALSE(step.skipped);
    EXPECT_EQ(Value(b, 10), 1);
  }
}

TEST_F(DeviceEngine, PaddingEmptyBatchesAndZeroGradients) {
  Create("t", 2, CacheOf("gpu", 100, 0, 5));
  Create("u", 3, CacheOf("gpu", 100, 0, 5));
  ASSERT_TRUE(Train(&engine_, {{"t", {0, 1, 0, 2}, Key{0}}, {"u", {}}}).ok());
  EXPECT_EQ(Value("t", 0), 0);
  EXPECT_EQ(Value("t", 1), 1);
  EXPECT_EQ(engine_.Find("u").value()->applies.load(), 0);
  EXPECT_EQ(engine_.Find("t").value()->applies.load(), 1);
  StepOf padding(&engine_, {{"t", {1, 2, 1}, Key{1}}});
  ASSERT_TRUE(padding.Lookup(false).ok());
  EXPECT_EQ(padding.rows[0], (std::vector<float>{0, 0, 1, 1, 0, 0}));
  ASSERT_TRUE(Train(&engine_, {{"t", {}}}).ok());
  ASSERT_TRUE(Train(&engine_, {{"t", {1}}}, 0).ok());
  EXPECT_EQ(engine_.Find("t").value()->applies.load(), 1) << "zeros are no tick";
}

TEST_F(DeviceEngine, SumsAreTakenAndAppliedInTwoHalves) {
  for (const char* device : {"gpu", "cpu"}) {
    Create(device, 2, CacheOf(device, 20, 0, 0));
    StepOf step(&engine_, {{device, {1, 2, 1}}, {device, {2, 5}}});
    ASSERT_TRUE(step.Lookup(true).ok());
    const auto gradients = step.Gradients(-1);
    const float* const given[] = {gradients[0].data(), gradients[1].data()};
    Engine::ApplyArgs args;
    args.token = step.token;
    args.gradients = Span<const float* const>(given, 2);
    GradientSums sums;
    ASSERT_TRUE(engine_.SumGradients(step.call(), args, &sums).ok());
    ASSERT_EQ(engine_.SumGradients(step.call(), args, &sums).code(), Code::kFailedPrecondition);
    MergedSums merged;
    merged.tables.resize(1);
    merged.tables[0].active = 1;
    for (size_t i = 0; i < sums.tables[0].keys.size(); ++i) {
      merged.tables[0].keys.push_back(sums.tables[0].keys[i]);
      for (int d = 0; d < 2; ++d) merged.tables[0].sums.push_back(sums.tables[0].sums[2 * i + d]);
    }
    const float rate = 1;
    ASSERT_TRUE(engine_.ApplySums(step.tables(), merged, Span<const float>(&rate, 1)).ok());
    EXPECT_EQ(Values(&engine_, device, {1, 2, 5}), (std::vector<float>{2, 2, 2, 2, 1, 1}));
    EXPECT_EQ(CacheStats(&engine_, device)["ticks"], 3);
  }
}

// --- what does not go

TEST_F(DeviceEngine, CallsThatMixKindsAreRefused) {
  Create("g", 2, CacheOf("gpu", 100, 0, 0));
  Create("c", 2, CacheOf("cpu", 100, 0, 0));
  Create("d", 2, {});
  for (const char* other : {"c", "d"}) {
    for (const bool first : {false, true}) {
      StepOf step(&engine_, {{first ? "g" : other, {1}}, {first ? other : "g", {1}}});
      for (const bool there : {false, true}) {
        const Status status = step.Lookup(true, there);
        EXPECT_EQ(status.code(), Code::kInvalidArgument);
        EXPECT_THAT(status.message(), HasSubstr("table 'g', whose cache is in GPU memory, and table '" +
                                                std::string(other) + "'"));
      }
    }
    StepOf alone(&engine_, {{other, {1}}});
    EXPECT_EQ(alone.Lookup(true, true).code(), Code::kInvalidArgument);
    ASSERT_TRUE(alone.Lookup(true).ok());
    EXPECT_EQ(alone.Apply(alone.Gradients(1), 1, NonFinite::kRaise, true).code(), Code::kInvalidArgument);
    EXPECT_EQ(alone.Apply(alone.Gradients(1)).code(), Code::kFailedPrecondition) << "the token is used up";
  }
  const TablePtr table = engine_.Find("g").value();
  const TablePtr twice[] = {table, table};
  const Key id = 1;
  const FeatureIds features[] = {{0, Span<const Key>(&id, 1), std::nullopt}};
  float row[2];
  float* const out[] = {row};
  const BatchCall call{Span<const TablePtr>(twice, 2), Span<const FeatureIds>(features, 1)};
  EXPECT_THAT(engine_.Lookup(call, Span<float* const>(out, 1), nullptr).message(), HasSubstr("named twice"));
}

TEST_F(DeviceEngine, ADroppedTableIsGoneAndMayComeAgain) {
  Create("t", 2, CacheOf("gpu", 100, 5, 5));
  Create("u", 2, CacheOf("gpu", 100, 5, 5));
  StepOf before(&engine_, {{"t", {1}}, {"u", {1}}});
  ASSERT_TRUE(before.Lookup(true).ok());
  ASSERT_TRUE(Train(&engine_, {{"t", {1}}}).ok());
  ASSERT_TRUE(engine_.DropTable("t").ok());
  EXPECT_THAT(before.Lookup(false).message(), HasSubstr("'t' was dropped"));
  EXPECT_THAT(before.Apply(before.Gradients(-1)).message(), HasSubstr("'t' was dropped"));
  Create("t", 2, CacheOf("gpu", 100, 5, 5));
  EXPECT_EQ(Value("t", 1), 0);
  ASSERT_TRUE(Train(&engine_, {{"t", {1}}, {"u", {1}}}).ok());
  EXPECT_EQ(Value("t", 1), 1);
  EXPECT_TRUE(engine_.CreateTable(SpecOf("t", 2), CacheOf("gpu", 100, 5, 5)).ok());
  EXPECT_EQ(engine_.CreateTable(SpecOf("t", 2), CacheOf("cpu", 100, 5, 5)).code(), Code::kAlreadyExists);
}

TEST_F(DeviceEngine, AForkCannotUseTheDeviceAndItsParentCan) {
  Create("t", 2, CacheOf("gpu", 100, 5, 5));
  Create("h", 2, CacheOf("cpu", 100, 5, 5));
  ASSERT_TRUE(Train(&engine_, {{"t", {1, 2}}}).ok());
  const pid_t child = fork();
  if (child == 0) {
    StepOf step(&engine_, {{"t", {1}}});
    const Status status = step.Lookup(true);
    const bool refused =
        status.code() == Code::kFailedPrecondition && status.message().find("spawn") != std::string::npos;
    const bool others = Train(&engine_, {{"h", {1}}}).ok() && engine_.Flush().ok() &&
                        engine_.Stats("t").ok() && engine_.DropTable("t").ok();
    _exit(refused && others ? 0 : 1);
  }
  int how = 0;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0);
  ASSERT_TRUE(Train(&engine_, {{"t", {1, 2}}}).ok());
  EXPECT_EQ(Value("t", 1), 2);
}

// --- memory that ends

TEST_F(DeviceEngine, DeviceMemoryThatEndsAnywhereLeavesResultsRight) {
  int failed = 0;
  for (uint64_t n = 1; n <= 60; ++n) {
    Engine engine("oom", 1);
    ASSERT_TRUE(engine.CreateTable(SpecOf("t", 2), CacheOf("gpu", 32, 0, 2)).ok());
    std::map<Key, float> wanted;
    auto train = [&](Key first, size_t size) {
      std::vector<Key> ids(size);
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = first + static_cast<Key>(i);
      const Status status = Train(&engine, {{"t", ids}});
      for (const Key id : ids) wanted[id] += status.ok() ? 1.0f : 0.0f;
      return status;
    };
    engine.device()->FailAllocation(n);
    // Larger and larger: memory that a step has taken serves the next one.
    for (const auto& [first, size] : {std::pair<Key, size_t>(0, 20), {10, 48}, {20, 700}, {30, 5000}}) {
      const Status status = train(first, size);
      if (status.ok()) continue;
      ++failed;
      ASSERT_EQ(status.code(), Code::kResourceExhausted) << status.message();
      ASSERT_THAT(status.message(), HasSubstr("table 't'"));
      ASSERT_THAT(status.message(), HasSubstr("cache_rows"));
    }
    const Status flushed = engine.Flush();
    if (!flushed.ok()) {
      ++failed;
      ASSERT_EQ(flushed.code(), Code::kResourceExhausted);
    }
    engine.device()->FailAllocation(0);
    std::vector<Key> ids;
    for (const auto& [id, value] : wanted) ids.push_back(id);
    const std::vector<float> values = Values(&engine, "t", ids);
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(values.at(2 * i), wanted[ids[i]]) << "allocation " << n << ", id " << ids[i];
    }
    ASSERT_TRUE(train(5, 90).ok());
    const TableRows rows = engine.Scan("t").value();
    for (size_t i = 0; i < rows.keys.size(); ++i) ASSERT_EQ(rows.rows[2 * i], wanted[rows.keys[i]]);
  }
  EXPECT_GT(failed, 5);
}

TEST_F(DeviceEngine, ACacheThatDoesNotFitIsNoTable) {
  Create("t", 2, CacheOf("gpu", 32, 0, 2));
  engine_.device()->FailAllocation(1);
  const Status status = engine_.CreateTable(SpecOf("large", 2), CacheOf("gpu", 1 << 20, 0, 2));
  engine_.device()->FailAllocation(0);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("cache of table 'large' with 1048576 rows does not fit"));
  EXPECT_EQ(engine_.TableNames(), std::vector<std::string>{"t"});
  ASSERT_TRUE(Train(&engine_, {{"t", {1}}}).ok());
  Create("large", 2, CacheOf("gpu", 64, 0, 2));
  ASSERT_TRUE(Train(&engine_, {{"t", {1}}, {"large", {1}}}).ok());
  EXPECT_EQ(Value("large", 1), 1);
}

TEST_F(DeviceEngine, HostMemoryThatEndsAnywhereLosesNoUpdate) {
  int failed = 0;
  for (size_t more = 0; more < 60000; more += 371) {
    Engine engine("oom", 1);
    ASSERT_TRUE(engine.CreateTable(SpecOf("t", 2), CacheOf("gpu", 32, 0, 2)).ok());
    std::vector<Key> ids(100);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<Key>(i);
    ASSERT_TRUE(Train(&engine, {{"t", ids}}).ok());
    float most = 1, least = 1;  // ticks that a row may have: a step that failed while pushing was made
    for (int i = 0; i < 3; ++i) {
      SetAllocLimit(AllocatedBytes() + more);
      const Status status = Train(&engine, {{"t", ids}});
      SetAllocLimit(SIZE_MAX);
      ++most;
      least += status.ok() || status.message().find("updates of this step were made") != std::string::npos;
      if (!status.ok()) {
        ++failed;
        ASSERT_EQ(status.code(), Code::kResourceExhausted) << status.message();
      }
    }
    const float value = Values(&engine, "t", {5}).at(0);
    ASSERT_EQ(value, least) << more;
    ASSERT_TRUE(Train(&engine, {{"t", ids}}).ok());
    const TableRows rows = engine.Scan("t").value();
    ASSERT_EQ(rows.keys.size(), ids.size());
    for (const float v : rows.rows) ASSERT_EQ(v, least + 1) << more;
  }
  EXPECT_GT(failed, 5);
}

// --- figures and files

TEST_F(DeviceEngine, CountersTellWhatHappened) {
  Create("t", 2, CacheOf("gpu", 100, 0, 1));
  ASSERT_TRUE(Train(&engine_, {{"t", {1, 2, 3, 1}}}).ok());
  nlohmann::json stats = CacheStats(&engine_, "t");
  EXPECT_EQ(stats["device"], "gpu");
  EXPECT_EQ(stats["capacity"], 128);
  EXPECT_GT(stats["device_bytes"], 128 * 2 * 4);
  EXPECT_EQ(stats["reads"], 3);
  EXPECT_EQ(stats["hits"], 0);
  EXPECT_EQ(stats["miss_pull"], 3);
  EXPECT_EQ(stats["inserts"], 3);
  EXPECT_EQ(stats["transient_rows"], 0);
  EXPECT_EQ(stats["ticks"], 3);
  EXPECT_EQ(stats["rows"], 3);
  EXPECT_EQ(stats["unsent_rows"], 3);
  EXPECT_EQ(stats["bound_push"], 0);
  ASSERT_TRUE(Train(&engine_, {{"t", {1, 2}}}).ok());
  stats = CacheStats(&engine_, "t");
  EXPECT_EQ(stats["reads"], 5);
  EXPECT_EQ(stats["hits"], 2);
  EXPECT_EQ(stats["checks"], 2);
  EXPECT_EQ(stats["bound_push"], 2) << "two ticks are past the bound of one";
  EXPECT_EQ(stats["unsent_rows"], 1);
  ASSERT_EQ(Value("t", 1), 3);
  EXPECT_EQ(CacheStats(&engine_, "t")["reads"], 5) << "a lookup without training counts nothing";
  ASSERT_TRUE(engine_.Clear("t").ok());
  EXPECT_EQ(CacheStats(&engine_, "t")["discarded_ticks"], 1);
  EXPECT_EQ(CacheStats(&engine_, "t")["rows"], 0);
}

TEST_F(DeviceEngine, SavesWhatAnOrdinaryTableSavesAndLoadsIt) {
  TempFolder folder;
  const std::string path = folder.path() + "/rows";
  Create("t", 2, CacheOf("gpu", 64, kUnbounded, kUnbounded), "adagrad");
  for (Key i = 0; i < 50; ++i) ASSERT_TRUE(Train(&engine_, {{"t", {i, 1, i * i}}}).ok());
  ASSERT_TRUE(engine_.Flush().ok());
  SaveRequest request;
  request.tables = {"t"};
  for (uint32_t p = 0; p < LocalService::kDefaultPartitions; ++p) request.partitions.push_back(p);
  ASSERT_TRUE(engine_.SaveRows(path, request).ok());
  const std::vector<float> before = Values(&engine_, "t", {1, 2, 3, 49 * 49});
  for (Key i = 0; i < 9; ++i) ASSERT_TRUE(Train(&engine_, {{"t", {1, 2, 3}}}).ok());  // unsent

  LoadRequest load;
  load.tables["t"] = {"t", true};
  ASSERT_TRUE(engine_.BeginLoad({"me", 60}).ok());
  StepOf step(&engine_, {{"t", {1}}});
  EXPECT_THAT(step.Lookup(true).message(), HasSubstr("is being restored"));
  ASSERT_TRUE(engine_.ClearForLoad("t").ok());
  ASSERT_TRUE(engine_.LoadRows(path, load).ok());
  ASSERT_TRUE(engine_.CommitLoad({}).ok());
  EXPECT_EQ(Values(&engine_, "t", {1, 2, 3, 49 * 49}), before);
  EXPECT_EQ(CacheStats(&engine_, "t")["discarded_ticks"], 27);
  EXPECT_EQ(CacheStats(&engine_, "t")["rows"], 0) << "reading brings nothing into the cache";
}

TEST_F(DeviceEngine, SeveralEnginesDoNotMeet) {
  Engine other("other", 1);
  Create("t", 2, CacheOf("gpu", 64, 0, 3));
  ASSERT_TRUE(other.CreateTable(SpecOf("t", 2), CacheOf("gpu", 64, 0, 3)).ok());
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(Train(&engine_, {{"t", {1}}}).ok());
    ASSERT_TRUE(Train(&other, {{"t", {1}}}, 1).ok());
  }
  EXPECT_EQ(Value("t", 1), 5);
  EXPECT_EQ(Values(&other, "t", {1})[0], -5);
}

// Two workers at one store, one with its cache on the device and one without. A row's value is its ticks.
TEST_F(DeviceEngine, WorkersMissNoMoreThanTheBoundsAllow) {
  for (const auto& [pull, push] : {std::pair<int64_t, int64_t>(0, 0), {0, 3}, {2, 0}, {3, 2}}) {
    LocalService service(8, 0);
    std::vector<std::unique_ptr<Engine>> workers;
    for (const char* device : {"gpu", "cpu"}) {
      workers.push_back(std::make_unique<Engine>(device, 1, std::make_unique<LocalStore>(&service),
                                                 std::make_unique<LocalTransport>(&service), ClientConfig()));
      const Status created = workers.back()->CreateTable(SpecOf("t", 2), CacheOf(device, 40, pull, push));
      ASSERT_TRUE(created.ok()) << created.message();
    }
    std::mt19937_64 random(3);
    std::map<Key, std::map<size_t, float>> ticks;  // of each worker
    for (int i = 0; i < 300; ++i) {
      const size_t w = random() % 2;
      std::vector<Key> ids(1 + random() % 60);
      for (Key& id : ids) id = static_cast<Key>(random() % 80);
      std::sort(ids.begin(), ids.end());
      ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
      StepOf step(workers[w].get(), {{"t", ids}});
      ASSERT_TRUE(step.Lookup(true).ok());
      for (size_t k = 0; k < ids.size(); ++k) {
        const float own = ticks[ids[k]][w], others = ticks[ids[k]][1 - w], seen = step.rows[0][2 * k];
        ASSERT_GE(seen, own + std::max<float>(0, others - static_cast<float>(pull + push)))
            << "bounds " << pull << " and " << push << ", step " << i << ", id " << ids[k];
        ASSERT_LE(seen, own + others);
      }
      ASSERT_TRUE(step.Apply(step.Gradients(-1)).ok());
      for (const Key id : ids) ++ticks[id][w];
    }
    for (auto& worker : workers) ASSERT_TRUE(worker->Flush().ok());
    const TableRows rows = workers[0]->Scan("t").value();
    ASSERT_EQ(rows.keys.size(), ticks.size());
    for (size_t k = 0; k < rows.keys.size(); ++k) {
      ASSERT_EQ(rows.rows[2 * k], ticks[rows.keys[k]][0] + ticks[rows.keys[k]][1]) << rows.keys[k];
    }
  }
}

}  // namespace
}  // namespace het::testing
