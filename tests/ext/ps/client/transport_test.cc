// The client over the wire, against a server that the test controls: refusals in mid-pipeline, redirects, a
// slow link. Nothing is lost, and nothing is applied twice.
#include <chrono>
#include <set>
#include <thread>

#include "het_tf/core/base/steady_seconds.h"
#include "het_tf/ext/ps/client/redis_store.h"
#include "tests/ext/ps/client/transport_fixture.h"

namespace het::testing {
namespace {

using ::testing::HasSubstr;

// Pulls from a server on this machine are sent a few at a time, in order; those still held get the same event
// when the connection closes.
TEST_F(TransportTest, PullsFromALocalServerAreHeldBack) {
  constexpr int kPulls = 40;
  constexpr size_t kAnswer = 100000;
  auto server = std::make_unique<FakeServer>(&service_);
  std::atomic<int> seen{0};
  server->SetScript([&](const FakeServer::Command& command) -> std::string {
    if (!command.frame()) return "";
    ++seen;
    return "$" + std::to_string(kAnswer) + "\r\n" + command.words[2] +
           std::string(kAnswer - command.words[2].size(), 'x');
  });
  Connect(*server);
  std::vector<Transport::Event> events;
  auto partition_of = [](int i) { return static_cast<uint32_t>(i + 5 < kPulls ? i % 2 : 2); };
  auto receive = [&](size_t count) {
    for (const double end = SteadySeconds() + 30; SteadySeconds() < end && events.size() < count;)
      transport_->Poll(0.01, &events);
  };
  const Bytes frame(100, 0);  // seq 0: no push
  transport_->Send({{{0, 0}}, false, frame});
  receive(1);
  ASSERT_EQ(events.size(), 1u) << "now it knows the size of an answer";
  events.clear();
  for (int i = 0; i < kPulls; ++i) {
    Bytes numbered = frame;
    numbered[99] = static_cast<uint8_t>(i);
    transport_->Send({{{partition_of(i), 0}}, false, numbered});
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // time for pulls that must not come
  EXPECT_LT(seen.load(), 1 + kPulls / 2);
  EXPECT_GT(transport_->LastMoved(2), 0) << "a held frame waits for moving bytes";
  receive(kPulls);
  ASSERT_EQ(events.size(), static_cast<size_t>(kPulls));
  for (int i = 0; i < kPulls; ++i) {
    EXPECT_EQ(events[static_cast<size_t>(i)].partition, partition_of(i));
    EXPECT_EQ(events[static_cast<size_t>(i)].bytes[99], static_cast<uint8_t>(i));
  }
  events.clear();

  for (int i = 0; i < kPulls; ++i) transport_->Send({{{i + 1 < kPulls ? 0u : 2u, 0}}, false, frame});
  server.reset();
  std::set<uint32_t> closed;
  for (const double end = SteadySeconds() + 30; SteadySeconds() < end && closed.size() < 2;) {
    transport_->Poll(0.01, &events);
    for (const Transport::Event& event : events) {
      if (event.kind == Transport::Event::kClosed) closed.insert(event.partition);
    }
    events.clear();
  }
  EXPECT_EQ(closed, std::set<uint32_t>({0, 2}));
}

// Every error that a server may answer instead of a frame, for every third frame, so that others are behind
// it in the pipeline.
TEST_F(TransportTest, RefusalsInMidPipeline) {
  for (const std::string error :
       {"-OOM command not allowed when used memory > 'maxmemory'.",
        "-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
        "-LOADING Redis is loading the dataset in memory", "-NOREPLICAS Not enough good replicas to write.",
        "-TRYAGAIN Multiple keys request during rehashing of slot", "-CLUSTERDOWN The cluster is down",
        "-READONLY You can't write against a read only replica.", "-MASTERDOWN Link with MASTER is down"}) {
    SCOPED_TRACE(error);
    FakeServer server(&service_);
    Connect(server);
    std::atomic<int> frames{0};
    server.SetScript([&](const FakeServer::Command& command) {
      return command.frame() && ++frames % 3 == 0 ? error : "";
    });
    for (Key key = 0; key < 20; ++key) {
      ASSERT_TRUE(Ok(Train({key, key + 100, key + 200, 77})));
    }
    ExpectExact();
    EXPECT_GT(frames.load(), 30);
    EXPECT_GT(Resends(), 0u);
    client_.reset();
  }
}

TEST_F(TransportTest, AServerThatSaysNothingIsNamed) {
  FakeServer server(&service_);
  ClientConfig config;
  config.deadline = 0.3;
  Connect(server, config, 0);
  server.pause_milliseconds = 1000;
  const Status status = Train({1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_THAT(status.message(),
              HasSubstr("partitions 0, 1, 2 at " + server.endpoint() + ": no answer, since"));
  server.pause_milliseconds = 0;
}

// A slot in the middle of its move: the old owner answers ASK, and the new one serves only frames behind
// ASKING. Defect: ASK is taken for MOVED, and the client bounces between them until the move ends, or is
// given up.
TEST_F(TransportTest, AskIsNotMoved) {
  for (const bool ends : {true, false}) {
    FakeServer source(&service_), target(&service_);
    source.cluster = true;
    ClientConfig config;
    config.deadline = 5;
    Connect(source, config, 0);
    TrainEight();
    source.SetGone({1});
    source.SetScript(Redirecting("ASK", 1, target));
    const FakeServer::Script back = Redirecting("MOVED", 1, source);
    target.SetScript([&](const FakeServer::Command& command) { return command.asking ? "" : back(command); });
    TrainEight(5);
    EXPECT_GT(target.frames.load(), 0);
    if (ends) {  // the target needs no ASKING, and the source answers MOVED
      source.SetScript(Redirecting("MOVED", 1, target));
      target.SetScript(nullptr);
    } else {  // the target no longer knows the slot
      source.SetGone({});
      source.SetScript(nullptr);
      target.SetScript(back);
    }
    TrainEight(5);
    ExpectExact();
    client_.reset();
  }
}

// A server that was removed from its cluster knows no owner of a slot. Defect: the client asks until the
// deadline.
TEST_F(TransportTest, RemovedServerIsNotAskedAgain) {
  FakeServer left(&service_), heir(&service_);
  left.cluster = heir.cluster = true;
  ClientConfig config;
  config.deadline = 5;
  Connect(left, config, 0);
  // One partition's move shows the successor.
  left.SetScript(Redirecting("MOVED", 1, heir));
  left.SetGone({1});
  TrainEight();
  left.SetScript([](const FakeServer::Command& command) {
    if (command.words[0] == "CLUSTER") return "*0";
    return command.frame() ? "-CLUSTERDOWN Hash slot not served" : "";
  });
  TrainEight();
  left.SetScript(nullptr);
  const int before = left.frames.load();
  TrainEight();
  EXPECT_EQ(left.frames.load(), before);
  ExpectExact();
}

// A partition that is being moved is waited for; one that is missing at its server is gone.
TEST_F(TransportTest, APartitionThatIsNotThere) {
  FakeServer source(&service_), target(&service_);
  source.cluster = true;
  Connect(source, ClientConfig(), 0);
  source.SetGone({1});
  source.SetScript(Redirecting("ASK", 1, target));
  std::atomic<int> asked{0};
  target.SetScript([&](const FakeServer::Command& command) {
    return command.frame() && ++asked <= 3 ? "-HETNOPART no partition at k" : "";
  });
  TrainEight();
  EXPECT_GT(asked.load(), 3);
  ExpectExact();
  source.SetScript([&](const FakeServer::Command& command) {
    return command.frame() ? "-HETNOPART no partition at k" : "";
  });
  EXPECT_TRUE(Fails(Train({1, 2, 3, 4, 5, 6, 7, 8}), Code::kFailedPrecondition,
                    "HETNOPART no partition at k (the server has lost the tables",
                    "call het_tf.reset() and build the model again"));
}

// Most steps to partitions of one server are one frame. One moves: its part is sent separately.
TEST_F(TransportTest, APartitionLeavesInTheMiddleOfFrames) {
  for (const bool asks : {false, true}) {
    SCOPED_TRACE(asks);
    FakeServer source(&service_), target(&service_);
    source.cluster = true;
    for (const uint32_t moving : {2u, 0u}) {  // behind another's key, and under its own
      Connect(source, ClientConfig(), 0);
      TrainEight();
      const int before = source.many_parts.load();
      TrainEight();
      EXPECT_EQ(source.many_parts.load() - before, 1) << "all pushes";
      source.SetGone({moving});
      source.SetScript(Redirecting(asks ? "ASK" : "MOVED", moving, target));
      const int elsewhere = source.elsewhere.load();
      const int at_target = target.frames.load();
      TrainEight(4);
      EXPECT_EQ(source.elsewhere.load() - elsewhere, moving == 0 ? 0 : 1) << "told once";
      EXPECT_EQ(target.frames.load() - at_target, 4);
      EXPECT_EQ(target.many_parts.load(), 0) << "it has one partition";
      source.SetGone({});
      source.SetScript(nullptr);
      ExpectExact();
      client_.reset();
    }
  }
}

// A server that finds no partition but the first key's: each partition then gets frames of its own.
TEST_F(TransportTest, NeighbourKeysAreMissingAtServer) {
  FakeServer server(&service_);
  Connect(server, ClientConfig(), 0);
  server.SetGone({1, 2});
  TrainEight(5);
  EXPECT_EQ(server.elsewhere.load(), 2);
  ExpectExact();
}

// A flush longer than the time-out, in which bytes move all the time.
TEST_F(TransportTest, ASlowLinkIsNoTimeOut) {
  FakeServer server(&service_);
  ClientConfig config;
  config.request_timeout = 4;  // enough for a slow machine to serve the whole frame
  config.max_frame_bytes = size_t{64} << 20;
  Connect(server, config, 1000);
  ASSERT_TRUE(Train(Range(0, 20000)).ok());
  server.pause_milliseconds = 800;  // some 400 KB in pieces of at most 64 KiB
  const double start = SteadySeconds();
  EXPECT_TRUE(Ok(client_->Flush()));
  EXPECT_GT(SteadySeconds() - start, config.request_timeout);
  server.pause_milliseconds = 0;
  EXPECT_EQ(Resends(), 0u);
  EXPECT_EQ(server.connections.load(), 2) << "one for the map, one for frames";
  ExpectExact();
}

// A table is dropped at all partitions of a server at once, even if another worker has dropped some.
TEST_F(TransportTest, ATableIsDroppedEverywhereAtOnce) {
  constexpr size_t kMany = 64;
  FakeServer server(&service_);
  std::vector<std::string> dropped;
  server.SetScript([&](const FakeServer::Command& command) -> std::string {
    if (command.words[0] == "HSETNX") return ":0";
    if (command.words[0] == "HET.STAT") return "*0";
    if (command.words[0] == "HGET" && command.words[2] == "made")
      return "$1\r\n" + std::to_string(Layout::kRule);
    if (command.words[0] == "HGET") return "$2\r\n" + std::to_string(kMany);
    if (command.words[0] != "HET.TABLE") return "";
    if (command.words[2] == "DROP") dropped.push_back(command.words[1]);
    return command.words[2] == "DROP" && dropped.size() % 5 == 0 ? "-HETERR no table 't' at p; ..." : "+OK";
  });
  auto store = ValueOf(RedisStore::Open(server.address(), "", 5, nullptr));
  const int reads = server.reads.load();
  EXPECT_TRUE(Ok(store->DropTable(*schema_)));
  EXPECT_LT(server.reads.load() - reads, static_cast<int>(kMany) / 4) << "they were pipelined";
  EXPECT_EQ(dropped, store->keys()) << "each once";
}

// Replies without a request must not be taken for later ones.
TEST_F(TransportTest, MoreAnswersThanQuestions) {
  FakeServer server(&service_);
  RedisCluster cluster(server.address());
  ASSERT_TRUE(cluster.Refresh(5).ok());
  std::atomic<int> asked{0};
  server.SetScript([&](const FakeServer::Command& command) -> std::string {
    if (command.words[0] != "HET.STAT") return "";
    std::string answer = ":1";
    if (++asked <= 2) {
      for (int i = 0; i < 1000; ++i) answer += "\r\n:2";
    }
    return answer;
  });
  std::vector<RedisCluster::Command> commands;
  for (const std::string& key : keys_) commands.push_back({key, {"HET.STAT", key}});
  std::vector<RedisReply> replies;
  ASSERT_TRUE(cluster.AskAll(commands, 5, &replies).ok());
  ASSERT_EQ(replies.size(), keys_.size());
  for (const RedisReply& reply : replies) EXPECT_EQ(reply.integer, 1);
}

}  // namespace
}  // namespace het::testing
