// What the client does for tables whose cache is on a device: reads, pushes and waits.
#include <string>
#include <utility>

#include "tests/cpp/testing/device/device_test.h"

namespace het::testing {
namespace {

using DeviceClient = DeviceTest;

TEST_F(DeviceClient, ChecksAndFetchesOfAllTablesAreOneRequestAPartition) {
  WorldConfig config = Bounded(0);
  config.partitions = 3;
  config.tables = 2;
  Make(config);
  std::vector<Key> keys;
  for (Key key = 0; key < 30; ++key) keys.push_back(key);
  auto first = world().NewStep({keys, keys});
  ASSERT_TRUE(world().Read(0, first.get()).ok());
  for (Key key = 30; key < 60; ++key) keys.push_back(key);
  net().record = true;
  auto second = world().NewStep({keys, keys});
  ASSERT_TRUE(world().Read(0, second.get()).ok());
  const std::vector<Request> sent = Sent(0);
  ASSERT_EQ(sent.size(), 3u);
  size_t checks = 0, fetches = 0;
  for (const Request& request : sent) {
    ASSERT_EQ(request.tables.size(), 2u);
    for (const TableRequest& t : request.tables) {
      checks += t.check_keys.size();
      fetches += t.fetch_keys.size();
    }
  }
  EXPECT_EQ(checks, 60u);
  EXPECT_EQ(fetches, 60u);
  EXPECT_EQ(counters().checks, 30u);
  EXPECT_EQ(counters().miss_pull, 60u);
  EXPECT_EQ(counters().update_pull, 0u);
}

TEST_F(DeviceClient, OrdinaryCallsAreRefusedAndTheOtherWayRound) {
  WorldConfig config = Bounded(0);
  config.workers = 2;
  config.devices = 1;
  Make(config, /*all=*/false);
  const Schema& schema = world().schema(0);
  auto step = world().NewStep({{1}});
  const Status read = client(0).Read(step->MakeRead(), 1);
  EXPECT_EQ(read.code(), Code::kFailedPrecondition);
  EXPECT_NE(read.message().find("'table0' is cached on a device"), std::string::npos) << read.message();
  EXPECT_EQ(client(0).Write(step->MakeWrite(1), 1, nullptr).code(), Code::kFailedPrecondition);
  EXPECT_EQ(client(0).cache(schema->id())->lines().size(), 0u);

  Rows wanted(schema, {1});
  Ticks ticks(schema, {1}, 1);
  EXPECT_EQ(client(1).ReadForDevice(&wanted.read, true).code(), Code::kFailedPrecondition);
  EXPECT_EQ(wanted.came[0], 7) << "untouched";
  EXPECT_EQ(client(1).PushForDevice(ticks.push).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(log(1).frames().empty());
  EXPECT_TRUE(client(0).CheckDevice(schema->id()).ok());
  EXPECT_EQ(client(0).CheckDevice(12345).code(), Code::kFailedPrecondition);
  EXPECT_EQ(client(0).AddDeviceTable(schema, config.cache, nullptr).code(), Code::kInvalidArgument);
  CacheConfig bad = config.cache;
  bad.wire = RowFormat::kInt8;
  EXPECT_NE(toy(0).AddTable(schema, bad).message().find("'int8'"), std::string::npos);
  EXPECT_EQ(net(0).served() + net(1).served(), 0u);
}

// Tables of both kinds at one client, reads and pushes of both under way at once.
TEST_F(DeviceClient, MixesWithOrdinaryTables) {
  WorldConfig config = Bounded(3);
  config.tables = 2;
  Make(config);
  const Schema& ordinary = world().schema(1);
  client().RemoveTable(ordinary->id());
  ASSERT_TRUE(client().AddTable(ordinary, config.cache).ok());
  for (int i = 0; i < 6; ++i) {
    auto device_step = world().NewStep({{1, 2}});
    auto step = world().NewStep({{}, {1, 2, 3}});
    auto op = client().BeginRead(step->MakeRead(), world().NewToken());
    net().record = true;
    ASSERT_TRUE(world().Read(0, device_step.get()).ok());
    for (const Request& request : Sent(0)) EXPECT_LE(request.tables.size(), 1u);
    while (!op->done()) client().Progress(0.05);
    ASSERT_TRUE(client().FinishRead(op.get()).ok());
    EXPECT_EQ(step->Value(ordinary->id(), 1)[0], kInitial - 1 * static_cast<float>(i));
    for (auto& [where, part] : step->parts()) part.sums.assign(part.sums.size(), 1);
    ASSERT_TRUE(client().Write(step->MakeWrite(1), 0, nullptr).ok());
    ASSERT_TRUE(world().Write(0, device_step.get()).ok());
  }
  EXPECT_EQ(client().cache(ordinary->id())->lines().size(), 3u);
  ASSERT_TRUE(world().Flush(0).ok());
  EXPECT_EQ(world().ServerClock({ordinary->id(), 1}), 6);
  EXPECT_EQ(world().ServerClock(At(1)), 6);
}

// The answer is held up, and meanwhile the key is pushed: the answer lacks that push. Another answer came
// before the push, and its row lies with the caller.
TEST_F(DeviceClient, PushDuringRead) {
  for (bool answered : {false, true}) {
    SCOPED_TRACE(answered);
    Make(Bounded(kUnbounded));
    const Schema& schema = world().schema(0);
    Read(0, {7});  // the epoch is known
    Rows wanted(schema, {1, 2});
    auto op = client().BeginReadForDevice(&wanted.read, true);
    if (!answered) net().HoldRepliesFor(0, 1);
    client().Progress(0);
    ASSERT_EQ(op->done(), answered);
    Ticks ticks(schema, {2}, -1);
    ASSERT_TRUE(client().PushForDevice(ticks.push).ok());
    while (!op->done()) client().Progress(0.05);
    ASSERT_TRUE(client().FinishRead(op.get()).ok());
    EXPECT_EQ(wanted.rows[0], kInitial);
    EXPECT_EQ(wanted.rows[schema->row_floats()], kInitial - 1);
    EXPECT_EQ(wanted.clocks, (std::vector<Clock>{0, 1}));
    EXPECT_EQ(wanted.came, (std::vector<uint8_t>{1, 1}));
    Abandon();
  }
}

// Two pushes of one key, of which the store refuses the first frame, and two of it in one call.
TEST_F(DeviceClient, PushesOfOneKeyStayInOrder) {
  WorldConfig config = Bounded(kUnbounded);
  config.optimizer = "momentum";  // m <- 0.9 m + a: the order can be seen
  config.dim = 1;
  Make(config);
  const Schema& schema = world().schema(0);
  ASSERT_EQ(schema->row_floats(), 2u);
  Ticks one(schema, {1}, 1), ten(schema, {1}, 10), hundred(schema, {1}, 100);
  ten.push.parts.push_back(hundred.push.parts[0]);
  net().HoldRequests(0, true);
  ASSERT_TRUE(client().PushForDevice(one.push).ok());
  ASSERT_TRUE(client().PushForDevice(ten.push).ok());
  EXPECT_EQ(client().UnappliedTicks(schema->id(), 1), 3u);
  EXPECT_EQ(log().frames().size(), 3u);
  net().RefuseNext(0);
  net().HoldRequests(0, false);
  ASSERT_TRUE(client().Flush().ok());
  EXPECT_GT(counters().resends, 0u);
  EXPECT_EQ(counters().evict_push, 3u);
  const float beta = schema->optimizer().slots()[0].beta;
  EXPECT_FLOAT_EQ(world().ServerRow(At(1))[1], (beta * 1 + 10) * beta + 100);
  EXPECT_FLOAT_EQ(world().ServerRow(At(1))[0], kInitial + 111);
  Abandon();
}

TEST_F(DeviceClient, PushesOfManyRowsAreSeveralFrames) {
  WorldConfig config = Bounded(kUnbounded);
  config.partitions = 2;
  config.tables = 2;
  config.client.max_frame_bytes = 100;
  Make(config);
  std::vector<Key> keys;
  for (Key key = 0; key < 50; ++key) keys.push_back(key);
  auto step = world().NewStep({keys, keys});
  ASSERT_TRUE(world().Read(0, step.get()).ok());  // epochs are known
  net().record = true;
  Ticks ticks(world().schema(0), keys, 1), more(world().schema(1), keys, 1);
  ticks.push.parts.push_back(more.push.parts[0]);
  ASSERT_TRUE(client().PushForDevice(ticks.push).ok());
  ASSERT_TRUE(client().Flush().ok());
  size_t rows = 0, frames = 0, shared = 0;
  for (const Request& request : Sent(0)) {
    size_t bytes = 0;
    ++frames;
    shared += request.tables.size() == 2;
    for (const TableRequest& t : request.tables) {
      rows += t.push_keys.size();
      bytes += t.push_updates.size() * sizeof(float) + t.push_keys.size() * sizeof(Key);
    }
    EXPECT_LE(bytes, 100u);
  }
  EXPECT_EQ(rows, 100u);
  EXPECT_GE(frames, 16u);
  EXPECT_LE(frames, 30u);
  EXPECT_GE(shared, 1u);
  for (Key key : keys) EXPECT_EQ(world().ServerClock(At(key)), 1);
  Abandon();
}

TEST_F(DeviceClient, OnlyFinitePushBoundsAreWaitedFor) {
  for (const Bound& bound : {Bound(2), Bound(kUnbounded), Bound(kUnbounded, 20)}) {
    WorldConfig config = Bounded(kUnbounded);
    config.client.deadline = 3;
    config.cache.push_bound = bound;
    Make(config);
    net().HoldReplies(0, true);
    Ticks ticks(world().schema(0), {1}, 1);
    ASSERT_TRUE(client().PushForDevice(ticks.push).ok());
    const Status waited = client().WaitForDevice();
    if (bound == kUnbounded) {
      EXPECT_TRUE(waited.ok()) << waited.message();
    } else {
      EXPECT_EQ(waited.code(), Code::kDeadlineExceeded);
      EXPECT_NE(waited.message().find("a push waited for 3 s; partition 0"), std::string::npos)
          << waited.message();
    }
    EXPECT_EQ(log().frames().size(), 1u) << "kept";
    net().HoldReplies(0, false);
    EXPECT_TRUE(client().Flush().ok());
    EXPECT_EQ(world().ServerClock(At(1)), 1);
    Abandon();
  }
}

// By age, one push of a row may be on its way: that of a young row too.
TEST_F(DeviceClient, OwnStepWaitsOnlyForRowsPastTheirBound) {
  struct Case {
    Bound bound;
    Clock clock;
    uint32_t most;  // ticks that may be unapplied
  };
  for (const auto& [bound, clock, most] :
       {Case{4, 6, 4}, {Bound(4, 20), 19, 1}, {Bound(4, 20), 40, 3}, {Bound(4, 20), 1000, 5}}) {
    for (const uint32_t own : {most, most + 1}) {
      SCOPED_TRACE(std::to_string(clock) + ", " + std::to_string(own) + " ticks");
      WorldConfig config = Bounded(4);
      config.client.deadline = 3;
      config.cache.push_bound = bound;
      Make(config);
      net().HoldReplies(0, true);
      Ticks ticks(world().schema(0), {1}, 1);
      ticks.ticks[0] = own;
      ticks.clocks[0] = clock;
      uint64_t of_step = client().next_frame();
      ASSERT_TRUE(client().PushForDevice(ticks.push).ok());
      EXPECT_EQ(client().WaitForDevice(of_step).code(), own == most ? Code::kOk : Code::kDeadlineExceeded);
      // Of the next step it is an earlier push: its row may have more ticks by now.
      of_step = client().next_frame();
      EXPECT_EQ(client().WaitForDevice(of_step).code(), Code::kDeadlineExceeded);
      net().HoldReplies(0, false);
      EXPECT_TRUE(client().WaitForDevice(of_step).ok());
      EXPECT_EQ(world().ServerClock(At(1)), own);
      Abandon();
    }
  }
}

TEST_F(DeviceClient, AKeyIsAdmittedOnceAStep) {
  WorldConfig config = Bounded(0, 10);
  config.cache.admit_after = 2;
  Make(config);
  const Schema& schema = world().schema(0);
  Rows inference(schema, {1});
  ASSERT_TRUE(client().ReadForDevice(&inference.read, false).ok());
  EXPECT_EQ(inference.admit[0], 0);
  Rows first(schema, {1});
  auto op = client().BeginReadForDevice(&first.read, true);
  client().Progress(0);
  ASSERT_TRUE(op->done());
  Ticks ticks(schema, {7}, 1);
  ASSERT_TRUE(client().PushForDevice(ticks.push).ok());  // the first read is asked anew
  while (!op->done()) client().Progress(0.05);
  ASSERT_TRUE(client().FinishRead(op.get()).ok());
  EXPECT_EQ(first.admit[0], 0);
  Rows second(schema, {1});
  ASSERT_TRUE(client().ReadForDevice(&second.read, true).ok());
  EXPECT_EQ(second.admit[0], 1);
  Abandon();
}

}  // namespace
}  // namespace het::testing
