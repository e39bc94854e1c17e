// What a read asks for; rows of an answer, and the own updates that they lack.
#include "het_tf/core/client/row_sink.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <set>

#include "het_tf/core/client/asker.h"
#include "het_tf/core/client/cached_tables.h"
#include "tests/testing/held_lines.h"
#include "tests/testing/table_specs.h"

namespace het {
namespace {

class RowSinkTest : public ::testing::Test {
 protected:
  RowSinkTest() {
    schema_ = testing::NewSchema("t", 1);
    CacheConfig config;
    config.capacity = 4;
    tables_.Add(schema_, config);
    cache_ = tables_.Find(schema_->id());
    sessions_.emplace_back(0, ClientId(), &config_);
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
  // A read of these keys begins; returns what it asks of the one partition.
  TableRead Begin(CacheSink* sink, const Vector<Key>& keys) {
    keys_ = keys;
    hashes_.clear();
    for (Key key : keys) hashes_.push_back(cache_->lines().Hash(key));
    rows_.assign(keys.size(), kNoRow);
    values_.assign(keys.size(), nullptr);
    read_.parts = {
        {schema_->id(), 0, keys.size(), keys_.data(), hashes_.data(), rows_.data(), values_.data()}};
    op_.sink = std::make_unique<LineSink>(&tables_);  // as the asker sees it
    Asker asker(&op_, &subscriptions_);
    sink->Classify(read_, &asker);
    asker.Ask(&sessions_);
    return op_.parts.back()->tables[0];
  }
  // The server's rows of all checks and fetches: value 10 * (i + 1) at clock i + 1.
  void Answer(RowSink* sink, const TableRead& asked, bool subscribed = false) {
    TableReply reply;
    reply.table = schema_->id();
    reply.row_floats = 1;
    float next = 0;
    for (uint32_t i = 0; i < asked.checks.size(); ++i) {
      reply.refreshed.push_back(i);
      reply.refreshed_lags.push_back(static_cast<Clock>(next) + 1 - asked.clocks[i]);
      reply.rows.push_back(10 * (next += 1));
    }
    for (size_t i = 0; i < asked.fetches.size(); ++i) {
      reply.fetched_clocks.push_back(static_cast<Clock>(next) + 1);
      reply.rows.push_back(10 * (next += 1));
    }
    ReplyRows rows(reply);
    sink->Take(asked, {0, &sessions_[0].log(), 0, reply, subscribed}, &rows);
  }

  Schema schema_;
  CachedTables tables_{1, 5};
  TableCache* cache_ = nullptr;
  Session::Config config_;
  std::deque<Session> sessions_;
  Subscriptions subscriptions_{&tables_};
  ReadOp op_;
  CachedRead read_;  // of Begin
  Vector<Key> keys_;
  Vector<uint64_t> hashes_;
  Vector<uint32_t> rows_;
  Vector<const float*> values_;
};

TEST_F(RowSinkTest, ATrainingReadFillsTheCacheAndHolds) {
  LineSink sink(&tables_, 1);
  const TableRead asked = Begin(&sink, {1, 2, 3, 4, 5, 6});
  Answer(&sink, asked, /*subscribed=*/true);
  EXPECT_EQ(cache_->lines().size(), 6u);
  EXPECT_EQ(cache_->marks().resident(), 6u) << "more than the cache may have, until the step ends";
  EXPECT_EQ(testing::HeldLines(*cache_), 6u);
  EXPECT_EQ(Value(6), 60);
  EXPECT_TRUE(cache_->marks().subscribed(cache_->lines().Find(1)));
}

// Would find a number that was taken when the read began and is another row's by now.
TEST_F(RowSinkTest, LinesStayTheReadsUntilItEnds) {
  for (const bool training : {true, false}) {
    const uint32_t line = Line(7, 1, 4);
    std::unique_ptr<CacheSink> sink = std::make_unique<PrivateSink>(&tables_);
    if (training) sink = std::make_unique<LineSink>(&tables_, 1);
    const TableRead asked = Begin(sink.get(), {7});
    for (uint64_t step = 2; step < 30; ++step) {  // no hold of a step lasts so long
      cache_->BeginLookup(step);
      Line(static_cast<Key>(100 * step), 0, 0);
      cache_->MakeRoom(4);
    }
    cache_->Drop(line);
    EXPECT_TRUE(cache_->marks().invalid(line));
    Answer(sink.get(), asked);
    sink->FillIn(&read_);
    EXPECT_EQ(rows_[0], line);
    EXPECT_EQ(values_[0][0], 10);
    sink.reset();
    cache_->MakeRoom(4);
    EXPECT_EQ(cache_->lines().Find(7), kNoRow) << training;
  }
}

// A read of more than one answer may take is several requests, which together ask the same.
TEST_F(RowSinkTest, ALargeReadIsSplit) {
  config_.most_read_bytes = 3 * TableRead{cache_}.most_row_bytes();
  LineSink sink(&tables_, 1);
  const std::set<Key> wanted = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  Begin(&sink, Vector<Key>(wanted.begin(), wanted.end()));
  EXPECT_EQ(op_.open_parts, 4u);
  std::set<Key> asked;
  for (const PartitionReadPtr& part : op_.parts) {
    EXPECT_LE(part->most_bytes(), config_.most_read_bytes);
    asked.insert(part->tables.at(0).fetches.begin(), part->tables.at(0).fetches.end());
  }
  EXPECT_EQ(asked, wanted);
}

TEST_F(RowSinkTest, RenewFetchesWhatHasBecomeInvalidAndTakesNewBases) {
  const uint32_t a = Line(1, 0, 4), b = Line(2, 0, 5);
  PrivateSink sink(&tables_);
  TableRead asked = Begin(&sink, {1, 2});
  EXPECT_EQ(asked.clocks, Vector<Clock>({4, 5}));
  cache_->marks().Invalidate(a);
  cache_->lines().base(b) = 9;
  sink.Renew(&asked);
  EXPECT_EQ(asked.checks, Vector<Key>({2}));
  EXPECT_EQ(asked.clocks, Vector<Clock>({9}));
  EXPECT_EQ(asked.check_at, Vector<uint32_t>({1}));
  EXPECT_EQ(asked.fetches, Vector<Key>({1}));
  EXPECT_EQ(asked.fetch_at, Vector<uint32_t>({0}));
}

}  // namespace
}  // namespace het
