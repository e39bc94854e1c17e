// Saving tables at Redis to row files and loading them: limits, the log, workers with warm caches, refusals.
#include <gmock/gmock.h>

#include <algorithm>

#include "het_tf/core/store/local_store.h"
#include "het_tf/ext/checkpoint/cc/checkpoints.h"
#include "het_tf/ext/ps/client/redis_store.h"
#include "tests/testing/redis/remote_worker.h"
#include "tests/testing/stored_rows.h"
#include "tests/testing/temp_folder.h"

namespace het::testing {
namespace {

using ::testing::HasSubstr;

class RedisCheckpoint : public FolderTest {
 protected:
  void SetUp() override {
    if (const std::string missing = RedisServer::Missing(); !missing.empty()) GTEST_SKIP() << missing;
    server_ = std::make_unique<RedisServer>();
    ASSERT_TRUE(server_->up()) << server_->Log();
  }
  // Makes a namespace with `partitions` partitions.
  std::unique_ptr<het::RedisStore> Open(const std::string& name, uint32_t partitions, uint64_t seed) {
    server_->Command(
        {"HSET", "het:" + name, "partitions", std::to_string(partitions), "hash_seed", std::to_string(seed)});
    return ValueOf(het::RedisStore::Open(server_->address(), name, 10, nullptr));
  }

  std::unique_ptr<RedisServer> server_;
};

TEST_F(RedisCheckpoint, LimitsStay) {
  TableLimits limits;
  limits.max_rows = 5000;
  const Schema schema = NewSchema("a", 3, "adagrad", {}, limits);
  const auto store = Open("x", 2, 9);
  ASSERT_TRUE(store->CreateTable(schema).ok());
  const auto before = store->State(*schema).value().limits;
  ASSERT_EQ(before.max_rows, 5000u);
  const auto paths = Save(store.get(), Path("x"), {{schema}});
  Load(store.get(), paths, NewSchema("a", 3, "adagrad"), 17);
  const auto after = store->State(*schema).value();
  EXPECT_TRUE(after.limits.Same(before));
  EXPECT_EQ(after.limits.since, before.since);
  EXPECT_EQ(after.clock_floor, 17);
}

TEST_F(RedisCheckpoint, IncrementsOfAnyHistory) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    // The last server forgets removals: increments that need them become whole.
    if (seed == 3) server_->Command({"CONFIG", "SET", "het.max-tombstones", "3"});
    const auto store = Open("x" + std::to_string(seed), 4, seed);
    CheckIncrements(store.get(), Path(std::to_string(seed)), seed);
  }
}

// Pages of several removals and rows, and the counts before them.
TEST_F(RedisCheckpoint, IncrementsComeInPages) {
  const Schema schema = NewSchema("a", 3, "adagrad");
  const auto store = Open("x", 2, 9);
  ASSERT_TRUE(store->CreateTable(schema).ok());
  AssignRows(store.get(), *schema, 0, 300);
  const auto since = PositionsOf(store.get(), *schema);
  const std::vector<Key> keys = Range(0, 100);
  ASSERT_EQ(store->Remove(*schema, keys).value(), 100u);
  AssignRows(store.get(), *schema, 90, 110);
  const auto count = store->CountChanges(*schema, since, {0, 1}).value();
  EXPECT_EQ(count.rows, 110u);
  EXPECT_EQ(count.removed, 100u);
  std::vector<Key> changed;
  Vector<Key> removed;
  int pages = 0;
  for (uint32_t p = 0; p < 2; ++p) {
    ChangesScan scan;
    for (scan.since = since[p]; !scan.complete; ++pages) {
      RowBatch rows(3, 3, 7);
      ASSERT_TRUE(store->ChangesSome(*schema, p, &scan, &rows, &removed).ok());
      ASSERT_EQ(scan.kind, ChangesKind::kChanges);
      changed.insert(changed.end(), rows.keys(), rows.keys() + rows.size());
    }
  }
  std::sort(changed.begin(), changed.end());
  EXPECT_EQ(changed, Range(90, 110));
  std::sort(removed.begin(), removed.end());
  EXPECT_EQ(std::vector<Key>(removed.begin(), removed.end()), keys);
  EXPECT_GT(pages, 15);
}

