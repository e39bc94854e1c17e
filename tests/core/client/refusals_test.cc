// Refusals that come in another order than the requests: those of a partition on its way from one
// server to another may be at both.
#include <gtest/gtest.h>

#include <vector>

#include "het_tf/core/client/client.h"
#include "het_tf/core/store/local_service.h"
#include "tests/testing/table_specs.h"

namespace het {
namespace {

// Keeps what is sent until the test says what becomes of it. Time passes in Sleep and Poll alone.
class Scripted : public Transport {
 public:
  explicit Scripted(LocalService* service) : service_(service) {}

  uint32_t partitions() const override { return service_->partitions(); }
  PartitionId id(uint32_t partition) const override { return service_->id(partition); }
  void Send(OutFrame frame) override { sent.push_back(std::move(frame)); }
  bool Poll(double seconds, std::vector<Event>* events) override {
    now_ += events_.empty() ? seconds : 0;
    for (Event& event : events_) events->push_back(std::move(event));
    const bool any = !events_.empty();
    events_.clear();
    return any;
  }
  void Reset(uint32_t) override { ++resets; }
  uint64_t Connection(uint32_t) override { return 1; }
  void AskReplicas(const std::vector<Mark>&, uint32_t, double) override {}
  void Sleep(double seconds) override { now_ += seconds; }
  double Now() override { return now_; }

  void Answer(size_t i) {
    Event event;
    service_->Handle(sent[i].view(), &event.bytes);
    events_.push_back(std::move(event));
  }
  void Refuse(size_t i, Event::Kind kind = Event::kRefused) {
    Event event;
    event.kind = kind;
    event.reason = "it moves";
    event.request_id = sent[i].parts.at(0).request_id;
    events_.push_back(std::move(event));
  }

  std::vector<OutFrame> sent;
  int resets = 0;

 private:
  LocalService* const service_;
  std::vector<Event> events_;
  double now_ = 1;
};

class ClientRefusals : public ::testing::Test {
 protected:
  ClientRefusals() {
    schema_ = testing::NewSchema("t", 2, "row_wise_adagrad");
    EXPECT_TRUE(service_.CreateTable(schema_).ok());
    EXPECT_TRUE(client_.AddTable(schema_, CacheConfig()).ok());
    // The first answers tell the client the table's epoch.
    auto known = Begin(0);
    for (size_t i = 0; i < transport_.sent.size() && i < 10; ++i) {
      transport_.Answer(i);
      client_.Progress(0);
    }
    EXPECT_TRUE(client_.FinishRead(known->op.get()).ok());
    transport_.sent.clear();
  }

  struct OneRead {
    Key key;
    uint64_t hash;
    uint32_t row = 0;
    CachedRead read;
    std::unique_ptr<ReadOp> op;
  };
  // Begins to read one key; its request is sent.
  std::unique_ptr<OneRead> Begin(Key key) {
    auto one = std::make_unique<OneRead>();
    one->key = key;
    one->hash = HashKey(key, service_.id(0).hash_seed);
    one->read.values.resize(1);
    one->read.parts.push_back(
        {schema_->id(), 0, 1, &one->key, &one->hash, &one->row, one->read.values.data()});
    one->op = client_.BeginRead(&one->read, 1);
    client_.Progress(0);
    return one;
  }

  LocalService service_{1};
  Schema schema_;
  Scripted transport_{&service_};
  Client client_{&transport_};
};

TEST_F(ClientRefusals, TheLaterRequestIsRefusedFirst) {
  auto first = Begin(1), second = Begin(2);
  ASSERT_EQ(transport_.sent.size(), 2u);
  transport_.Refuse(1);
  client_.Progress(0);
  EXPECT_FALSE(first->op->done() || second->op->done());
  transport_.Answer(0);
  client_.Progress(0);
  EXPECT_TRUE(first->op->done()) << "its answer was taken for a late one";
  for (int tries = 0; tries < 10 && transport_.sent.size() == 2; ++tries) client_.Progress(0.01);
  ASSERT_EQ(transport_.sent.size(), 3u) << "the refused one is sent again, after the pause and no time-out";
  transport_.Answer(2);
  client_.Progress(0);
  EXPECT_TRUE(second->op->done());
  EXPECT_EQ(transport_.resets, 0);
  EXPECT_TRUE(client_.FinishRead(first->op.get()).ok());
  EXPECT_TRUE(client_.FinishRead(second->op.get()).ok());
}

TEST_F(ClientRefusals, OneThatNobodyWaitsForTakesNoOtherAway) {
  auto first = Begin(1);
  transport_.Answer(0);
  client_.Progress(0);
  EXPECT_TRUE(first->op->done());
  auto second = Begin(2);
  transport_.Refuse(0, Transport::Event::kRejected);
  transport_.Answer(1);
  client_.Progress(0);
  EXPECT_TRUE(second->op->done());
  EXPECT_TRUE(client_.FinishRead(first->op.get()).ok());
  EXPECT_TRUE(client_.FinishRead(second->op.get()).ok());
}

}  // namespace
}  // namespace het
