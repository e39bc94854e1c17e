// Rows of an answer, and the own updates that they lack.
#include "het_tf/core/client/row_sink.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>

#include "het_tf/core/client/cached_tables.h"
#include "het_tf/core/client/device_reads.h"
#include "het_tf/core/client/push_builder.h"

namespace het {
namespace {

class RowSinkTest : public ::testing::Test {
 protected:
  RowSinkTest() {
    TableSpec spec;
    spec.name = "t";
    spec.dim = 1;
    spec.optimizer.name = "sgd";
    schema_ = TableSchema::Create(spec).value();
    CacheConfig config;
    config.capacity = 4;
    tables_.Add(schema_, config);
    cache_ = tables_.Find(schema_->id());
    sessions_.emplace_back(0, ClientId(), &config_);
  }
  PushLog& log() { return sessions_[0].log(); }
  void Push(Key key, float update) {
    TablePush* const push = log().Append(1)->Add(schema_, 1);
    push->keys.push_back(key);
    push->ticks.push_back(1);
    push->wire.push_back(update);
  }
  uint32_t Line(Key key, float value, Clock base) {
    const uint32_t line = cache_->Insert(key, cache_->lines().Hash(key), base, false);
    cache_->lines().data(line)[0] = value;
    return line;
  }
  float Value(Key key) {
    const uint32_t line = cache_->lines().Find(key);
    EXPECT_NE(line, kNoRow);
    return cache_->lines().data(line)[0];
  }
  Clock Base(Key key) { return cache_->base(cache_->lines().Find(key)); }
  // The server's rows of all checks and fetches: value 10 * (i + 1) at clock i + 1, as they were after
  // `applied`.
  void Answer(RowSink* sink, const TableRead& asked, uint64_t applied, bool subscribed = false) {
    TableReply reply;
    reply.table = schema_->id();
    reply.row_floats = 1;
    float next = 0;
    for (uint32_t i = 0; i < asked.checks.size(); ++i) {
      reply.refreshed.push_back(i);
      reply.refreshed_clocks.push_back(static_cast<Clock>(next) + 1);
      reply.rows.push_back(10 * (next += 1));
    }
    for (size_t i = 0; i < asked.fetches.size(); ++i) {
      reply.fetched_clocks.push_back(static_cast<Clock>(next) + 1);
      reply.rows.push_back(10 * (next += 1));
    }
    ReplyRows rows(reply);
    sink->Take(asked, {&log(), applied, reply, subscribed}, &rows);
  }

  Schema schema_;
  CachedTables tables_{1, 5};
  TableCache* cache_ = nullptr;
  Session::Config config_;
  std::deque<Session> sessions_;
  PushBuilder pushes_{&tables_, &sessions_, 1000};
  ReadOp op_;
};

TEST_F(RowSinkTest, OwnUpdatesThatTheRowLacksGoOnTop) {
  const uint32_t line = Line(7, 1, 0);
  Push(7, 100);
  Push(7, 200);
  cache_->UpdateOf(line)[0] = 1000;
  cache_->AddTick(line);
  cache_->SetInvalid(line, true);
  op_.step = 1;
  LineSink sink(&op_);
  TableRead asked{cache_};
  asked.checks = {7};
  Answer(&sink, asked, /*applied=*/1);
  EXPECT_EQ(Value(7), 10 + 200 + 1000) << "the first push is in the row";
  EXPECT_EQ(Base(7), 1 + 1) << "unsent ticks are no part of the base";
  EXPECT_FALSE(cache_->invalid(line));
}

TEST_F(RowSinkTest, ATrainingReadFillsTheCacheAndHolds) {
  op_.step = 1;
  LineSink sink(&op_);
  TableRead asked{cache_};
  asked.fetches = {1, 2, 3, 4, 5, 6};
  Answer(&sink, asked, 0, /*subscribed=*/true);
  EXPECT_EQ(cache_->lines().size(), 6u);
  EXPECT_EQ(cache_->resident(), 6u) << "more than the cache may have, until the step ends";
  EXPECT_EQ(cache_->Held(), 6u);
  EXPECT_EQ(Value(6), 60);
  EXPECT_TRUE(cache_->subscribed(cache_->lines().Find(1)));
}

TEST_F(RowSinkTest, ARowThatReturnsFromTheQueueHasItsUpdate) {
  const uint32_t line = Line(7, 1, 0);
  cache_->UpdateOf(line)[0] = 5;
  cache_->AddTick(line);
  for (Key key = 20; key < 24; ++key) Line(key, 0, 0);
  cache_->MakeRoom(4);
  ASSERT_NE(cache_->FindQueued(7), nullptr);
  TableRead asked{cache_};
  asked.fetches = {7};
  {
    ReadOp inference;
    PrivateSink sink(&inference);
    Answer(&sink, asked, 0);
    const Vector<float>& own = inference.fetched.at({cache_, 7});
    EXPECT_EQ(own[0], 15);
    EXPECT_NE(cache_->FindQueued(7), nullptr) << "it does not enter the cache";
  }
  op_.step = 1;
  LineSink sink(&op_);
  Answer(&sink, asked, 0);
  EXPECT_EQ(Value(7), 15);
  EXPECT_EQ(cache_->FindQueued(7), nullptr);
}

TEST_F(RowSinkTest, ARefreshedRowThatHasLeftIsDropped) {
  PrivateSink sink(&op_);
  TableRead asked{cache_};
  asked.checks = {7};
  Answer(&sink, asked, 0);
  EXPECT_EQ(cache_->lines().size(), 0u);
  EXPECT_TRUE(op_.fetched.empty());
}

TEST_F(RowSinkTest, RenewFetchesWhatHasBecomeInvalidAndTakesNewBases) {
  const uint32_t a = Line(1, 0, 4), b = Line(2, 0, 5);
  PrivateSink sink(&op_);
  TableRead asked{cache_};
  asked.checks = {1, 2, 3};
  asked.clocks = {4, 5, 6};
  cache_->SetInvalid(a, true);
  cache_->base(b) = 9;
  sink.Renew(&asked);
  EXPECT_EQ(asked.checks, Vector<Key>({2}));
  EXPECT_EQ(asked.clocks, Vector<Clock>({9}));
  EXPECT_EQ(asked.fetches, Vector<Key>({1, 3}));
}

TEST_F(RowSinkTest, ADeviceGetsItsRowsWhereItSaid) {
  const Key keys[] = {1, 2};
  const Clock bases[] = {0, kNoBase};
  uint8_t came[2] = {0, 0}, admit[2] = {0, 0};
  Clock clocks[2] = {0, 0};
  float rows[2] = {0, 0};
  DeviceRead::Part part{schema_->id(), 0, 2, keys, bases, came, admit, clocks, rows};
  Push(2, 7);
  TableRead asked{cache_};
  asked.device = &part;
  asked.checks = {1};
  asked.check_at = {0};
  asked.fetches = {2};
  asked.fetch_at = {1};
  DeviceReads reads;
  Answer(std::make_unique<DeviceSink>(&reads, &op_).get(), asked, 0);
  EXPECT_EQ(rows[0], 10);
  EXPECT_EQ(rows[1], 27);
  EXPECT_EQ(clocks[1], 3);
  EXPECT_EQ(came[0] + came[1], 2);
}

}  // namespace
}  // namespace het
