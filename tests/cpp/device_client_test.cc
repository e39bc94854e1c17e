// What the client does for tables whose cache is on a device, by a toy device (testing/toy_device.h): the
// clock protocol under random schedules, then named cases.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "het_tf/core/local_transport.h"
#include "tests/cpp/testing/schedule.h"
#include "tests/cpp/testing/world_test.h"

namespace het::testing {
namespace {

// --- random schedules

TEST(DeviceProtocol, OneWorker) {
  RunSchedules(1500, 40, false, [](WorldConfig* c) { c->devices = 1; });
}

TEST(DeviceProtocol, OneWorkerEveryOptimizerFaults) {
  for (const std::string& name : Optimizer::Names()) {
    SCOPED_TRACE(name);
    RunSchedules(150, 40, true, [&](WorldConfig* c) {
      c->devices = 1;
      c->optimizer = name;
      c->dim = 1 + static_cast<uint32_t>(c->seed % 7);
      if (c->seed % 2 == 0) c->faults = Faults::Some(0.05);
      c->client.durability = Durability::kCheckpoint;
    });
  }
}

// Some workers have ordinary caches, some have theirs on devices.
void Mixed(WorldConfig* c) {
  c->workers = 1 << (c->seed % 3);
  c->devices = 1 + static_cast<uint32_t>(c->seed / 3 % c->workers);
}

TEST(DeviceProtocol, SeveralWorkers) { RunSchedules(1500, 60, false, Mixed); }

TEST(DeviceProtocol, Faults) {
  RunSchedules(1500, 60, false, [](WorldConfig* c) {
    Mixed(c);
    c->faults = Faults::Some(0.05);
  });
}

TEST(DeviceProtocol, RestartsLoseNothing) {
  RunSchedules(1500, 60, true, [](WorldConfig* c) {
    Mixed(c);
    c->faults = Faults::Some(0.03);
    c->client.durability = Durability::kCheckpoint;
  });
}

TEST(DeviceProtocol, FailoversToAReplicaLoseNothing) {
  RunSchedules(1000, 60, true, [](WorldConfig* c) {
    Mixed(c);
    c->faults = Faults::Some(0.03);
    c->client.durability = Durability::kReplicated;
    c->client.replica_interval = c->seed % 2 == 0 ? 0 : 0.2;
    c->client.keep_bytes = c->seed % 5 == 0 ? 2000 : size_t{1} << 30;
  });
}

TEST(DeviceProtocol, FailoversThatLoseFrames) {
  RunSchedules(1000, 60, true, [](WorldConfig* c) {
    Mixed(c);
    c->faults = Faults::Some(0.03);
  });
}

// One worker is exact at every bound.
TEST(DeviceProtocol, OneWorkerEqualsOneProcess) {
  for (const std::string& name : Optimizer::Names()) {
    for (int64_t bound : {int64_t{0}, int64_t{1}, int64_t{10}, kUnbounded}) {
      SCOPED_TRACE(name + ", bound " + std::to_string(bound));
      RunSchedules(10, 60, false, [&](WorldConfig* c) {
        c->devices = 1;
        c->optimizer = name;
        c->dim = 3;
        c->tolerance = 1e-6f;
        c->cache.pull_bound = c->cache.push_bound = bound;
      });
    }
  }
}

// --- named cases

class Device : public WorldTest {
 protected:
  void Make(WorldConfig config, bool all = true) {
    if (all) config.devices = config.workers;
    WorldTest::Make(config);
  }
  ToyDevice& toy(size_t w = 0) { return *world().device(w); }
  Client& client(size_t w = 0) { return world().client(w); }
  std::map<Key, ToyDevice::Row>& rows(size_t w = 0) { return toy(w).rows(At(0).first); }
  const Counters& counters(size_t w = 0) { return client(w).Stats(At(0).first); }
  // Keys of partition p, the first of them from `from` on.
  std::vector<Key> KeysOf(uint32_t p, size_t count, Key from = 0) {
    std::vector<Key> keys;
    for (Key key = from; keys.size() < count; ++key) {
      const uint64_t hash = HashKey(key, world().service().hash_seed());
      if (PartitionOf(hash, world().service().partitions()) == p) keys.push_back(key);
    }
    return keys;
  }
};

// A request for rows of schema(0), all of partition 0, in memory of its own.
struct Rows {
  Rows(const Schema& schema, std::vector<Key> k, Clock base = kNoBase)
      : keys(std::move(k)),
        bases(keys.size(), base),
        clocks(keys.size(), -7),
        came(keys.size(), 7),
        admit(keys.size(), 7),
        rows(keys.size() * schema->row_floats(), -777) {
    read.parts.push_back({schema->id(), 0, keys.size(), keys.data(), bases.data(), came.data(), admit.data(),
                          clocks.data(), rows.data()});
  }
  std::vector<Key> keys;
  std::vector<Clock> bases, clocks;
  std::vector<uint8_t> came, admit;
  std::vector<float> rows;
  DeviceRead read;
};

// Updates of one tick each: `dv` in every float of the row.
struct Ticks {
  Ticks(const Schema& schema, std::vector<Key> k, float dv)
      : keys(std::move(k)), ticks(keys.size(), 1), updates(keys.size() * schema->row_floats(), dv) {
    push.parts.push_back(
        {schema->id(), keys.size(), keys.data(), ticks.data(), updates.data(), /*evicted=*/true});
  }
  std::vector<Key> keys;
  std::vector<uint32_t> ticks;
  std::vector<float> updates;
  DevicePush push;
};

TEST_F(Device, ChecksAndFetchesOfAllTablesAreOneRequestAPartition) {
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

TEST_F(Device, NothingWantedSendsNothing) {
  Make(Bounded(0));
  Train(0, {});
  Rows none(world().schema(0), {});
  EXPECT_TRUE(client().ReadForDevice(&none.read, true).ok());
  DevicePush empty;
  EXPECT_TRUE(client().PushForDevice(empty).ok());
  EXPECT_TRUE(client().WaitForDevice().ok());
  EXPECT_EQ(net().served(), 0u);
}

TEST_F(Device, OrdinaryCallsAreRefusedAndTheOtherWayRound) {
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
  EXPECT_TRUE(link(1).frames.empty());
  EXPECT_TRUE(client(0).CheckDevice(schema->id()).ok());
  EXPECT_EQ(client(0).CheckDevice(12345).code(), Code::kFailedPrecondition);
  EXPECT_EQ(client(0).AddDeviceTable(schema, config.cache, nullptr).code(), Code::kInvalidArgument);
  CacheConfig bad = config.cache;
  bad.policy = "newest";
  EXPECT_EQ(toy(0).AddTable(schema, bad).code(), Code::kInvalidArgument);
  EXPECT_EQ(net(0).served() + net(1).served(), 0u);
}

// Tables of both kinds at one client, reads and pushes of both under way at once.
TEST_F(Device, MixesWithOrdinaryTables) {
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
TEST_F(Device, APushBetweenAReadAndItsEnd) {
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
TEST_F(Device, PushesOfOneKeyStayInOrder) {
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
  EXPECT_EQ(link().frames.size(), 3u);
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

TEST_F(Device, PushesOfManyRowsAreSeveralFrames) {
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

TEST_F(Device, OnlyFinitePushBoundsAreWaitedFor) {
  for (int64_t bound : {int64_t{2}, kUnbounded}) {
    WorldConfig config = Bounded(bound);
    config.client.deadline = 3;
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
    EXPECT_EQ(link().frames.size(), 1u) << "kept";
    net().HoldReplies(0, false);
    EXPECT_TRUE(client().Flush().ok());
    EXPECT_EQ(world().ServerClock(At(1)), 1);
    Abandon();
  }
}

TEST_F(Device, FramesAreKeptWithinTheirRoom) {
  WorldConfig config = Bounded(0);
  config.client.durability = Durability::kCheckpoint;
  config.client.keep_bytes = 2000;
  Make(config);
  for (int i = 0; i < 60; ++i) Train(0, {1, 2});
  EXPECT_LE(link().kept_bytes, 2000u);
  EXPECT_GT(counters().dropped_pushes, 0u);
  Drained();
}

// --- a read under way when the partition comes to life again, or its table is loaded

// Two reads of one partition; of the second one, the answers tell that the first one's are of another life.
TEST_F(Device, ANewLifeWhileARowIsWithTheCaller) {
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

TEST_F(Device, UnsentUpdatesOfATableThatWasCleared) {
  for (bool keep : {true, false}) {
    WorldConfig config = Bounded(3);
    config.partitions = 2;
    config.client.on_reload = keep ? ClientConfig::kKeep : ClientConfig::kDiscard;
    Make(config);
    for (int i = 0; i < 6; ++i) Train(0, {1, 2, 3, 4});  // four applied, two unsent
    world().service().ClearTable(At(1).first);
    auto step = world().NewStep({{1, 2, 3, 4}});
    ASSERT_TRUE(toy().Read(step->MakeRead(), world().NewToken()).ok());
    EXPECT_EQ(step->Value(At(1).first, 1)[0], keep ? kInitial - 2 : kInitial);
    EXPECT_EQ(counters().discarded_ticks, keep ? 0u : 8u);
    ASSERT_TRUE(toy().Flush().ok());
    for (Key key : {1, 2, 3, 4}) EXPECT_EQ(world().ServerClock(At(key)), keep ? 2 : 0);
    Abandon();
  }
}

TEST_F(Device, ATableThatIsGone) {
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

TEST_F(Device, RowsThatGoAreToldToTheCache) {
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
  Abandon();
}

TEST_F(Device, ReloadDropsEverything) {
  Make(Bounded(3));
  Train(0, {1, 2});
  const ClientId before = link().client;
  client().Reload();
  toy().DoWhatWasPutOff();
  EXPECT_EQ(rows().size(), 0u);
  EXPECT_FALSE(link().client == before);
  EXPECT_EQ(counters().discarded_ticks, 2u);
  Abandon();
}

TEST_F(Device, RemovedWithFramesUnderWay) {
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

TEST_F(Device, AForkHasNoDevice) {
  WorldConfig config = Bounded(5);
  config.tables = 2;
  Make(config);
  const Schema& ordinary = world().schema(1);
  client().RemoveTable(ordinary->id());
  ASSERT_TRUE(client().AddTable(ordinary, config.cache).ok());
  Train(0, {1, 2});
  const ClientId parent = link().client;
  const pid_t child = fork();
  if (child == 0) {
    int wrong = 0;
    Rows wanted(world().schema(0), {1});
    Ticks ticks(world().schema(0), {1}, 1);
    const Status check = client().CheckDevice(At(0).first);
    wrong +=
        check.code() != Code::kFailedPrecondition || check.message().find("'spawn'") == std::string::npos;
    wrong += !toy().forsaken();
    const size_t told = toy().told();
    wrong += client().ReadForDevice(&wanted.read, true).code() != Code::kFailedPrecondition;
    wrong += client().PushForDevice(ticks.push).code() != Code::kFailedPrecondition;
    wrong += toy().AddTable(world().schema(0), config.cache).code() != Code::kFailedPrecondition;
    client().ForgetTable(At(0).first);
    client().ForgetClean();
    wrong += toy().told() != told;
    wrong += !client().WaitForDevice().ok() || !client().Flush().ok();
    auto step = world().NewStep({{}, {1}});  // tables that are cached here go on
    wrong += !client().Read(step->MakeRead(), 1).ok() ||
             !client().Write(step->MakeWrite(1), 1, nullptr).ok() || !client().Flush().ok();
    wrong += link().client == parent;
    _exit(wrong);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_FALSE(toy().forsaken());
  EXPECT_TRUE(link().client == parent);
  Train(0, {1, 2});
  ASSERT_TRUE(world().Flush(0).ok());
  EXPECT_EQ(world().ServerClock(At(1)), 2);
}

// --- admission, memory, refusals

TEST_F(Device, AKeyIsAdmittedOnceAStep) {
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

TEST_F(Device, APushForWhichThereIsNoMemoryChangesNothing) {
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

TEST_F(Device, AReadForWhichThereIsNoMemoryCanBeDoneAgain) {
  Make(Bounded(0));
  std::vector<Key> keys;
  for (Key key = 0; key < 100; ++key) keys.push_back(key);
  int failures = 0;
  for (size_t room = 0;; room += 256) {
    Rows wanted(world().schema(0), keys);
    bool done = false;
    SetAllocLimit(AllocatedBytes() + room);
    try {
      done = client().ReadForDevice(&wanted.read, true).ok();
    } catch (const std::bad_alloc&) {
    }
    SetAllocLimit(SIZE_MAX);
    if (done) {
      for (uint8_t came : wanted.came) EXPECT_EQ(came, 1);
      for (float value : wanted.rows) EXPECT_EQ(value, kInitial);
      break;
    }
    ++failures;
  }
  EXPECT_GT(failures, 3);
  Train(0, keys);
  Drained();
}

// Updates have left the device: they are taken whatever the network says, and that is told by the wait.
TEST_F(Device, APartitionThatRefusesTheClient) {
  Make(Bounded(0));
  Train(0, {1});
  LocalService other(1, 4711);  // another store: partitions of another hash
  LocalTransport direct(&other);
  struct Crossed : Transport {
    Crossed(Transport* to, PartitionId id) : to_(to), id_(id) {}
    uint32_t partitions() const override { return 1; }
    PartitionId id(uint32_t) const override { return id_; }
    void Send(uint32_t p, Bytes frame) override { to_->Send(p, std::move(frame)); }
    bool Poll(double s, std::vector<Event>* e) override { return to_->Poll(s, e); }
    void Reset(uint32_t p) override { to_->Reset(p); }
    uint64_t Connection(uint32_t p) override { return to_->Connection(p); }
    void AskReplicas(const std::vector<Mark>&, uint32_t, double) override {}
    void Sleep(double s) override { to_->Sleep(s); }
    double Now() override { return to_->Now(); }
    Transport* to_;
    PartitionId id_;
  } crossed(&direct, world().service().id(0));
  Client wrong(&crossed);
  ToyDevice device(&wrong, world().service().id(0), 1);
  ASSERT_TRUE(device.AddTable(world().schema(0), world().config().cache).ok());
  Ticks ticks(world().schema(0), {1}, 1);
  ASSERT_TRUE(wrong.PushForDevice(ticks.push).ok());
  EXPECT_EQ(wrong.UnappliedTicks(At(0).first, 1), 1u);
  const Status waited = wrong.WaitForDevice();
  EXPECT_EQ(waited.code(), Code::kFailedPrecondition) << waited.message();
  ASSERT_TRUE(wrong.PushForDevice(ticks.push).ok());
  EXPECT_EQ(wrong.UnappliedTicks(At(0).first, 1), 2u);
  EXPECT_EQ(wrong.WaitForDevice().code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace het::testing
