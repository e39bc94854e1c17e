// Frames to and from the partitions of one store, over a network that the test plays.
#include "het_tf/core/client/exchange.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "het_tf/core/client/row_sink.h"
#include "het_tf/core/wire/parts.h"
#include "tests/testing/table_specs.h"

namespace het {
namespace {

constexpr uint32_t kPartitions = 4;

class Network : public Transport {
 public:
  uint32_t partitions() const override { return kPartitions; }
  PartitionId id(uint32_t partition) const override { return {partition, kPartitions, 5}; }
  uint32_t ShardOf(uint32_t partition) override { return partition / 2; }
  void Send(OutFrame frame) override { sent.push_back(std::move(frame)); }
  bool Poll(double seconds, std::vector<Event>* events) override {
    now += coming.empty() ? seconds : 0;
    const bool any = !coming.empty();
    for (Event& event : coming) events->push_back(std::move(event));
    coming.clear();
    return any;
  }
  void Reset(uint32_t partition) override { resets.push_back(partition); }
  uint64_t Connection(uint32_t) override { return 1; }
  void AskReplicas(const std::vector<Mark>&, uint32_t, double) override {}
  double LastMoved(uint32_t) override { return moved_at; }
  void Sleep(double seconds) override { now += seconds; }
  double Now() override { return now; }

  std::vector<Request> Requests(size_t frame) const {
    RequestParts parts;
    EXPECT_TRUE(parts.Open(sent[frame].view()).ok());
    std::vector<Request> requests(parts.size());
    for (Request& request : requests) EXPECT_TRUE(parts.Next(&request).ok());
    return requests;
  }
  void Reply(uint32_t partition, Bytes bytes) {
    Event& event = coming.emplace_back();
    event.partition = partition;
    event.bytes = std::move(bytes);
  }
  void Refuse(Event::Kind kind, uint32_t partition, uint32_t request_id, const char* reason) {
    Event& event = coming.emplace_back();
    event.kind = kind;
    event.partition = partition;
    event.request_id = request_id;
    event.reason = reason;
  }

  std::vector<OutFrame> sent;
  std::vector<Event> coming;
  std::vector<uint32_t> resets;
  double now = 1;
  double moved_at = 0;
};

struct Heard : Exchange::Listener {
  void OnRows(Session* session, const Reply&, const PartitionReadPtr& read, bool) override {
    rows.push_back(session->partition());
    read->op = nullptr;
  }
  void OnNewIncarnation(Session* session) override { incarnations.push_back(session->partition()); }
  void OnNewIdentity(Session*) override {}
  void OnReloaded(Session*, const Verdict::Table&) override {}
  void OnGone(Session*, const Verdict::Table&) override {}
  void OnLost(Session*, uint64_t, uint64_t) override {}
  void OnReplicas(Session*, const Transport::Event&) override { ++replicas; }

  std::vector<uint32_t> rows, incarnations;
  int replicas = 0;
};

class ExchangeTest : public ::testing::Test {
 protected:
  ExchangeTest() {
    schema_ = testing::NewSchema("t", 2, "row_wise_adagrad");
    tables_.Add(schema_, CacheConfig());
    op_.sink = std::make_unique<PrivateSink>(&tables_);
  }
  static ClientConfig Config() {
    ClientConfig config;
    config.request_timeout = 10;
    config.max_read_bytes = size_t{1} << 20;
    return config;
  }
  TableCache* cache() { return tables_.Find(schema_->id()); }
  PartitionReadPtr Ask(uint32_t partition, uint32_t fetches = 1) {
    auto read = std::make_shared<PartitionRead>();
    read->op = &op_;
    read->tables.push_back({cache()});
    for (uint32_t i = 0; i < fetches; ++i) read->tables[0].Fetch(i, i);
    exchange_.session(partition)->Ask(read);
    return read;
  }
  // Rows that do not exist, as the answers to these requests.
  static Bytes Answers(const std::vector<Request>& requests) {
    Bytes bytes;
    ReplyWriter writer(requests.size(), &bytes);
    for (const Request& request : requests) {
      Reply reply;
      reply.request_id = request.request_id;
      reply.partition = request.partition.index;
      reply.inc = 9;
      for (const TableRequest& asked : request.tables) {
        TableReply& t = reply.tables.emplace_back();
        t.table = asked.table;
        t.row_floats = 2;
        t.fetched_clocks.assign(asked.fetch_keys.size(), 0);
      }
      writer.Add(reply);
    }
    return bytes;
  }
  // Until something is sent, over the pauses after failures.
  void Wait() {
    const size_t before = net_.sent.size();
    for (int i = 0; i < 100 && net_.sent.size() == before; ++i) {
      exchange_.Receive(0.05, false);
      exchange_.Pump();
    }
  }

