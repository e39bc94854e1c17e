// Tables with a cache on a device, through the engine: tokens, gradients, errors, counters and files.
// Exhausted memory: device_memory_test.cc; random calls: device_schedules_test.cc; several workers:
// device_workers_test.cc. The device is the library that HET_DEVICE_LIBRARY names, or the host's.
#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "het_tf/core/base/alloc.h"
#include "het_tf/ext/checkpoint/cc/checkpoints.h"
#include "het_tf/ext/gpu/cc/device_table.h"
#include "tests/testing/device/device_engine.h"
#include "tests/testing/temp_folder.h"

namespace het::testing {
namespace {

using ::testing::HasSubstr;

// Runs first: afterwards the library stays loaded.
TEST(BeforeTheLibrary, TheMessageSaysWhatIsMissing) {
  Engine engine("test");
  EXPECT_TRUE(Fails(engine.tables().Create(SpecOf("t", 2), CacheOf("gpu", 10, 0, 0)),
                    Code::kFailedPrecondition, "het_tf.Cache(device=\"cpu\")"));
  EXPECT_TRUE(engine.tables().Names().empty());
  EXPECT_EQ(DeviceLibrary::Load("/nowhere.so", 0).code(), Code::kNotFound);
  EXPECT_EQ(DeviceLibrary::Load("libm.so.6", 0).code(), Code::kFailedPrecondition);
  EXPECT_EQ(DeviceLibrary::Load(DeviceLibraryPath(), -1).code(), Code::kInvalidArgument);
  ASSERT_TRUE(Ok(DeviceLibrary::Load(DeviceLibraryPath(), 0)));
  EXPECT_TRUE(DeviceLibrary::Load(DeviceLibraryPath(), 0).ok());
  EXPECT_THAT(DeviceLibrary::Load(DeviceLibraryPath(), 1).message(), HasSubstr("GPU 0"));
  EXPECT_EQ(DeviceLibrary::Load("libm.so.6", 0).code(), Code::kFailedPrecondition);
}

TEST(DeviceOptions, AreCheckedAndWritten) {
  const auto schema = TableSchema::Create(SpecOf("t", 2)).value();
  const auto gpu = ParseCacheOptions("{\"device\": \"gpu\", \"rows\": 7}").value().Resolve(*schema, true);
  ASSERT_TRUE(gpu.ok());
  EXPECT_THAT(ToJson(gpu.value()), HasSubstr("\"device\":\"gpu\""));
  EXPECT_EQ(gpu.value().cache->wire, RowFormat::kFloat32);
  EXPECT_EQ(gpu.value().cache->checks, Checks::kNotified);
  EXPECT_TRUE(gpu.value().cache->sync().subscribes);
}

TEST_F(DeviceEngine, BytesDetermineTheRows) {
  const DeviceLibrary& library = *DeviceLibrary::Get().value();
  const auto schema = TableSchema::Create(SpecOf("t", 2)).value();
  HetDevTableConfig config = DeviceConfig(*schema, *CacheOf("gpu", 1, 0, 0).cache, {0, 8, 0}).value();
  const auto bytes_of = [&](uint64_t rows) {
    config.capacity = rows;
    uint64_t bytes = 0;
    EXPECT_EQ(library.HetDevTableBytes(&config, &bytes), HET_DEV_OK) << library.HetDevError();
    return bytes;
  };
  constexpr uint64_t kMost = HET_DEV_MOST_ROWS;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{100}, uint64_t{1} << 20, uint64_t{1} << 41,
                               uint64_t{1} << 50, uint64_t{1} << 62}) {
    const auto rows = DeviceRowsThatFit(library, config, bytes);
    ASSERT_TRUE(rows.ok()) << bytes << ": " << rows.status().message();
    ASSERT_EQ(rows.value() % 32, 0u);
    EXPECT_TRUE(rows.value() == 0 || bytes_of(rows.value()) <= bytes) << bytes;
    EXPECT_TRUE(rows.value() == kMost || bytes_of(rows.value() + 32) > bytes) << bytes;
  }
}