TEST_F(RedisCheckpoint, WorkersWithWarmCaches) {
  server_->Command({"HSET", "het:", "partitions", "4", "hash_seed", "3"});
  ClientConfig config;
  config.deadline = 20;
  RemoteWorker loader(server_->address(), config, 50);
  RemoteWorker other(server_->address(), config, 50);
  for (int i = 0; i < 3; ++i) loader.Train({1, 2});
  loader.Flush();
  SaveRequest save;
  save.tables = {"t"};
  save.partitions = {0, 1, 2, 3};
  ASSERT_TRUE(SaveRows(&loader.engine(), Path("rows"), save).ok());

  for (int i = 0; i < 5; ++i) other.Train({2, 3});
  other.Flush();
  loader.Train({1});
  other.Train({1, 2});  // both have unsent updates
  ASSERT_EQ(other.Counter("discarded_ticks"), 0u);

  ASSERT_TRUE(loader.engine().loads().Begin("loader", 60).ok());
  EXPECT_EQ(loader.NoticesWith("1 updates that had not been sent were discarded").size(), 1u);
  EXPECT_THAT(other.engine().loads().Begin("another", 60).message(), HasSubstr("loader loads since"));
  ASSERT_TRUE(loader.engine().loads().Clear("t").ok());
  std::atomic<bool> seen{false};
  std::thread reader([&] {  // waits until the load is whole
    EXPECT_EQ(other.Value(1), 3);
    seen.store(true);
  });
  LoadRequest load;
  load.tables["t"] = {"t", true};
  ASSERT_TRUE(LoadRows(&loader.engine(), Path("rows"), load).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_FALSE(seen.load());
  ASSERT_TRUE(loader.engine().loads().Commit({{"t", 70}}, {{"t", 3}}).ok());
  reader.join();
  for (RemoteWorker* worker : {&loader, &other}) {
    EXPECT_EQ(worker->Value(1), 3);
    EXPECT_EQ(worker->Value(2), 3);
    EXPECT_EQ(worker->Value(3), 0);
  }
  for (RemoteWorker* worker : {&loader, &other}) {
    worker->Train({1, 3});
    worker->Flush();
  }
  EXPECT_EQ(loader.Counter("discarded_ticks"), 1u);
  EXPECT_EQ(other.Counter("discarded_ticks"), 2u);
  EXPECT_EQ(other.NoticesWith("2 updates of table 't' that had not been applied were discarded").size(), 1u);
  RemoteWorker fresh(server_->address(), config, 0);
  EXPECT_EQ(fresh.Value(1), 5) << "everything since then, once";
  EXPECT_EQ(fresh.Value(2), 3);
  EXPECT_EQ(fresh.Value(3), 2);
}

TEST_F(RedisCheckpoint, RefusedAndEnded) {
  const Schema schema = NewSchema("a", 3, "adagrad");
  const auto store = Open("x", 2, 9);
  ASSERT_TRUE(store->CreateTable(schema).ok());
  const auto other = Open("x", 2, 9);
  ASSERT_TRUE(store->BeginLoad("first", 60).ok());
  EXPECT_THAT(other->BeginLoad("second", 60).message(), HasSubstr("first loads since"));
  EXPECT_TRUE(other->AbortLoad("second").ok()) << "it has none";
  EXPECT_TRUE(store->CommitLoad("first").ok());
  // Another loader has marked one partition: the marks of the others are removed again.
  const std::string key = store->keys()[1];
  ASSERT_TRUE(server_->Command({"HET.TABLE", key, "BEGIN", "third", "60"}).ok());
  EXPECT_FALSE(store->BeginLoad("first", 60).ok());
  ASSERT_TRUE(server_->Command({"HET.TABLE", key, "ABORT", "third"}).ok());
  EXPECT_TRUE(other->BeginLoad("second", 60).ok());
  EXPECT_TRUE(other->AbortLoad("second").ok());
  // No room.
  AssignRows(store.get(), *schema, 0, 1000);
  const auto paths = Save(store.get(), Path("x"), {{schema}});
  ASSERT_TRUE(server_->Command({"CONFIG", "SET", "maxmemory", "1"}).ok());
  const auto file = ValueOf(RowReader::Open(paths[0]));
  EXPECT_TRUE(Fails(LoadRows(store.get(), *file, file->tables()[0], *schema, true).status(),
                    Code::kResourceExhausted));
  // A table that does not exist.
  EXPECT_THAT(store->State(*NewSchema("b", 3, "sgd")).status().message(), HasSubstr("has no table 'b'"));
}

}  // namespace
}  // namespace het::testing
