// The corner cases of the clock protocol, one named test each: a client, a store and the network between
// them.
#include <gtest/gtest.h>

#include <limits>

#include "tests/cpp/testing/world.h"

namespace het::testing {
namespace {

constexpr Key kMin = std::numeric_limits<Key>::min();

WorldConfig Config(int64_t bound, size_t capacity = 1000) {
  WorldConfig config;
  config.cache.pull_bound = bound;
  config.cache.push_bound = bound;
  config.cache.capacity = capacity;
  return config;
}

// A world whose checks are looked at when the test ends.
class Corner : public ::testing::Test {
 protected:
  void Make(const WorldConfig& config) { world_ = std::make_unique<World>(config); }
  void TearDown() override {
    if (world_ == nullptr) return;
    world_->CheckConservation();
    EXPECT_EQ(world_->FirstError(), "");
  }
  World& world() { return *world_; }
  TableCache* cache(size_t w = 0, size_t table = 0) {
    return world_->client(w).cache(world_->schema(table)->id());
  }
  TableKey At(Key key, size_t table = 0) { return {world_->schema(table)->id(), key}; }

  std::unique_ptr<TestStep> Read(size_t w, const std::vector<Key>& keys, bool training = true) {
    auto step = world_->NewStep({keys});
    const Status status = world_->Read(w, step.get(), training);
    EXPECT_TRUE(status.ok()) << status.message();
    return step;
  }
  void Write(size_t w, TestStep* step) {
    const Status status = world_->Write(w, step);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  void Train(size_t w, const std::vector<Key>& keys) { Write(w, Read(w, keys).get()); }
  void Drained() {
    const Status status = world_->Drain();
    EXPECT_TRUE(status.ok()) << status.message();
    world_->CheckDrained();
  }
  // The first `count` keys from `from` on that live in partition p.
  std::vector<Key> KeysOf(uint32_t p, size_t count, Key from = 0) {
    std::vector<Key> keys;
    for (Key key = from; keys.size() < count; ++key) {
      if (PartitionOf(HashKey(key, world_->service().hash_seed()), world_->service().partitions()) == p) {
        keys.push_back(key);
      }
    }
    return keys;
  }
  std::vector<Request> Sent(size_t w) {
    std::vector<Request> requests;
    for (auto& [p, bytes] : world_->transport(w).recorded) {
      requests.emplace_back();
      EXPECT_TRUE(Decode(Span<const uint8_t>(bytes.data(), bytes.size()), &requests.back()).ok());
    }
    world_->transport(w).recorded.clear();
    return requests;
  }

 private:
  std::unique_ptr<World> world_;
};

// --- batches
// ------------------------------------------------------------------------------------------------

TEST_F(Corner, EmptyBatchSendsNothing) {
  Make(Config(0));
  Train(0, {});
  EXPECT_EQ(world().transport(0).served(), 0u);
}

TEST_F(Corner, BatchLargerThanTheCache) {
  Make(Config(3, 4));
  std::vector<Key> keys;
  for (Key key = 0; key < 50; ++key) keys.push_back(key);
  for (int i = 0; i < 5; ++i) {
    Train(0, keys);
    EXPECT_LE(cache()->lines().size(), 4u);
  }
  EXPECT_GT(cache()->counters().transient_rows, 0u);
  Drained();
}

TEST_F(Corner, CapacityZeroKeepsNoRowBeyondItsStep) {
  Make(Config(3, 0));
  for (int i = 0; i < 6; ++i) {
    Train(0, {1, 2, 3});
    EXPECT_EQ(cache()->lines().size(), 0u);
    EXPECT_EQ(cache()->Pinned(), 0u);
  }
  Drained();
}

TEST_F(Corner, CapacityOverTheTable) {
  Make(Config(kUnbounded, 100000));
  for (int i = 0; i < 6; ++i) Train(0, {1, 2, 3});
  EXPECT_EQ(cache()->counters().miss_pull, 3u);
  EXPECT_EQ(cache()->counters().evictions, 0u);
  Drained();
}

TEST_F(Corner, RowsThatAreNotAdmittedDoNotCrowdOutThoseThatAre) {
  WorldConfig config = Config(kUnbounded, 30);
  config.cache.admit_after = 2;
  Make(config);
  Train(0, {1000, 1001, 1002, 1003});
  std::vector<Key> batch;
  for (Key key = 0; key < 40; ++key) batch.push_back(key);  // seen once: stay outside
  for (Key key = 1000; key < 1004; ++key) batch.push_back(key);
  Train(0, batch);
  for (Key key = 1000; key < 1004; ++key) EXPECT_NE(cache()->lines().Find(key), kNoRow) << key;
}

TEST_F(Corner, TwoTablesInOneFrame) {
  WorldConfig config = Config(0);
  config.tables = 2;
  Make(config);
  world().transport(0).record = true;
  auto step = world().NewStep({{1, 2}, {2, 3}});
  ASSERT_TRUE(world().Read(0, step.get()).ok());
  Sent(0);
  Write(0, step.get());
  const std::vector<Request> sent = Sent(0);
  ASSERT_EQ(sent.size(), 1u);
  ASSERT_EQ(sent[0].tables.size(), 2u);
  EXPECT_EQ(sent[0].tables[0].push_keys.size() + sent[0].tables[1].push_keys.size(), 4u);
  Drained();
}

TEST_F(Corner, TwoLookupsOfOneTableInAStep) {
  Make(Config(0));
  auto a = Read(0, {1, 2});
  auto b = Read(0, {2, 3});
  Write(0, a.get());
  Write(0, b.get());
  EXPECT_EQ(world().ServerClock(At(2)), 2);
  EXPECT_EQ(cache()->Pinned(), 0u);
  Drained();
}

TEST_F(Corner, AGradientThatIsAllZeroIsNoTick) {
  Make(Config(0));
  auto step = Read(0, {1, 2});
  for (auto& [where, part] : step->parts()) part.touched.assign(part.touched.size(), 0);
  Write(0, step.get());
  EXPECT_EQ(world().ServerClock(At(1)), 0);
  EXPECT_EQ(world().service().Rows(At(1).first), 0u);
  EXPECT_EQ(cache()->Pinned(), 0u);
}

// --- keys
// ---------------------------------------------------------------------------------------------------

TEST_F(Corner, ExtremeAndUnsortedIds) {
  WorldConfig config = Config(0);
  config.partitions = 3;
  Make(config);
  const std::vector<Key> keys = {
      int64_t{1} << 31,       (int64_t{1} << 53) + 1, -1,   kMin, INT64_MAX, 0, kMin + 1,
      (int64_t{1} << 53) + 2, (int64_t{1} << 31) + 1, -1000};
  for (int i = 0; i < 3; ++i) Train(0, keys);
  EXPECT_EQ(world().service().Rows(At(0).first), keys.size());
  for (Key key : keys) EXPECT_EQ(world().ServerClock(At(key)), 3) << key;
  Drained();
}

TEST_F(Corner, KeysOnTheLastShardOnly) {
  WorldConfig config = Config(1);
  config.partitions = 4;
  Make(config);
  for (int i = 0; i < 4; ++i) Train(0, KeysOf(3, 20));
  for (uint32_t p = 0; p < 3; ++p) EXPECT_EQ(world().client(0).link(p).inc, 0u) << "nothing to say to " << p;
  Drained();
}

TEST_F(Corner, AShardWithNoKeys) {
  WorldConfig config = Config(1);
  config.partitions = 3;
  Make(config);
  std::vector<Key> keys = KeysOf(0, 10);
  for (Key key : KeysOf(2, 10)) keys.push_back(key);
  for (int i = 0; i < 4; ++i) Train(0, keys);
  EXPECT_EQ(world().client(0).link(1).inc, 0u);
  Drained();
}

TEST_F(Corner, DimOneAndDimsThatAreNoMultipleOfFour) {
  for (const std::string& name : Optimizer::Names()) {
    for (uint32_t dim : {1u, 3u, 5u, 17u}) {
      WorldConfig config = Config(2, 2);
      config.optimizer = name;
      config.dim = dim;
      Make(config);
      if (name == "sgd") continue;  // with one coordinate there is nothing to count
      for (int i = 0; i < 20; ++i) Train(0, {i % 3, i % 5, 7});
      Drained();
      EXPECT_EQ(world().FirstError(), "");
    }
  }
}

// --- bounds
// -------------------------------------------------------------------------------------------------

TEST_F(Corner, PushBoundZeroReturnsWhenTheServerHasIt) {
  WorldConfig config = Config(0);
  config.cache.pull_bound = kUnbounded;
  Make(config);
  for (int i = 1; i <= 5; ++i) {
    Train(0, {1, 2});
    EXPECT_EQ(world().ServerClock(At(1)), i);
    EXPECT_EQ(world().client(0).UnappliedTicks(At(1).first, 1), 0u);
  }
}

TEST_F(Corner, UnboundedTravelsOnMissAndEvictionOnly) {
  Make(Config(kUnbounded));
  Train(0, {1, 2});
  const uint64_t served = world().transport(0).served();
  for (int i = 0; i < 100; ++i) Train(0, {1, 2});
  EXPECT_EQ(world().transport(0).served(), served);
  EXPECT_EQ(world().ServerClock(At(1)), 0);
  Drained();
}

TEST_F(Corner, AsymmetricBounds) {
  WorldConfig config = Config(0);
  config.workers = 2;
  config.cache.pull_bound = 0;
  config.cache.push_bound = 3;
  Make(config);
  for (int i = 0; i < 4; ++i) Train(0, {1});  // the fourth tick is past the bound
  EXPECT_EQ(world().ServerClock(At(1)), 4);
  for (int i = 0; i < 3; ++i) Train(0, {1});
  EXPECT_EQ(world().ServerClock(At(1)), 4);
  EXPECT_EQ(Read(1, {1})->Value(At(1).first, 1)[0], kInitial - 4);
  Train(1, {1});
  EXPECT_EQ(Read(0, {1})->Value(At(1).first, 1)[0], kInitial - 7);
  Drained();
}

TEST_F(Corner, ACheckRefreshesOnlyPastTheBound) {
  WorldConfig config = Config(0);
  config.workers = 2;
  config.cache.pull_bound = 2;
  Make(config);
  Read(1, {1});
  for (int i = 1; i <= 3; ++i) {
    Train(0, {1});
    // Ticks 1 and 2 stay within the bound; the third brings all three.
    EXPECT_EQ(Read(1, {1})->Value(At(1).first, 1)[0], kInitial - (i < 3 ? 0 : 3));
  }
}

TEST_F(Corner, ClocksNearTwoToTheThirtyOne) {
  WorldConfig config = Config(1);
  config.workers = 2;
  Make(config);
  Train(0, {1, 2});
  ASSERT_TRUE(world().Flush(0).ok());
  const int64_t limit = int64_t{1} << 31;
  world().service().WithPartition(0, [&](Partition& p) {
    RowStore& rows = p.Find(At(1).first)->rows();
    rows.meta(rows.Find(1)).clock = limit - 2;
  });
  std::unique_ptr<TestStep> step = world().NewStep({{1}});
  auto train = [&](size_t w) {
    step = world().NewStep({{1}});
    ASSERT_TRUE(world().client(w).Read(step->MakeRead(), world().NewToken()).ok());
    ASSERT_TRUE(world().client(w).Write(step->MakeWrite(0), 0, nullptr).ok());
  };
  for (int i = 0; i < 4; ++i) train(0);
  for (int i = 0; i < 4; ++i) train(1);
  EXPECT_EQ(world().ServerClock(At(1)), limit + 6);
  ASSERT_TRUE(world().client(0).Read(step->MakeRead(), world().NewToken()).ok());
  EXPECT_EQ(cache(0)->base(cache(0)->lines().Find(1)), limit + 6) << "more than the bound behind: refreshed";
  Make(Config(0));  // the oracle knows nothing of clocks that were set by hand
}

// N workers with a barrier after every step, against one process that gets every sum of gradients.
TEST_F(Corner, BulkSynchronousEqualsOneProcessBitForBit) {
  for (uint32_t workers : {2u, 3u}) {
    WorldConfig config = Config(0, 5);
    config.workers = workers;
    config.partitions = 3;
    config.dim = 4;  // values are compared below, nothing is counted
    Make(config);
    std::map<Key, std::vector<float>> reference;
    Random& random = world().random();
    for (int i = 0; i < 60; ++i) {
      std::vector<std::unique_ptr<TestStep>> steps;
      for (uint32_t w = 0; w < workers; ++w) {
        std::vector<Key> keys;
        for (uint64_t n = random.Below(9); n > 0; --n) keys.push_back(random.Between(0, 12));
        steps.push_back(world().NewStep({keys}));
        ASSERT_TRUE(world().client(w).Read(steps[w]->MakeRead(), steps[w]->token = world().NewToken()).ok());
        for (auto& [where, part] : steps[w]->parts()) {
          for (size_t u = 0; u < part.keys.size(); ++u) {
            const std::vector<float>& expected =
                reference.try_emplace(part.keys[u], std::vector<float>(4, kInitial)).first->second;
            ASSERT_EQ(std::vector<float>(part.values[u], part.values[u] + 4), expected) << "step " << i;
          }
        }
      }
      for (uint32_t w = 0; w < workers; ++w) {
        for (auto& [where, part] : steps[w]->parts()) {
          for (size_t u = 0; u < part.keys.size(); ++u) {
            for (size_t d = 0; d < 4; ++d) {
              const auto g = static_cast<float>(random.Between(-5, 5));
              part.sums[u * 4 + d] = g;
              reference[part.keys[u]][d] -= g;
            }
          }
        }
        ASSERT_TRUE(world().client(w).Write(steps[w]->MakeWrite(1), steps[w]->token, nullptr).ok());
      }
    }
    for (auto& [key, row] : reference) EXPECT_EQ(world().ServerRow(At(key)), row);
  }
}

// --- tokens and pins
// ----------------------------------------------------------------------------------------

TEST_F(Corner, TenThousandLookupsNeverDifferentiated) {
  Make(Config(kUnbounded, 100));
  for (int i = 0; i < 10000; ++i) Read(0, {i % 50, 1000 + i % 77});
  EXPECT_LE(cache()->Pinned(), 2 * Client::kPinnedTokens);
  EXPECT_LE(cache()->lines().size(), 100 + 2 * Client::kPinnedTokens);
  for (size_t i = 0; i < Client::kPinnedTokens; ++i) Read(0, {});
  EXPECT_EQ(cache()->Pinned(), 0u);
  Train(0, {1});
  EXPECT_LE(cache()->lines().size(), 100u);
}

TEST_F(Corner, WriteToAKeyEvictedSinceItsRead) {
  Make(Config(3, 2));
  auto old = Read(0, {1, 2, 3});
  for (Key key = 10; key < 40; key += 3) Train(0, {key, key + 1, key + 2});
  for (Key key = 10; key < 40; key += 3) Read(0, {key, key + 1, key + 2});
  ASSERT_EQ(cache()->lines().Find(1), kNoRow);
  Write(0, old.get());
  Drained();
  EXPECT_EQ(world().ServerClock(At(1)), 1);
}

TEST_F(Corner, ATokenThatNobodyKnows) {
  Make(Config(0));
  world().client(0).Unpin(123456);
  Train(0, {1});
  EXPECT_EQ(cache()->Pinned(), 0u);
}

TEST_F(Corner, ValidationBetweenReadAndWrite) {
  Make(Config(kUnbounded, 4));
  Train(0, {1, 2, 3, 4});
  auto step = Read(0, {1, 2});
  const Counters before = cache()->counters();
  // Own unsent updates are seen; nothing is admitted, evicted or counted as used.
  auto validation = Read(0, {1, 2, 3, 50, 51, 52}, false);
  EXPECT_EQ(validation->Value(At(1).first, 1)[0], kInitial - 1);
  EXPECT_EQ(validation->Value(At(50).first, 50)[0], kInitial);
  EXPECT_EQ(cache()->counters().inserts, before.inserts);
  EXPECT_EQ(cache()->counters().evictions, before.evictions);
  EXPECT_EQ(cache()->counters().transient_rows, before.transient_rows);
  EXPECT_EQ(cache()->counters().reads, before.reads);
  EXPECT_EQ(cache()->lines().size(), 4u);
  EXPECT_EQ(cache()->Pinned(), 2u);
  Write(0, step.get());
  Drained();
}

TEST_F(Corner, ValidationDoesNotTouchThePolicy) {
  Make(Config(kUnbounded, 3));
  for (Key key : {1, 2, 3}) Train(0, {key});
  Read(0, {1}, false);  // were it a use, 2 would be the victim
  Train(0, {4});
  EXPECT_EQ(cache()->lines().Find(1), kNoRow);
  EXPECT_NE(cache()->lines().Find(2), kNoRow);
}

TEST_F(Corner, InferenceSeesAQueuedUpdate) {
  Make(Config(kUnbounded, 0));
  Train(0, {1});
  ASSERT_NE(cache()->FindQueued(1), nullptr);
  EXPECT_EQ(Read(0, {1}, false)->Value(At(1).first, 1)[0], kInitial - 1);
  EXPECT_NE(cache()->FindQueued(1), nullptr);
}

// An inference read that waits for a row which a training read brings, and which leaves again before it is
// looked at.
TEST_F(Corner, InferenceFindsARowThatComesAndGoesMeanwhile) {
  Make(Config(kUnbounded, 0));
  auto inference = world().NewStep({{1}});
  auto training = world().NewStep({{1}});
  Client& client = world().client(0);
  auto first = client.BeginRead(training->MakeRead(), training->token = world().NewToken());
  auto second = client.BeginRead(inference->MakeRead(), 0);
  while (!first->done() || !second->done()) client.Progress(0.05);
  ASSERT_TRUE(client.FinishRead(first.get()).ok());
  Write(0, training.get());
  ASSERT_TRUE(client.FinishRead(second.get()).ok());
  EXPECT_EQ(inference->Value(At(1).first, 1)[0], kInitial - 1);
  client.Progress(0);
  Train(0, {2});
  EXPECT_EQ(cache()->Pinned(), 0u);
}

TEST_F(Corner, AnAbandonedReadLeavesNoPins) {
  Make(Config(0));
  Train(0, {1, 2});
  auto step = world().NewStep({{1, 2, 3}});
  world().transport(0).HoldReplies(0, true);
  auto op = world().client(0).BeginRead(step->MakeRead(), world().NewToken());
  world().client(0).Progress(0);
  EXPECT_EQ(cache()->Pinned(), 2u);
  EXPECT_FALSE(world().client(0).FinishRead(op.get()).ok());
  op.reset();
  EXPECT_EQ(cache()->Pinned(), 0u);
  world().transport(0).HoldReplies(0, false);
  Train(0, {3});
  Drained();
}

// --- pushes and fetches that meet
// ---------------------------------------------------------------------------

TEST_F(Corner, SameKeyInPushAndFetchOfOneFrame) {
  WorldConfig config = Config(3, 0);
  config.cache.write_back_rows =
      0;  // an evicted row goes into a frame at once, which leaves with the next call
  Make(config);
  Train(0, {1});
  world().transport(0).record = true;
  EXPECT_EQ(Read(0, {1})->Value(At(1).first, 1)[0], kInitial - 1);
  const std::vector<Request> sent = Sent(0);
  ASSERT_EQ(sent.size(), 1u);
  ASSERT_EQ(sent[0].tables.size(), 1u);
  EXPECT_EQ(sent[0].tables[0].push_keys, Vector<Key>({1}));
  EXPECT_EQ(sent[0].tables[0].fetch_keys, Vector<Key>({1}));
  Drained();
}

TEST_F(Corner, KeyEvictedAndReadAgainBeforeItsPushLeft) {
  Make(Config(kUnbounded, 1));
  Train(0, {1});
  Read(0, {2});
  ASSERT_NE(cache()->FindQueued(1), nullptr);
  auto step = Read(0, {1});
  EXPECT_EQ(step->Value(At(1).first, 1)[0], kInitial - 1);
  EXPECT_EQ(cache()->FindQueued(1), nullptr);
  EXPECT_EQ(world().ServerClock(At(1)), 0);
  Write(0, step.get());
  Drained();
  EXPECT_EQ(world().ServerClock(At(1)), 2);
}

// CHECK and FETCH are answered, the answers are held up, and meanwhile a write pushes the keys: the answers
// do not contain that push, and no unsent update is left to put on top.
TEST_F(Corner, WriteBetweenAReadAndItsReply) {
  for (const char* optimizer : {"sgd", "momentum", "adam"}) {
    WorldConfig config = Config(0);
    config.optimizer = optimizer;
    config.dim = 2;
    Make(config);
    Train(0, {1, 2});
    // A new life: the lines are invalid, so a read fetches them.
    world().Restart(0, world().Snapshot(0));
    auto writing = Read(0, {1, 2});
    world().Restart(0, world().Snapshot(0), /*close=*/false);
    Read(0, {7});
    ASSERT_TRUE(cache()->invalid(cache()->lines().Find(1)));
    auto reading = world().NewStep({{1, 2}});
    auto op = world().client(0).BeginRead(reading->MakeRead(), world().NewToken());
    world().transport(0).HoldRepliesFor(0, 1);
    world().client(0).Progress(0);
    ASSERT_EQ(world().transport(0).replies(0), 1u);
    Write(0, writing.get());
    ASSERT_TRUE(op->done());
    ASSERT_TRUE(world().client(0).FinishRead(op.get()).ok());
    world().CheckRead(0, reading.get());
    Drained();
    EXPECT_EQ(world().FirstError(), "");
  }
}

}  // namespace
}  // namespace het::testing