// --- tokens

TEST_F(DeviceEngine, TokenMayBeUsedAgainOnEitherPath) {
  Create("t", 2, CacheOf("gpu", 100, 3, 3));
  StepOf step(&engine_, {{"t", {1, 2, 1}}});
  for (const bool there : {false, true}) {
    ASSERT_TRUE(step.Lookup(true, there).ok());
    ASSERT_TRUE(step.Apply(step.Gradients(-1), 1, !there).ok());
    ASSERT_TRUE(step.Apply(step.Gradients(-1), 1, there).ok());
  }
  EXPECT_EQ(Value("t", 1), 8);
  EXPECT_EQ(Value("t", 2), 4);
}

// The rows of a step stay with it: while it waits others do not evict its rows, or it fetches them again.
TEST_F(DeviceEngine, ABatchLargerThanTheCacheLearns) {
  Create("t", 2, CacheOf("gpu", 1, 0, kUnbounded));
  const std::vector<Key> ids = Range(0, 500);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Train(&engine_, {{"t", ids}}).ok());
  for (const float value : Values(&engine_, "t", ids)) ASSERT_EQ(value, 3);
  const nlohmann::json stats = CacheStats(&engine_, "t");
  EXPECT_EQ(stats["rows"], 32);  // a whole bucket
  EXPECT_EQ(stats["transient_rows"], 3 * 468);
  EXPECT_EQ(stats["evict_push"], 3 * 468);
  EXPECT_EQ(stats["unsent_rows"], 32);
  EXPECT_EQ(stats["bound_push"], 0);
  // What leaves with its tick is counted as evicted, unless it is past its bound.
  for (const uint32_t every : {1, 2}) {
    const std::string name = "every" + std::to_string(every);
    Create(name, 2, CacheOf("gpu", 1, 0, Bound(4, every)));
    ASSERT_TRUE(Train(&engine_, {{name, {ids.begin(), ids.begin() + 40}}}).ok());
    EXPECT_EQ(CacheStats(&engine_, name)["bound_push"], every == 2 ? 40 : 0);
    EXPECT_EQ(CacheStats(&engine_, name)["evict_push"], every == 2 ? 0 : 8);
  }
}

// Rows of an old step are not pinned: fetching the one that has left evicts the next one, and so on.
TEST_F(DeviceEngine, OldStepsRowsEvictEachOtherOnce) {
  Create("t", 2, CacheOf("gpu", 32, kUnbounded, kUnbounded));  // one bucket
  const std::vector<Key> ids = Range(0, 32);
  StepOf old(&engine_, {{"t", ids}});
  ASSERT_TRUE(old.Lookup(true).ok());
  StepOf next(&engine_, {{"t", {100}}});
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(next.Lookup(true).ok());
  ASSERT_EQ(CacheStats(&engine_, "t")["evictions"], 1);
  const uint64_t before = CacheStats(&engine_, "t")["miss_pull"];
  ASSERT_TRUE(Ok(old.Apply(old.Gradients(-1))));
  EXPECT_EQ(CacheStats(&engine_, "t")["miss_pull"], before + 32);
  for (const float value : Values(&engine_, "t", ids)) EXPECT_EQ(value, 1);
}

TEST_F(DeviceEngine, StampsBeginAgain) {
  Create("t", 2, CacheOf("gpu", 64, kUnbounded, kUnbounded));
  ASSERT_TRUE(Train(&engine_, {{"t", {1, 2}}}).ok());
  DeviceOf(&engine_)->set_stamp(DeviceCalls::kLastStamp - 1);
  StepOf waits(&engine_, {{"t", {1, 5}}});
  ASSERT_TRUE(waits.Lookup(true).ok());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Train(&engine_, {{"t", {1, 2, 3}}}).ok());
  ASSERT_TRUE(waits.Apply(waits.Gradients(-1)).ok());
  EXPECT_EQ(Value("t", 1), 6);
  EXPECT_EQ(Value("t", 3), 4);
  EXPECT_EQ(Value("t", 5), 1);
}

// --- gradients