  Network net_;
  Heard heard_;
  Schema schema_;
  CachedTables tables_{kPartitions, 5};
  Subscriptions subscriptions_{&tables_};
  Exchange exchange_{&net_, Config(), &tables_, &subscriptions_, &heard_};
  ReadOp op_;
};

TEST_F(ExchangeTest, PartsOfAShardShareAFrame) {
  for (uint32_t p = 0; p < kPartitions; ++p) Ask(p);
  Ask(1);
  exchange_.Pump();
  ASSERT_EQ(net_.sent.size(), 3u) << "two parts of a partition are two frames";
  EXPECT_EQ(net_.Requests(0).size(), 2u);
  EXPECT_EQ(net_.Requests(1).size(), 2u);
  EXPECT_EQ(net_.Requests(2).size(), 1u);
  EXPECT_EQ(cache()->counters().requests, 5u);
  net_.Reply(0, Answers(net_.Requests(0)));
  exchange_.Receive(0, false);
  EXPECT_EQ(heard_.rows, std::vector<uint32_t>({0, 1}));
  EXPECT_TRUE(exchange_.busy());
}

TEST_F(ExchangeTest, ALargeRequestGoesAlone) {
  Ask(0, 20000);
  Ask(1);
  exchange_.Pump();
  ASSERT_EQ(net_.sent.size(), 2u);
  EXPECT_EQ(net_.Requests(0)[0].tables[0].fetch_keys.size(), 20000u);
}

// Checks bring few rows, and may bring all.
TEST_F(ExchangeTest, AFrameAsksForNoMoreThanAnAnswerMayTake) {
  for (uint32_t p = 0; p < 2; ++p) {
    TableRead& asked = Ask(p, 0)->tables[0];
    for (uint32_t i = 0; i < 30000; ++i) asked.Check(i, 1, i);
  }
  exchange_.Pump();
  ASSERT_EQ(net_.sent.size(), 2u);
  EXPECT_EQ(net_.Requests(0).size(), 1u);
}

TEST_F(ExchangeTest, ADamagedReplyLosesTheConnectionAndAllOfItsFrame) {
  Ask(0);
  Ask(1);
  exchange_.Pump();
  Bytes reply = Answers(net_.Requests(0));
  reply.pop_back();
  net_.Reply(0, reply);
  exchange_.Receive(0, false);
  EXPECT_EQ(net_.resets, std::vector<uint32_t>({0}));
  Wait();
  EXPECT_GE(net_.sent.size(), 2u);
}

TEST_F(ExchangeTest, AReplyThatDoesNotFitIsNoAnswer) {
  Ask(2);
  exchange_.Pump();
  std::vector<Request> requests = net_.Requests(0);
  requests[0].tables[0].fetch_keys.push_back(99);
  net_.Reply(2, Answers(requests));
  exchange_.Receive(0, false);
  EXPECT_TRUE(heard_.rows.empty());
  EXPECT_EQ(net_.resets, std::vector<uint32_t>({2}));
  EXPECT_EQ(exchange_.session(2)->backoff().reason(), "a reply that does not fit its request");
}

TEST_F(ExchangeTest, ATimeOutCountsFromTheLastByte) {
  Ask(3);
  exchange_.Pump();
  net_.now += 11;
  net_.moved_at = net_.now - 5;
  exchange_.Receive(0, false);
  EXPECT_TRUE(net_.resets.empty()) << "a large frame on a slow link";
  EXPECT_LE(exchange_.Due(), 10.0);
  net_.now += 6;
  exchange_.Receive(0, false);
  EXPECT_EQ(net_.resets, std::vector<uint32_t>({3}));
  Wait();
  EXPECT_EQ(net_.sent.size(), 2u);
}

TEST_F(ExchangeTest, ARejectionIsOfTheCallThatSentTheRequest) {
  Ask(0);
  exchange_.Pump();
  net_.now += 1;
  exchange_.BeginCall();
  net_.Refuse(Transport::Event::kRejected, 0, net_.Requests(0)[0].request_id, "no permission");
  exchange_.Receive(0, false);
  EXPECT_TRUE(exchange_.call().rejected.ok()) << "sent before";
  Wait();
  ASSERT_EQ(net_.sent.size(), 2u);
  net_.Refuse(Transport::Event::kRejected, 0, net_.Requests(1)[0].request_id, "no permission");
  exchange_.Receive(0, false);
  EXPECT_EQ(exchange_.call().rejected.message(), "no permission");
}

// Refusals may come in another order than the requests: those of a partition on its way from one server to
// another may be at both.
TEST_F(ExchangeTest, ARefusalIsOfItsRequestAlone) {
  for (int i = 0; i < 2; ++i) {
    Ask(0);
    exchange_.Pump();
  }
  ASSERT_EQ(net_.sent.size(), 2u);
  net_.Refuse(Transport::Event::kRefused, 0, net_.Requests(1)[0].request_id, "it moves");
  exchange_.Receive(0, false);
  net_.Reply(0, Answers(net_.Requests(0)));
  exchange_.Receive(0, false);
  EXPECT_EQ(heard_.rows.size(), 1u) << "its answer was taken for a late one";
  Wait();
  ASSERT_EQ(net_.sent.size(), 3u) << "the refused one is sent again, after the pause and no time-out";
  net_.Refuse(Transport::Event::kRejected, 0, net_.Requests(0)[0].request_id, "nobody waits for it");
  net_.Reply(0, Answers(net_.Requests(2)));
  exchange_.Receive(0, false);
  EXPECT_EQ(heard_.rows.size(), 2u);
  EXPECT_TRUE(net_.resets.empty());
}

TEST_F(ExchangeTest, RecoverAsksEverythingAgain) {
  Ask(0);
  Ask(2);
  exchange_.Pump();
  net_.Reply(0, Answers(net_.Requests(0)));
  exchange_.Recover();
  EXPECT_EQ(net_.resets.size(), kPartitions);
  Wait();
  Wait();
  EXPECT_EQ(net_.sent.size(), 4u);
}

}  // namespace
}  // namespace het
