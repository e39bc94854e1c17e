// Losses, one named test each: frames that come twice, late or never, servers that refuse, forget or come
// back, memory that ends, processes that fork. What a client must do about them is in docs/concepts.md.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cpp/testing/world.h"

namespace het::testing {
namespace {

class Fault : public ::testing::Test {
 protected:
  void Make(WorldConfig config) { world_ = std::make_unique<World>(config); }
  // One table, one partition, a bound.
  void Make(int64_t bound, bool keep = false, uint32_t workers = 1) {
    WorldConfig config;
    config.workers = workers;
    config.cache.pull_bound = bound;
    config.cache.push_bound = bound;
    config.client.keep_until_durable = keep;
    Make(config);
  }
  void TearDown() override {
    if (world_ == nullptr) return;
    world_->CheckConservation();
    EXPECT_EQ(world_->FirstError(), "");
  }
  World& world() { return *world_; }
  FaultyTransport& net(size_t w = 0) { return world_->transport(w); }
  TableCache* cache(size_t w = 0) { return world_->client(w).cache(world_->schema(0)->id()); }
  TableKey At(Key key) { return {world_->schema(0)->id(), key}; }
  const Link& link(size_t w = 0) { return world_->client(w).link(0); }

  std::unique_ptr<TestStep> Read(size_t w, const std::vector<Key>& keys) {
    auto step = world_->NewStep({keys});
    const Status status = world_->Read(w, step.get());
    EXPECT_TRUE(status.ok()) << status.message();
    return step;
  }
  void Train(size_t w, const std::vector<Key>& keys) {
    auto step = Read(w, keys);
    const Status status = world_->Write(w, step.get());
    EXPECT_TRUE(status.ok()) << status.message();
  }
  void Drained() {
    const Status status = world_->Drain();
    EXPECT_TRUE(status.ok()) << status.message();
    world_->CheckDrained();
  }