TEST_F(DeviceEngine, NonFiniteGradientsChangeNothing) {
  Create("a", 2, CacheOf("gpu", 100, 0, 0));
  Create("b", 3, CacheOf("gpu", 100, 0, 0));
  StepOf step(&engine_, {{"a", {7, 8}}, {"b", {9, 10}}});
  auto gradients = step.Gradients(1);
  gradients[1][4] = std::nanf("");
  ASSERT_TRUE(step.Lookup(true).ok());
  EXPECT_TRUE(
      Fails(step.Apply(gradients), Code::kInvalidArgument, "gradient of table 'b' for id 10 is NaN or Inf"));
  EXPECT_EQ(Value("a", 7), 0);
  EXPECT_EQ(engine_.tables().Find("a").value()->applies.load(), 0);
  ASSERT_TRUE(step.Lookup(true).ok());
  ASSERT_TRUE(step.Apply(step.Gradients(-1)).ok());
  EXPECT_EQ(Value("b", 10), 1);
}

// --- refused calls

TEST_F(DeviceEngine, CallsThatMixKindsAreRefused) {
  Create("g", 2, CacheOf("gpu", 100, 0, 0));
  Create("c", 2, CacheOf("cpu", 100, 0, 0));
  Create("d", 2, {});
  for (const char* other : {"c", "d"}) {
    for (const bool first : {false, true}) {
      StepOf step(&engine_, {{first ? "g" : other, {1}}, {first ? other : "g", {1}}});
      for (const bool there : {false, true}) {
        EXPECT_TRUE(Fails(step.Lookup(true, there), Code::kInvalidArgument,
                          "table 'g', whose cache is in GPU memory, and table '" + std::string(other) + "'"));
      }
    }
    StepOf alone(&engine_, {{other, {1}}});
    EXPECT_EQ(alone.Lookup(true, true).code(), Code::kInvalidArgument);
    ASSERT_TRUE(alone.Lookup(true).ok());
    EXPECT_EQ(alone.Apply(alone.Gradients(1), 1, true).code(), Code::kInvalidArgument);
  }
  const TablePtr table = engine_.tables().Find("g").value();
  const TablePtr twice[] = {table, table};
  const Key id = 1;
  const FeatureIds features[] = {{0, Span<const Key>(&id, 1), std::nullopt}};
  float row[2];
  float* const out[] = {row};
  const BatchCall call{Span<const TablePtr>(twice, 2), Span<const FeatureIds>(features, 1)};
  EXPECT_THAT(engine_.steps().Lookup(call, Span<float* const>(out, 1), nullptr).message(),
              HasSubstr("named twice"));
}

TEST_F(DeviceEngine, DroppedTableMayBeCreatedAgain) {
  Create("t", 2, CacheOf("gpu", 100, 5, 5));
  Create("u", 2, CacheOf("gpu", 100, 5, 5));
  StepOf before(&engine_, {{"t", {1}}, {"u", {1}}});
  ASSERT_TRUE(before.Lookup(true).ok());
  ASSERT_TRUE(Train(&engine_, {{"t", {1}}}).ok());
  const auto free_bytes = [] { return DeviceLibrary::Get().value()->Describe().value().free_bytes; };
  const uint64_t held = free_bytes();
  ASSERT_TRUE(engine_.tables().Drop("t").ok());
  EXPECT_GT(free_bytes(), held);
  EXPECT_THAT(before.Lookup(false).message(), HasSubstr("'t' was dropped"));
  EXPECT_THAT(before.Apply(before.Gradients(-1)).message(), HasSubstr("'t' was dropped"));
  Create("t", 2, CacheOf("gpu", 100, 5, 5));
  EXPECT_EQ(Value("t", 1), 0);
  ASSERT_TRUE(Train(&engine_, {{"t", {1}}, {"u", {1}}}).ok());
  EXPECT_EQ(Value("t", 1), 1);
  EXPECT_TRUE(engine_.tables().Create(SpecOf("t", 2), CacheOf("gpu", 100, 5, 5)).ok());
  EXPECT_EQ(engine_.tables().Create(SpecOf("t", 2), CacheOf("cpu", 100, 5, 5)).code(), Code::kAlreadyExists);
}

