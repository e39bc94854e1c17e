// What processes serve while servers, followers, publishers, writers and readers are killed and stopped,
// while partitions move and replicas take over: no row is older than the age that the reader claims, none is
// torn, and none is older than the cut of the dense weights that were read before it, or too far ahead of it.
//
//   writers ──► servers ──► follower ──► live files ──► readers, which check what they read
//                  └──► publisher ──► versions ──┘
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <ctime>
#include <set>
#include <thread>

#include "het_tf/ext/ps/client/redis_changes.h"
#include "het_tf/ext/serving/cc/follow/boot_clock.h"
#include "het_tf/ext/serving/cc/follow/follower.h"
#include "het_tf/ext/serving/cc/follow/live_reader.h"
#include "het_tf/ext/serving/cc/serve/serve_writer.h"
#include "tests/testing/random.h"
#include "tests/testing/redis/fleet.h"
#include "tests/testing/redis/redis_shards.h"
#include "tests/testing/temp_folder.h"

namespace het::testing {
namespace {

constexpr Key kServedKeys = 24;
constexpr Key kRemovedKeys = 8;  // the last ones: a writer removes them now and then
constexpr uint64_t kMostEvents = 1 << 15;
constexpr uint64_t kMostVersions = 4096;

// What one process did to a row. An event sets the row to a value; it begins before its request is sent, and
// is `acked` when the server has said that it is done (CLOCK_BOOTTIME), or never.
struct RowHistory {
  struct Event {
    std::atomic<uint64_t> acked{0};  // 0: not yet
    std::atomic<float> value{0};
  };
  std::atomic<uint64_t> size{0};
  Event events[kMostEvents];

  // Returns the event's number.
  uint64_t Begin(float value) {
    const uint64_t number = size.load();
    if (number == kMostEvents) std::abort();
    events[number].value = value;
    size = number + 1;
    return number;
  }
  void Ack(uint64_t event) { events[event].acked = follow::BootNanoseconds(); }
  // The number of the last acked event.
  uint64_t LastAcked() const {
    uint64_t number = size.load();
    while (number > 1 && events[number - 1].acked == 0) --number;
    return number - 1;
  }
};

struct ServedRows : FleetState {
  // A version of a model, with the events that its rows must show at least.
  struct Cut {
    Position positions[Fleet::kPartitions];
    uint64_t least[kServedKeys];
  };
  RowHistory rows[kServedKeys];
  Cut versions[kMostVersions];  // [0] is the base
  std::atomic<uint64_t> published{0};

  std::atomic<bool> pause{false};  // writers rest between two events
  std::atomic<uint32_t> resting{0};
  std::atomic<uint64_t> checked{0};    // rows
  std::atomic<uint64_t> last_seen{0};  // of the last read
  std::atomic<uint64_t> in_force{0};   // the last read's version