 private:
  std::unique_ptr<World> world_;
};

TEST_F(Fault, EveryRequestAndReplyTwice) {
  Make(0);
  net().faults.duplicate_request = 1;
  net().faults.duplicate_reply = 1;
  for (int i = 1; i <= 10; ++i) {
    Train(0, {1, 2});
    EXPECT_EQ(world().ServerClock(At(1)), i);
  }
  Drained();
}

// Three frames in the pipeline, of which the first is refused: the partition must refuse the others as a gap.
TEST_F(Fault, ARefusedFrameAndItsSuccessors) {
  WorldConfig config;
  config.cache.capacity = 0;
  config.cache.write_back_rows = 0;
  Make(config);
  std::vector<std::unique_ptr<TestStep>> steps;
  for (Key key : {1, 2, 3}) steps.push_back(Read(0, {key}));
  net().HoldRequests(0, true);
  for (auto& step : steps) EXPECT_TRUE(world().Write(0, step.get()).ok());
  world().client(0).Progress(0);
  ASSERT_EQ(net().requests(0), 3u);
  net().RefuseNext(0);
  for (int i = 0; i < 3; ++i) net().Serve(0);
  for (Key key : {1, 2, 3}) EXPECT_EQ(world().ServerClock(At(key)), 0) << key;
  net().HoldRequests(0, false);
  Drained();
  for (Key key : {1, 2, 3}) EXPECT_EQ(world().ServerClock(At(key)), 1) << key;
  EXPECT_GT(cache()->counters().resends, 0u);
}

TEST_F(Fault, AFrameThatIsLostWithItsConnection) {
  for (size_t applied : {0, 1}) {
    WorldConfig config;
    config.cache.capacity = 0;  // rows leave with their step: pushes need not be waited for
    config.cache.write_back_rows = 0;
    Make(config);
    Train(0, {1});
    net().HoldRequests(0, true);
    world().client(0).Progress(0);
    ASSERT_EQ(net().requests(0), 1u);
    net().Cut(0, applied);
    net().HoldRequests(0, false);
    Train(0, {1});
    Drained();
    EXPECT_EQ(world().ServerClock(At(1)), 2);
  }
}

TEST_F(Fault, FramesThatAreLostBehindOneThatArrived) {
  for (size_t applied : {0, 1, 2, 3}) {
    WorldConfig config;
    config.cache.capacity = 0;
    config.cache.write_back_rows = 0;
    Make(config);
    std::vector<std::unique_ptr<TestStep>> steps;
    for (Key key : {1, 2, 3}) steps.push_back(Read(0, {key}));
    net().HoldRequests(0, true);
    for (auto& step : steps) EXPECT_TRUE(world().Write(0, step.get()).ok());
    world().client(0).Progress(0);
    ASSERT_EQ(net().requests(0), 3u);
    net().Cut(0, applied);
    net().HoldRequests(0, false);
    Drained();
    for (Key key : {1, 2, 3}) EXPECT_EQ(world().ServerClock(At(key)), 1) << key;
  }
}

TEST_F(Fault, ReplyAfterATimeOut) {
  Make(0);
  Train(0, {1});
  auto step = Read(0, {1});
  // Served, but the answer is held beyond the time-out: the client gives the connection up and sends again.
  net().HoldRepliesFor(0, 15);
  EXPECT_TRUE(world().Write(0, step.get()).ok());
  EXPECT_EQ(world().ServerClock(At(1)), 2);
  EXPECT_GT(cache()->counters().resends, 0u);
  Drained();
}

TEST_F(Fault, BytesOfAnAbandonedConnectionArriveLate) {
  Make(0);
  Train(0, {1});
  auto step = Read(0, {1});
  net().SilenceOnce(0);
  EXPECT_TRUE(world().Write(0, step.get()).ok());
  EXPECT_EQ(world().ServerClock(At(1)), 2);
  net().ServeGhosts();
  EXPECT_EQ(world().ServerClock(At(1)), 2);
  Train(0, {1});
  EXPECT_EQ(world().ServerClock(At(1)), 3);
  Drained();
}

TEST_F(Fault, ARestartThatKeptEverything) {
  Make(2);
  for (int i = 0; i < 8; ++i) {
    Train(0, {1, 2});
    world().Restart(0, world().Snapshot(0), i % 2 == 0);
  }
  EXPECT_EQ(world().Sum(&Counters::lost_pushes), 0u);
  Drained();
}

// While one worker's acknowledged frames are lost, others push on and carry the clock past what the first one
// has seen: only the incarnation shows it.
TEST_F(Fault, FailoverLosesAcknowledgedFramesWhileOthersGoOn) {
  Make(1, /*keep=*/true, /*workers=*/2);
  Train(1, {1});
  for (int i = 0; i < 4; ++i) Train(0, {1});
  const Bytes older = world().Snapshot(0);
  for (int i = 0; i < 6; ++i) Train(0, {1});
  world().Failover(0, older);
  for (int i = 0; i < 12; ++i) Train(1, {1});
  EXPECT_EQ(Read(0, {1})->Value(At(1).first, 1)[0], kInitial - 10);
  EXPECT_EQ(world().Sum(&Counters::lost_pushes), 0u);
  Drained();
  EXPECT_EQ(world().ServerClock(At(1)), 23);
}

TEST_F(Fault, FramesThatWereNotKeptAreCountedAsLost) {
  Make(0, /*keep=*/false, /*workers=*/2);
  Train(0, {1});
  const Bytes older = world().Snapshot(0);
  for (int i = 0; i < 6; ++i) Train(0, {1});
  world().Failover(0, older);
  Train(1, {1});
  Train(0, {1});
  EXPECT_EQ(world().Sum(&Counters::lost_pushes), 6u);
  EXPECT_EQ(world().ServerClock(At(1)), 3);
  const uint64_t resends = cache()->counters().resends;
  for (int i = 0; i < 5; ++i) Train(0, {1});
  EXPECT_EQ(world().ServerClock(At(1)), 8) << "goes on as a new client";
  EXPECT_EQ(cache()->counters().resends, resends);
}

TEST_F(Fault, DurableFramesAreForgotten) {
  Make(0, /*keep=*/true);
  for (int i = 0; i < 4; ++i) Train(0, {1});
  EXPECT_EQ(link().frames.size(), 4u);
  world().client(0).MarkDurable();
  EXPECT_EQ(link().frames.size(), 0u);
  const Bytes checkpoint = world().Snapshot(0);
  for (int i = 0; i < 3; ++i) Train(0, {1});
  world().Failover(0, checkpoint);
  Drained();
  EXPECT_EQ(world().ServerClock(At(1)), 7);
  EXPECT_EQ(world().Sum(&Counters::lost_pushes), 0u);
}

// Two reads on their way when the partition comes to life again behind a proxy: the answer to the second is
// about bases that mean nothing any more.
TEST_F(Fault, ChecksOfAnOlderLifeAreAskedAgain) {
  Make(2, /*keep=*/true, /*workers=*/2);
  const Bytes empty = world().Snapshot(0);
  for (int i = 0; i < 3; ++i) Train(1, {2});
  ASSERT_TRUE(world().Flush(1).ok());
  Read(0, {1, 2});  // base of key 2 is 3
  auto a = world().NewStep({{1}});
  auto b = world().NewStep({{2}});
  net().HoldRequests(0, true);
  auto first = world().client(0).BeginRead(a->MakeRead(), world().NewToken());
  world().client(0).Progress(0);
  auto second = world().client(0).BeginRead(b->MakeRead(), world().NewToken());
  world().client(0).Progress(0);
  world().Restart(0, empty, /*close=*/false);
  // Another client's three ticks: the clock is where it was, the row is another.
  LocalTransport direct(&world().service());
  Client other(&direct);
  ASSERT_TRUE(other.AddTable(world().schema(0), world().config().cache).ok());
  for (int i = 0; i < 3; ++i) {
    auto step = world().NewStep({{2}});
    for (auto& [where, part] : step->parts()) part.sums.assign(part.sums.size(), 5);
    ASSERT_TRUE(other.Read(step->MakeRead(), 1).ok());
    ASSERT_TRUE(other.Write(step->MakeWrite(1), 1, nullptr).ok());
  }
  ASSERT_TRUE(other.Flush().ok());
  net().HoldRequests(0, false);
  while (!first->done() || !second->done()) world().client(0).Progress(0.05);
  ASSERT_TRUE(world().client(0).FinishRead(first.get()).ok());
  ASSERT_TRUE(world().client(0).FinishRead(second.get()).ok());
  EXPECT_EQ(b->Value(At(2).first, 2)[0], kInitial - 15);
  Make(2);
}

TEST_F(Fault, TheStoreWasClearedAndUnsentUpdatesAreDiscarded) {
  Make(3);
  for (int i = 0; i < 6; ++i) Train(0, {1, 2});  // four applied, two unsent
  EXPECT_EQ(world().client(0).UnappliedTicks(At(1).first, 1), 2u);
  world().service().ClearTable(At(1).first);
  auto step = world().NewStep({{1, 2}});
  ASSERT_TRUE(world().client(0).Read(step->MakeRead(), world().NewToken()).ok());
  EXPECT_EQ(step->Value(At(1).first, 1)[0], kInitial) << "the row as the store has it now";
  EXPECT_EQ(cache()->counters().discarded_ticks, 4u);
  EXPECT_EQ(world().client(0).UnappliedTicks(At(1).first, 1), 0u);
  ASSERT_TRUE(world().client(0).Flush().ok());
  EXPECT_EQ(world().ServerClock(At(1)), 0);
  Make(3);  // the oracle has other ideas
}

TEST_F(Fault, TheStoreWasClearedAndUnsentUpdatesAreKept) {
  WorldConfig config;
  config.cache.pull_bound = config.cache.push_bound = 3;
  config.client.on_reload = ClientConfig::kKeep;
  Make(config);
  for (int i = 0; i < 6; ++i) Train(0, {1, 2});
  world().service().ClearTable(At(1).first);
  auto step = world().NewStep({{1, 2}});
  ASSERT_TRUE(world().client(0).Read(step->MakeRead(), world().NewToken()).ok());
  EXPECT_EQ(step->Value(At(1).first, 1)[0], kInitial - 2) << "the new row and the unsent ticks on top";
  EXPECT_EQ(cache()->counters().discarded_ticks, 0u);
  ASSERT_TRUE(world().client(0).Flush().ok());
  EXPECT_EQ(world().ServerClock(At(1)), 2);
  Make(3);
}

TEST_F(Fault, ClearedBetweenReadAndWrite) {
  for (auto policy : {ClientConfig::kDiscard, ClientConfig::kKeep}) {
    WorldConfig config;
    config.cache.pull_bound = config.cache.push_bound = 0;
    config.client.on_reload = policy;
    config.partitions = 3;
    config.tables = 2;
    Make(config);
    Train(0, {1, 2, 3, 4});
    auto step = Read(0, {1, 2, 3, 4});
    world().service().ClearTable(At(1).first);
    EXPECT_TRUE(world().client(0).Write(step->MakeWrite(1), step->token, nullptr).ok());
    EXPECT_EQ(cache()->Pinned(), 0u);
    // The push met the new epoch: dropped and reported, or applied to the new content.
    for (Key key : {1, 2, 3, 4})
      EXPECT_EQ(world().ServerClock(At(key)), policy == ClientConfig::kKeep ? 1 : 0);
    EXPECT_EQ(cache()->counters().discarded_ticks, policy == ClientConfig::kKeep ? 0u : 4u);
    auto after = world().NewStep({{1, 2, 3, 4}});
    EXPECT_TRUE(world().client(0).Read(after->MakeRead(), world().NewToken()).ok());
    EXPECT_TRUE(world().client(0).Write(after->MakeWrite(0), 0, nullptr).ok());
  }
  Make(3);
}

TEST_F(Fault, ATableThatIsGone) {
  Make(0);
  Train(0, {1});
  world().service().DropTable(At(1).first);
  auto step = world().NewStep({{1}});
  const Status status = world().client(0).Read(step->MakeRead(), world().NewToken());
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_NE(status.message().find("partition 0"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("no table"), std::string::npos) << status.message();
  Make(0);
}

TEST_F(Fault, OutOfMemoryInTheMiddleOfAPush) {
  Make(0);
  Train(0, {1});
  std::vector<Key> keys;
  for (Key key = 0; key < 200; ++key) keys.push_back(key);
  auto step = Read(0, keys);
  // At every limit: nothing is applied, or everything.
  for (size_t room = 0; room < 40000; room += 500) net().LimitNext(0, room);
  EXPECT_TRUE(world().Write(0, step.get()).ok());
  for (Key key : keys) EXPECT_EQ(world().ServerClock(At(key)), key == 1 ? 2 : 1);
  EXPECT_GT(cache()->counters().resends, 1u);
  EXPECT_EQ(net().half_applied(), 0u);
  Drained();
}

TEST_F(Fault, TheDeadlineNamesPartitionTimeAndReasonAndLosesNothing) {
  WorldConfig config;
  config.partitions = 3;
  config.cache.pull_bound = config.cache.push_bound = 0;
  Make(config);
  std::vector<Key> keys;
  for (Key key = 0; key < 30; ++key) keys.push_back(key);
  auto step = Read(0, keys);
  net().faults.refuse = 1;
  const Status status = world().Write(0, step.get());
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  for (const char* part :
       {"partition 0", "partition 1", "partition 2", "60 s", "LOADING the test is loading"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
  EXPECT_EQ(cache()->Pinned(), 0u);
  net().faults.refuse = 0;
  Drained();
}

TEST_F(Fault, AReadPastTheDeadlineLeavesNoPins) {
  Make(0);
  Train(0, {1});
  net().HoldReplies(0, true);
  auto step = world().NewStep({{1, 2}});
  const Status status = world().client(0).Read(step->MakeRead(), world().NewToken());
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_NE(status.message().find("no answer"), std::string::npos) << status.message();
  EXPECT_EQ(cache()->Pinned(), 0u);
  net().HoldReplies(0, false);
  Train(0, {1, 2});
  Drained();
}

TEST_F(Fault, AWriteThatCannotFetchChangesNothing) {
  WorldConfig config;
  config.cache.capacity = 0;
  config.cache.pull_bound = config.cache.push_bound = 3;
  Make(config);
  auto old = Read(0, {1, 2});
  for (int i = 0; i < 10; ++i) Train(0, {1});
  for (int i = 0; i < 10; ++i) Read(0, {50 + i});
  Train(0, {7});
  ASSERT_EQ(cache()->lines().Find(2), kNoRow);
  net().faults.refuse = 1;
  const uint64_t ticks = cache()->counters().ticks;
  EXPECT_EQ(world().Write(0, old.get()).code(), Code::kDeadlineExceeded);
  EXPECT_EQ(cache()->counters().ticks, ticks);
  net().faults.refuse = 0;
  for (auto& [where, part] : old->parts()) part.rows.assign(part.rows.size(), kNoRow);
  EXPECT_TRUE(world().Write(0, old.get()).ok());
  Drained();
}

// A child is another client: a new id, empty caches, and nothing of the parent's unsent updates.
TEST_F(Fault, Fork) {
  Make(5);
  Train(0, {1, 2});
  auto step = Read(0, {1, 2});
  const ClientId parent = link().client;
  const pid_t child = fork();
  if (child == 0) {
    auto own = world().NewStep({{1, 2}});
    Client& client = world().client(0);
    const bool ok = client.Read(own->MakeRead(), world().NewToken()).ok() &&
                    client.Write(own->MakeWrite(1), own->token, nullptr).ok() && client.Flush().ok();
    // The parent's two ticks are unsent; this copy of the store has the child's alone.
    _exit(ok && !(link().client == parent) && world().ServerClock(At(1)) == 1 ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(world().Write(0, step.get()).ok());
  EXPECT_TRUE(link().client == parent);
  Drained();
  EXPECT_EQ(world().ServerClock(At(1)), 2);
}

// Memory ends after any number of bytes, in the client and the store alike: a call fails or throws, and
// nothing is lost or made twice.
TEST_F(Fault, MemoryEndsAnywhere) {
  for (size_t room = 0; room < 60000; room += room < 4000 ? 64 : 1024) {
    WorldConfig config;
    config.seed = room + 1;
    config.cache.capacity = 4;
    config.cache.pull_bound = config.cache.push_bound = 2;
    config.cache.write_back_rows = 1;
    Make(config);
    Random& random = world().random();
    for (int i = 0; i < 6; ++i) {
      std::vector<Key> keys;
      for (int n = 0; n < 40; ++n) keys.push_back(random.Between(0, 60));
      auto step = world().NewStep({keys});
      auto limited = [&](auto call) {
        if (i == 3) SetAllocLimit(AllocatedBytes() + room);
        bool ok = false;
        try {
          ok = call().ok();
        } catch (const std::bad_alloc&) {
        }
        SetAllocLimit(SIZE_MAX);
        return ok;
      };
      if (limited([&] { return world().Read(0, step.get()); })) {
        limited([&] { return world().Write(0, step.get()); });
      }
      world().CheckConservation();
    }
    Drained();
    ASSERT_EQ(world().FirstError(), "") << room << " bytes";
  }
}

}  // namespace
}  // namespace het::testing
