// Saving and loading under an engine: the effects on steps and caches. Tables of this process.
#include <gmock/gmock.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "het_tf/ext/checkpoint/cc/checkpoints.h"
#include "tests/testing/engine_step.h"
#include "tests/testing/process.h"
#include "tests/testing/table_specs.h"
#include "tests/testing/temp_folder.h"

namespace het::testing {
namespace {

using ::testing::HasSubstr;

constexpr size_t kDim = Process::kDim;

// An engine with one table "t" that starts at zero and learns with SGD(1) from gradients of -1: a row's
// values are the number of its steps.
class Counting : public Process {
 public:
  explicit Counting(const TableOptions& options)
      : Process(std::make_shared<Engine>("test", 1), Spec(), options) {}

  static TableSpec Spec() {
    TableSpec spec = NewSpec("t", kDim, "sgd", {"zeros", 0, 0});
    spec.limits.emplace().max_rows = 1000000;
    return spec;
  }
  nlohmann::json Info() {
    return nlohmann::json::parse(ToJson(StoreInfoOf(&engine()).value()))["tables"]["t"];
  }
  Status Save(const std::string& path, const std::vector<uint32_t>& partitions) {
    SaveRequest request;
    request.tables = {"t"};
    request.partitions = partitions;
    return SaveRows(&engine(), path, request).status();
  }
  Status LoadFile(const std::string& path) {
    LoadRequest request;
    request.tables["t"] = {"t", true};
    return LoadRows(&engine(), path, request).status();
  }
};

std::vector<uint32_t> Partitions(uint32_t first, uint32_t end) {
  std::vector<uint32_t> some;
  for (; first < end; ++first) some.push_back(first);
  return some;
}

using CheckpointEngine = FolderTest;

// The loaded row happens to have the clock that the cache knows: only the epoch differs.
TEST_F(CheckpointEngine, WarmCachesSeeWhatWasLoaded) {
  for (const int64_t bound : {int64_t{0}, int64_t{50}, kUnbounded}) {
    Counting counting(Cached(100, bound));
    const std::string path = Path(std::to_string(bound));
    ASSERT_TRUE(counting.Count({1, 2}).ok());
    ASSERT_TRUE(counting.engine().caches().Flush().ok());
    ASSERT_TRUE(counting.Save(path, Partitions(0, 16)).ok());
    const auto positions = counting.Info()["positions"];
    ASSERT_TRUE(counting.engine().tables().Clear("t").ok());
    const std::vector<Key> ids = {1};
    const std::vector<float> other(kDim, 77);
    ASSERT_TRUE(counting.engine().tables().Assign("t", ids, other.data(), false).ok());
    ASSERT_EQ(counting.Value(1), 77);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(counting.Count({2, 3}).ok());  // unsent where the bound allows it

    ASSERT_TRUE(counting.engine().loads().Begin("me", 60).ok());
    ASSERT_TRUE(counting.engine().loads().Clear("t").ok());
    ASSERT_TRUE(counting.LoadFile(path).ok());
    ASSERT_TRUE(counting.engine().loads().Commit({{"t", 40}}, {{"t", 9}}).ok());

    EXPECT_EQ(counting.Value(1), 1);
    EXPECT_EQ(counting.Value(2), 1) << "not what was unsent";
    EXPECT_EQ(counting.Value(3), 0);
    ASSERT_TRUE(counting.engine().caches().Flush().ok());
    EXPECT_EQ(counting.engine().tables().Size("t").value(), 2u) << "nothing was sent later either";
    const auto info = counting.Info();
    EXPECT_EQ(info["clock_floor"], 40);
    EXPECT_EQ(info["applies"], 9);
    EXPECT_EQ(info["limits"]["max_rows"], 1000000) << "limits are no part of rows";
    for (size_t p = 0; p < 16; ++p) EXPECT_NE(info["positions"][p], positions[p]);
    if (bound != 0) {
      EXPECT_EQ(counting.engine().tables().Stats("t").value().cache->counters.discarded_ticks, 6u);
    }
    ASSERT_TRUE(counting.Count({1, 3}).ok());
    EXPECT_EQ(counting.Value(1), 2);
    ASSERT_TRUE(counting.engine().caches().Flush().ok());
    EXPECT_EQ(counting.engine().tables().Scan("t").value().keys.size(), 3u);
  }
}

TEST_F(CheckpointEngine, MeanwhileTheTablesAreTheLoadersAlone) {
  for (const TableOptions& options : {TableOptions(), Cached(100, 0)}) {
    Counting counting(options);
    ASSERT_TRUE(counting.Count({1, 2}).ok());
    std::vector<float> out;
    ASSERT_TRUE(counting.TryLookup({1}, &out).ok());
    EXPECT_THAT(counting.LoadFile(Path("x")).message(), HasSubstr("HetLoadBegin"));
    EXPECT_THAT(counting.engine().loads().Clear("t").message(), HasSubstr("HetLoadBegin"));
    EXPECT_THAT(counting.engine().loads().Commit({}, {}).message(), HasSubstr("HetLoadBegin"));
    ASSERT_TRUE(counting.engine().loads().Begin("me", 60).ok());
    EXPECT_TRUE(counting.engine().loads().Begin("me", 60).ok()) << "renewed";
    EXPECT_THAT(counting.engine().loads().Begin("you", 60).message(), HasSubstr("is being loaded by 'me'"));
    const std::vector<Key> ids = {1};
    const std::vector<float> row(kDim, 5);
    size_t removed = 0;
    for (const Status& refused :
         {counting.TryApply({{1}, row}, 1), counting.TryLookup({1}, &out), counting.Count({1}),
          counting.engine().tables().Assign("t", ids, row.data(), false),
          counting.engine().tables().Remove("t", ids, &removed), counting.engine().tables().Clear("t")}) {
      EXPECT_TRUE(
          Fails(refused, Code::kFailedPrecondition, "a checkpoint is being restored into namespace 'test'"));
    }
    EXPECT_THAT(counting.Save(Path("x"), {0}).message(), HasSubstr("is being loaded by 'me'"));
    CommitRequest unknown;
    unknown.applies["no"] = 1;
    EXPECT_EQ(counting.engine().loads().Commit(unknown.clock_floors, unknown.applies).code(),
              Code::kNotFound);
    EXPECT_EQ(counting.Count({1}).code(), Code::kFailedPrecondition) << "they are the loader's still";
    EXPECT_TRUE(counting.engine().loads().Abort().ok());
    EXPECT_TRUE(counting.engine().loads().Abort().ok()) << "there is none";
    EXPECT_EQ(counting.Value(1), 1) << "nothing was changed";
    EXPECT_TRUE(counting.Count({1}).ok());
    EXPECT_EQ(counting.Value(1), 2);
  }
}

// Steps go on while several threads save; several threads load; steps that run then are refused completely.
TEST_F(CheckpointEngine, SideBySide) {
  for (const TableOptions& options : {TableOptions(), Cached(100, 3)}) {
    Counting counting(options);
    const std::vector<Key> ids = Range(0, 2000);
    ASSERT_TRUE(counting.Count(ids).ok());
    std::atomic<bool> done{false};
    std::atomic<int> refused{0}, steps{0};
    std::thread trainer([&] {
      while (!done.load()) {
        const Status status = counting.Count(ids);
        EXPECT_TRUE(status.ok() || status.code() == Code::kFailedPrecondition) << status.message();
        (status.ok() ? steps : refused)++;
      }
    });
    const std::string prefix = Path(options.cache ? "cached" : "direct");
    std::vector<std::thread> savers;
    for (uint32_t g = 0; g < 4; ++g) {
      savers.emplace_back([&, g] {
        EXPECT_TRUE(Ok(counting.Save(prefix + std::to_string(g), Partitions(4 * g, 4 * g + 4))));
      });
    }
    for (std::thread& saver : savers) saver.join();
    while (steps.load() < 3) std::this_thread::yield();
    ASSERT_TRUE(counting.engine().loads().Begin("me", 60).ok());
    ASSERT_TRUE(counting.engine().loads().Clear("t").ok());
    std::vector<std::thread> loaders;
    for (uint32_t g = 0; g < 4; ++g) {
      loaders.emplace_back([&, g] { EXPECT_TRUE(Ok(counting.LoadFile(prefix + std::to_string(g)))); });
    }
    for (std::thread& loader : loaders) loader.join();
    while (refused.load() == 0) std::this_thread::yield();
    ASSERT_TRUE(counting.engine().loads().Commit({}, {}).ok());
    const int before = steps.load();
    while (steps.load() < before + 2) std::this_thread::yield();
    done.store(true);
    trainer.join();
    ASSERT_TRUE(counting.engine().caches().Flush().ok());
    EXPECT_EQ(counting.engine().tables().Size("t").value(), ids.size());
  }
}

}  // namespace
}  // namespace het::testing