// --- counters and files

TEST_F(DeviceEngine, CountersTellWhatHappened) {
  Create("t", 2, CacheOf("gpu", 100, 0, 1));
  ASSERT_TRUE(Train(&engine_, {{"t", {1, 2, 3, 1}}}).ok());
  const nlohmann::json stats = CacheStats(&engine_, "t");
  EXPECT_EQ(stats["device"], "gpu");
  EXPECT_EQ(stats["capacity"], 128);
  EXPECT_GT(stats["device_bytes"], 128 * 2 * 4);
  EXPECT_EQ(stats["reads"], 3);
  EXPECT_EQ(stats["transient_rows"], 0);
  ASSERT_TRUE(Train(&engine_, {{"t", {1, 2}}}).ok());
  ASSERT_EQ(Value("t", 1), 3);
  EXPECT_EQ(CacheStats(&engine_, "t")["reads"], 5) << "a lookup without training counts nothing";
  ASSERT_TRUE(engine_.tables().Clear("t").ok());
  EXPECT_EQ(CacheStats(&engine_, "t")["discarded_ticks"], 1);
  EXPECT_EQ(CacheStats(&engine_, "t")["rows"], 0);
}

TEST_F(DeviceEngine, SavesAndLoadsLikeAnOrdinaryTable) {
  TempFolder folder;
  const std::string path = folder.path() + "/rows";
  Create("t", 2, CacheOf("gpu", 64, kUnbounded, kUnbounded), "adagrad");
  for (Key i = 0; i < 50; ++i) ASSERT_TRUE(Train(&engine_, {{"t", {i, 1, i * i}}}).ok());
  ASSERT_TRUE(engine_.caches().Flush().ok());
  SaveRequest request;
  request.tables = {"t"};
  for (uint32_t p = 0; p < LocalService::kDefaultPartitions; ++p) request.partitions.push_back(p);
  ASSERT_TRUE(SaveRows(&engine_, path, request).ok());
  const std::vector<float> before = Values(&engine_, "t", {1, 2, 3, 49 * 49});
  for (Key i = 0; i < 9; ++i) ASSERT_TRUE(Train(&engine_, {{"t", {1, 2, 3}}}).ok());  // unsent

  LoadRequest load;
  load.tables["t"] = {"t", true};
  ASSERT_TRUE(engine_.loads().Begin("me", 60).ok());
  StepOf step(&engine_, {{"t", {1}}});
  EXPECT_THAT(step.Lookup(true).message(), HasSubstr("is being restored"));
  ASSERT_TRUE(engine_.loads().Clear("t").ok());
  ASSERT_TRUE(LoadRows(&engine_, path, load).ok());
  ASSERT_TRUE(engine_.loads().Commit({}, {}).ok());
  EXPECT_EQ(Values(&engine_, "t", {1, 2, 3, 49 * 49}), before);
  EXPECT_EQ(CacheStats(&engine_, "t")["discarded_ticks"], 27);
  EXPECT_EQ(CacheStats(&engine_, "t")["rows"], 0) << "reading brings nothing into the cache";
}

TEST_F(DeviceEngine, ThreadsShareATable) {
  Create("t", 2, CacheOf("gpu", 64, 2, 2));
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (Key first = 0; first < 3; ++first) {
    threads.emplace_back([&, first] {
      std::vector<Key> ids;
      for (Key id = first; id < 120; id += 2) ids.push_back(id);
      for (int i = 0; i < 50; ++i) failed += !Train(&engine_, {{"t", ids}}).ok();
    });
  }
  for (int i = 0; i < 20; ++i) {
    failed += !engine_.tables().Stats("t").ok();
    failed += !engine_.caches().Flush().ok();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed.load(), 0);
  EXPECT_EQ(Value("t", 0), 50);
  EXPECT_EQ(Value("t", 1), 50);
  EXPECT_EQ(Value("t", 2), 100);
}

}  // namespace
}  // namespace het::testing
