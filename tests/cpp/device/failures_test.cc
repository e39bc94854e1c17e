// What makes calls for a device fail, or its rows vanish: new lives and loads while a read is under way,
// tables that go, memory that ends.

#include <string>

#include "het_tf/core/store/local_transport.h"
#include "tests/cpp/testing/device/device_test.h"

namespace het::testing {
namespace {

using DeviceFailure = DeviceTest;

// --- a read under way when the partition comes to life again, or its table is loaded

// Two reads of one partition; of the second one, the answers tell that the first one's are of another life.
TEST_F(DeviceFailure, IncarnationChangesDuringRead) {
  for (bool keep : {true, false}) {
    for (bool cleared : {false, true}) {
      SCOPED_TRACE(std::string(keep ? "keep" : "discard") + (cleared ? ", cleared" : ", reborn"));
      WorldConfig config = Bounded(0);
      config.partitions = 2;
      config.client.on_reload = keep ? ClientConfig::kKeep : ClientConfig::kDiscard;
      Make(config);
      const Schema& schema = world().schema(0);
      const std::vector<Key> keys = KeysOf(0, 3);
      const Bytes empty = world().Snapshot(0);
      Train(0, keys);
      const size_t told = toy().told();
      Rows first(schema, {keys[0], keys[1]}, 1), second(schema, {keys[2]}, 1);
      first.bases[1] = kNoBase;
      auto a = client().BeginReadForDevice(&first.read, true);
      client().Progress(0);
      ASSERT_TRUE(a->done());
      ASSERT_EQ(first.came, (std::vector<uint8_t>{0, 1}));
      ASSERT_EQ(first.clocks[1], 1);
      if (cleared) {
        world().service().ClearTable(schema->id());
      } else {
        world().Restart(0, empty, /*close=*/false);
      }
      auto b = client().BeginReadForDevice(&second.read, true);
      for (int i = 0; i < 1000 && !b->done(); ++i) client().Progress(0.05);
      EXPECT_GT(toy().told(), told);
      for (int i = 0; i < 1000 && !a->done(); ++i) client().Progress(0.05);
      ASSERT_TRUE(client().FinishRead(a.get()).ok());
      ASSERT_TRUE(client().FinishRead(b.get()).ok());
      EXPECT_EQ(first.came, (std::vector<uint8_t>{1, 1})) << "what was checked is fetched";
      EXPECT_EQ(first.clocks, (std::vector<Clock>{0, 0}));
      EXPECT_EQ(first.rows[0], kInitial);
      EXPECT_EQ(first.rows[schema->row_floats()], kInitial);
      EXPECT_EQ(second.came[0], 1);
      EXPECT_EQ(second.rows[0], kInitial);
      toy().DoWhatWasPutOff();
      for (Key key : keys) {
        if (cleared && !keep) {
          EXPECT_EQ(rows().count(key), 0u);
        } else {
          EXPECT_TRUE(rows().at(key).invalid);
        }
      }
      Abandon();
    }
  }
}

TEST_F(DeviceFailure, ATableThatIsGone) {
  WorldConfig config = Bounded(3);
  config.tables = 2;
  Make(config);
  auto both = world().NewStep({{1}, {2}});
  ASSERT_TRUE(world().Read(0, both.get()).ok());
  ASSERT_TRUE(world().Write(0, both.get()).ok());
  const Schema gone = world().schema(0);
  world().service().DropTable(gone->id());
  auto again = world().NewStep({{1}, {2}});
  const Status read = toy().Read(again->MakeRead(), world().NewToken());
  EXPECT_EQ(read.code(), Code::kFailedPrecondition);
  EXPECT_NE(read.message().find("no table"), std::string::npos) << read.message();
  toy().DoWhatWasPutOff();
  EXPECT_EQ(rows().size(), 0u);
  EXPECT_EQ(counters().discarded_ticks, 1u);
  auto other = world().NewStep({{}, {2}});
  EXPECT_TRUE(toy().Read(other->MakeRead(), world().NewToken()).ok());
  Abandon();
}

// --- behind the cache's back

TEST_F(DeviceFailure, InvalidatedRowsReachTheCache) {
  WorldConfig config = Bounded(3);
  config.partitions = 2;
  Make(config);
  Train(0, {1, 2, 3, 4, 5});
  Read(0, {6, 7});
  auto has = [&](std::vector<Key> keys) {
    toy().DoWhatWasPutOff();
    std::vector<Key> here;
    for (auto& [key, row] : rows()) here.push_back(key);
    EXPECT_EQ(here, keys);
  };
  const std::vector<Key> some = {1, 6, 99};
  client().Invalidate(At(0).first, Span<const Key>(some.data(), some.size()));
  has({2, 3, 4, 5, 7});
  EXPECT_EQ(counters().discarded_ticks, 1u);
  client().ForgetClean();
  has({2, 3, 4, 5});
  Ticks ticks(world().schema(0), {50}, 1);
  net().HoldRequests(0, true);
  net().HoldRequests(1, true);
  ASSERT_TRUE(client().PushForDevice(ticks.push).ok());
  client().ForgetTable(At(0).first);
  has({});
  EXPECT_EQ(counters().discarded_ticks, 6u) << "of rows, and of a frame";
  net().HoldRequests(0, false);
  net().HoldRequests(1, false);
  // Rows that are with a caller are read again.
  Rows wanted(world().schema(0), KeysOf(0, 2));
  auto op = client().BeginReadForDevice(&wanted.read, true);
  for (int i = 0; i < 100 && !op->done(); ++i) client().Progress(0.05);
  ASSERT_TRUE(op->done());
  client().ForgetTable(At(0).first);
  EXPECT_FALSE(op->done());
  for (int i = 0; i < 100 && !op->done(); ++i) client().Progress(0.05);
  EXPECT_TRUE(client().FinishRead(op.get()).ok());
  Abandon();
}

TEST_F(DeviceFailure, ReloadDropsEverything) {
  Make(Bounded(3));
  Train(0, {1, 2});
  const ClientId before = session().client();
  client().Reload();
  toy().DoWhatWasPutOff();
  EXPECT_EQ(rows().size(), 0u);
  EXPECT_FALSE(session().client() == before);
  EXPECT_EQ(counters().discarded_ticks, 2u);
  Abandon();
}

TEST_F(DeviceFailure, RemovedWithFramesUnderWay) {
  Make(Bounded(kUnbounded));
  Train(0, {1});
  net().HoldRequests(0, true);
  Ticks ticks(world().schema(0), {1}, 1);
  ASSERT_TRUE(client().PushForDevice(ticks.push).ok());
  client().RemoveTable(At(0).first);
  net().HoldRequests(0, false);
  EXPECT_TRUE(client().Flush().ok());
  EXPECT_FALSE(client().HasTable(At(0).first));
  EXPECT_EQ(client().PushForDevice(ticks.push).code(), Code::kFailedPrecondition);
  Abandon();
}

// --- memory and refusals

TEST_F(DeviceFailure, APushForWhichThereIsNoMemoryChangesNothing) {
  WorldConfig config = Bounded(kUnbounded);
  config.partitions = 2;
  Make(config);
  std::vector<Key> keys;
  for (Key key = 0; key < 200; ++key) keys.push_back(key);
  Ticks ticks(world().schema(0), keys, 1);
  for (uint32_t p : {0, 1}) net().HoldRequests(p, true);
  int failures = 0;
  for (size_t room = 0;; room += 64) {
    SetAllocLimit(AllocatedBytes() + room);
    bool failed = false;
    try {
      const Status status = client().PushForDevice(ticks.push);
      SetAllocLimit(SIZE_MAX);
      EXPECT_TRUE(status.ok());
    } catch (const std::bad_alloc&) {
      SetAllocLimit(SIZE_MAX);
      failed = true;
    }
    if (!failed) break;
    ++failures;
    ASSERT_EQ(client().UnappliedTicks(At(0).first, 1), 0u);
    ASSERT_EQ(counters().evict_push, 0u);
  }
  EXPECT_GT(failures, 10);
  for (Key key : keys) EXPECT_EQ(client().UnappliedTicks(At(0).first, key), 1u);
  for (uint32_t p : {0, 1}) net().HoldRequests(p, false);
  ASSERT_TRUE(client().Flush().ok());
  for (Key key : keys) EXPECT_EQ(world().ServerClock(At(key)), 1);
  Abandon();
}

// Updates have left the device: they are taken whatever the network says, and that is told by the wait.
TEST_F(DeviceFailure, APartitionThatRefusesTheClient) {
  Make(Bounded(0));
  Train(0, {1});
  LocalService other(1, 4711);  // another store: partitions of another hash
  LocalTransport direct(&other);
  struct Crossed : Transport {
    Crossed(Transport* to, PartitionId id) : to_(to), id_(id) {}
    uint32_t partitions() const override { return 1; }
    PartitionId id(uint32_t) const override { return id_; }
    void Send(OutFrame frame) override { to_->Send(std::move(frame)); }
    bool Poll(double s, std::vector<Event>* e) override { return to_->Poll(s, e); }
    void Reset(uint32_t p) override { to_->Reset(p); }
    uint64_t Connection(uint32_t p) override { return to_->Connection(p); }
    void AskReplicas(const std::vector<Mark>&, uint32_t, double) override {}
    void Sleep(double s) override { to_->Sleep(s); }
    double Now() override { return to_->Now(); }
    Transport* to_;
    PartitionId id_;
  } crossed(&direct, world().service().id(0));
  for (int64_t bound : {int64_t{0}, kUnbounded}) {
    Client wrong(&crossed);
    ToyDevice device(&wrong, world().service().id(0), 1);
    CacheConfig config;
    config.push_bound = bound;
    ASSERT_TRUE(device.AddTable(world().schema(0), config).ok());
    Ticks ticks(world().schema(0), {1}, 1);
    ASSERT_TRUE(wrong.PushForDevice(ticks.push).ok());
    EXPECT_EQ(wrong.UnappliedTicks(At(0).first, 1), 1u);
    wrong.Progress(0);
    EXPECT_EQ(wrong.WaitForDevice().code(), Code::kFailedPrecondition);
    ASSERT_TRUE(wrong.PushForDevice(ticks.push).ok());
    EXPECT_EQ(wrong.UnappliedTicks(At(0).first, 1), 2u);
    EXPECT_EQ(wrong.WaitForDevice().code(), Code::kFailedPrecondition);
  }
}

}  // namespace
}  // namespace het::testing