  ServedRows() {
    for (RowHistory& row : rows) row.Ack(row.Begin(0));  // no row yet
  }
  // Checks a row that was read just now. The claim is that it is as new as the server was at `seen`: it may
  // show an event if the next one was not acked by then. The dense weights of `version` were read before.
  // Returns the number of the newest event that it may be.
  uint64_t Check(Key key, const float* value, uint64_t seen, uint64_t version) {
    ++checked;
    const auto error = [&](const std::string& what) {
      Error("key " + std::to_string(key) + ": value " + std::to_string(value[0]) + what);
    };
    if (std::count(value, value + Fleet::kDim, value[0]) != Fleet::kDim) error(" of a torn row");
    const RowHistory& row = rows[key];
    for (uint64_t i = row.size; i-- > versions[version].least[key];) {
      if (row.events[i].value == value[0]) return i;
      const uint64_t acked = row.events[i].acked;
      if (acked != 0 && acked <= seen) {
        const auto ago = [](uint64_t time) {
          return std::to_string(static_cast<double>(follow::BootNanoseconds() - time) * 1e-9) + " s";
        };
        error(" was replaced by " + std::to_string(row.events[i].value.load()) + " " + ago(acked) +
              " ago, and the claimed age is " + ago(seen));
        return i;
      }
    }
    error(" is older than the cut of version " + std::to_string(version) + ", or was never written");
    return 0;
  }
};

void SleepFor(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// Its processes are "writer0", "writer1", "follower", "publisher" and "reader".
class ServedFleet : public Fleet {
 public:
  ServedFleet(RedisShards* servers, uint64_t seed) : Fleet(servers->address()), seed_(seed) {
    auto base = serve::ServeWriter::Create(folder_.path() + "/t.het",
                                           TableSchema::Create(RemoteWorker::Spec()).value(), {});
    EXPECT_TRUE(base.ok() && base.value()->Finish().ok());
    for (const char* name : {"writer0", "writer1", "follower", "publisher", "reader"}) Start(name);
    AwaitServed();
  }

  void Restart(const std::string& name) {
    Kill(name);
    Start(name);
  }
  // Waits until readers have seen all that was acked before this call, and a version of after it.
  bool AwaitServed() {
    const uint64_t now = follow::BootNanoseconds();
    const uint64_t version = rows_->published;
    return Await("rows and a version of now are served",
                 [&] { return rows_->last_seen > now && (!Runs("publisher") || rows_->in_force > version); });
  }
  // Writers rest, each between two acked events, until Resume.
  void Pause() {
    rows_->resting = 0;
    rows_->pause = true;
    Await("writers rest", [&] { return rows_->resting == kWriters; });
  }
  void Resume() { rows_->pause = false; }
  void Finish() {
    Resume();
    AwaitServed();
    Fleet::Finish();
    EXPECT_GT(rows_->checked, 100u);
  }

 private:
  static constexpr uint32_t kWriters = 2;

  ServedRows& state() override { return *rows_; }
  void Run(const std::string& name) override {
    if (name == "follower") Follow();
    if (name == "publisher") Publish();
    if (name == "reader") Read();
    if (name == "writer0") Write(0);
    if (name == "writer1") Write(1);
  }
  void Write(uint32_t writer) {
    Random random(seed_ * 100 + writer);
    ClientConfig config;
    config.max_backoff = 0.1;
    config.deadline = 60;
    RemoteWorker worker(address(), config);
    std::vector<Key> mine;
    for (Key key = writer; key < kServedKeys; key += kWriters) mine.push_back(key);
    std::map<Key, float> values;
    while (!rows_->stop) {
      if (rows_->pause) {
        ++rows_->resting;
        while (rows_->pause && !rows_->stop) SleepFor(1e-3);
        continue;
      }
      const Key removed = random.Pick(mine);
      if (removed >= kServedKeys - kRemovedKeys && values[removed] > 0) {
        const uint64_t event = rows_->rows[removed].Begin(0);
        // A removal is not sent again by itself: it may have been carried out.
        for (;;) {
          size_t count = 0;
          const Status status = worker.engine().tables().Remove("t", {&removed, 1}, &count);
          if (status.ok()) break;
          if (status.code() != Code::kUnavailable) return rows_->Error("a removal: " + status.message());
          if (rows_->stop) return;
        }
        rows_->rows[removed].Ack(event);
        values[removed] = 0;
      }
      std::set<int64_t> ids;
      for (int i = 0; i < 4; ++i) ids.insert(random.Pick(mine));
      std::vector<std::pair<Key, uint64_t>> events;
      for (const Key id : ids) events.emplace_back(id, rows_->rows[id].Begin(++values[id]));
      const Status status = worker.Count({ids.begin(), ids.end()});
      if (!status.ok()) return rows_->Error("a step: " + status.message());
      for (const auto& [key, event] : events) rows_->rows[key].Ack(event);
      SleepFor(random.Unit() * 3e-3);
    }
  }
  void Follow() {
    auto source = RedisChanges::Open(address(), "", 3);
    for (; !source.ok() && !rows_->stop; source = RedisChanges::Open(address(), "", 3)) SleepFor(0.02);
    if (!source.ok()) return;
    auto live = follow::LiveWriter::Open(folder_.path() + "/live", {folder_.path() + "/t.het"});
    if (!live.ok()) return rows_->Error("live files: " + live.status().message());
    follow::FollowerOptions options;
    options.poll = 0.05;
    options.max_page_bytes = 200;  // several pages a scan
    auto made = follow::Follower::Create(source.value().get(), live.value().get(), options);
    if (!made.ok()) return rows_->Error("follower: " + made.status().message());
    follow::Follower& follower = *made.value();
    std::vector<pollfd> descriptors;
    // A follower that starts again gets the kept versions.
    for (uint64_t offered = rows_->published > 10 ? rows_->published - 10 : 0; !rows_->stop;) {
      for (; offered < rows_->published; ++offered) {
        const auto& cut = rows_->versions[offered + 1].positions;
        follow::Version offer;
        offer.number = offered + 1;
        const Status status = follower.Offer(offer, {std::begin(cut), std::end(cut)});
        if (!status.ok()) return rows_->Error("an offer: " + status.message());
      }
      const double pause = follower.Step();
      descriptors.clear();
      source.value()->Descriptors(&descriptors);
      poll(descriptors.data(), descriptors.size(), static_cast<int>(std::clamp(pause * 1000, 1.0, 20.0)));
    }
  }
  void Publish() {
    auto opened = het::RedisStore::Open(address(), "", 5, nullptr);
    for (; !opened.ok() && !rows_->stop; opened = het::RedisStore::Open(address(), "", 5, nullptr)) {
    }
    while (!rows_->stop) {
      const uint64_t number = rows_->published + 1;
      if (number == kMostVersions) return rows_->Error("too many versions");
      ServedRows::Cut& version = rows_->versions[number];
      for (Key key = 0; key < kServedKeys; ++key) version.least[key] = rows_->rows[key].LastAcked();
      if (const auto now = opened.value()->State(schema()); now.ok()) {
        std::copy_n(now.value().positions.begin(), kPartitions, version.positions);
        rows_->published = number;
      }
      SleepFor(0.1);
    }
  }
  void Read() {
    auto opened = follow::LiveReader::Open(folder_.path() + "/live", {folder_.path() + "/t.het"});
    if (!opened.ok()) return rows_->Error("reader: " + opened.status().message());
    follow::LiveReader& reader = *opened.value();
    std::vector<Key> keys;
    for (Key key = 0; key < kServedKeys; ++key) keys.push_back(key);
    std::vector<float> values(keys.size() * kDim);
    std::vector<uint64_t> newest(kServedKeys);
    while (!rows_->stop) {
      const auto state = reader.state();
      uint64_t seen = 0;
      const follow::LiveRead read = {0, keys, values.data()};
      const Status status = reader.Lookup({&read, 1}, &seen);
      if (!state.ok() || !status.ok()) return rows_->Error("a lookup: " + status.message());
      for (const Key key : keys) {
        const uint64_t event =
            rows_->Check(key, values.data() + key * kDim, seen, state.value().version.number);
        if (event < newest[key] && key < kServedKeys - kRemovedKeys) {
          rows_->Error("key " + std::to_string(key) + " went back from event " + std::to_string(newest[key]) +
                       " to " + std::to_string(event));
        }
        newest[key] = event;
      }
      rows_->last_seen = seen;
      rows_->in_force = state.value().version.number;
      SleepFor(5e-4);
    }
  }

  const uint64_t seed_;
  TempFolder folder_;
  const Shared<ServedRows> rows_ = NewShared<ServedRows>();
};

class RedisServedFaults : public NeedsRedis<> {
 protected:
  static uint64_t Runs() { return Scaled(3); }
};

TEST_F(RedisServedFaults, KilledServers) {
  for (uint64_t run = 0; run < Runs(); ++run) {
    RedisShards servers(1, RedisServer::Logged());
    ServedFleet fleet(&servers, run);
    for (int kills = 0; kills < 4; ++kills) {
      ASSERT_TRUE(servers[0].Restart()) << servers[0].Log();
      if (!fleet.AwaitServed()) break;
    }
    fleet.Finish();
  }
}

TEST_F(RedisServedFaults, KilledFollowersPublishersReadersAndWriters) {
  for (uint64_t run = 0; run < Runs(); ++run) {
    RedisShards servers(1);
    ServedFleet fleet(&servers, run);
    Random random(run);
    for (int kills = 0; kills < 12; ++kills) {
      fleet.Restart(random.Pick<std::string>({"follower", "follower", "publisher", "reader"}));
      SleepFor(0.05 * static_cast<double>(random.Below(6)));
      if (kills % 3 == 0 && !fleet.AwaitServed()) break;
    }
    fleet.Kill("writer1");  // its keys stay as they are
    fleet.Finish();
  }
}

// The server is silent for longer than every time-out, and answers the old questions then.
TEST_F(RedisServedFaults, ASilentServer) {
  for (uint64_t run = 0; run < Runs(); ++run) {
    RedisShards servers(2);
    ServedFleet fleet(&servers, run);
    kill(servers[1].pid(), SIGSTOP);
    SleepFor(run == 0 ? 1 : 12);
    kill(servers[1].pid(), SIGCONT);
    fleet.Finish();
  }
}

// A follower that was away has missed removals that the server no longer remembers.
TEST_F(RedisServedFaults, AFollowerThatWasAway) {
  for (uint64_t run = 0; run < Runs(); ++run) {
    RedisShards servers(1, {"--het.max-tombstones", "2"});
    ServedFleet fleet(&servers, run);
    for (int times = 0; times < 3; ++times) {
      fleet.Signal("follower", SIGSTOP);
      SleepFor(0.5);
      fleet.Signal("follower", SIGCONT);
      if (!fleet.AwaitServed()) break;
      fleet.Kill("follower");
      SleepFor(0.5);
      fleet.Start("follower");
      if (!fleet.AwaitServed()) break;
    }
    fleet.Finish();
  }
}

TEST_F(RedisServedFaults, AClockThatIsSet) {
  auto* const set_clock = reinterpret_cast<void (*)(int64_t)>(dlsym(RTLD_DEFAULT, "SetClock"));
  if (set_clock == nullptr) GTEST_SKIP() << "LD_PRELOAD lacks het_set_clock, which ctest gives";
  for (uint64_t run = 0; run < Runs(); ++run) {
    set_clock(0);
    RedisShards servers(1);
    ServedFleet fleet(&servers, run);
    for (const int64_t seconds : {-3600, 7200, -86400}) {
      const auto time = [&] {
        const RedisReply reply = servers[0].Command({"EVAL", "return redis.call('TIME')[1]", "0"});
        return static_cast<int64_t>(std::atoll(reply.text.c_str()));
      };
      const int64_t before = time();
      set_clock(seconds);
      EXPECT_GT(std::abs(time() - before), 3000) << "the server's clock is set, too";
      EXPECT_GT(std::abs(std::time(nullptr) - before), 3000);
      if (!fleet.AwaitServed()) break;
    }
    set_clock(0);
    fleet.Finish();
  }
}

TEST_F(RedisServedFaults, PartitionsThatMove) {
  for (uint64_t run = 0; run < Runs(); ++run) {
    RedisShards servers(2);
    ServedFleet fleet(&servers, run);
    for (uint32_t p = 0; p < Fleet::kPartitions; ++p) {
      const std::string key = fleet.PartitionKey(p);
      const size_t from = servers.OwnerOf(key);
      servers.Move(key, from, 1 - from);
    }
    fleet.AwaitServed();
    fleet.Finish();
  }
}

// Writers rest until the replica has everything, since a failover may lose what it does not have.
TEST_F(RedisServedFaults, ReplicasThatTakeOver) {
  for (uint64_t run = 0; run < Runs(); ++run) {
    RedisShards servers(1, RedisServer::Logged(), /*replicas=*/1);
    ServedFleet fleet(&servers, run);
    for (size_t round = 0; round < 3; ++round) {
      RedisServer& primary = servers[round % 2];
      RedisServer& replica = servers[1 - round % 2];
      fleet.Pause();
      ASSERT_TRUE(primary.AwaitCopy(&replica)) << replica.Log();
      primary.Kill();
      ASSERT_TRUE(replica.Command({"CLUSTER", "FAILOVER", "TAKEOVER"}).ok());
      ASSERT_TRUE(replica.Await("replication", "role:master"));
      fleet.Resume();
      if (!fleet.AwaitServed()) break;
      ASSERT_TRUE(primary.Start()) << primary.Log();
      ASSERT_TRUE(primary.Await("replication", "master_link_status:up")) << primary.Log();
    }
    fleet.AwaitServed();
    fleet.Finish();
  }
}

}  // namespace
}  // namespace het::testing
