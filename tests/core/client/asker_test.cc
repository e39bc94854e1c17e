#include "het_tf/core/client/asker.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <set>

#include "het_tf/core/client/cached_tables.h"
#include "het_tf/core/client/row_sink.h"
#include "tests/testing/held_lines.h"
#include "tests/testing/table_specs.h"

namespace het {
namespace {

class AskerTest : public ::testing::Test {
 protected:
  AskerTest() {
    schema_ = testing::NewSchema("t", 2, "row_wise_adagrad");
    Cache(CacheConfig());
    for (uint32_t p = 0; p < 2; ++p) sessions_.emplace_back(p, ClientId(), &config_);
  }
  void Cache(const CacheConfig& config) {
    tables_.Add(schema_, config);
    cache_ = tables_.Find(schema_->id());
  }
  uint32_t Line(Key key, Clock base) {
    return cache_->Insert(key, cache_->lines().Hash(key), base, /*transient=*/false);
  }
  // A read of these keys of partition 0 by rows that a gradient misses, which is under way then.
  void Ask(const Vector<Key>& keys, ReadOp* op) {
    auto sink = std::make_unique<LineSink>(&tables_);
    LineSink& rows = *sink;
    op->sink = std::move(sink);
    Vector<uint64_t> hashes;
    for (Key key : keys) hashes.push_back(cache_->lines().Hash(key));
    CachedRead read;
    read.parts.push_back({schema_->id(), 0, keys.size(), keys.data(), hashes.data(), nullptr, nullptr});
    Asker asker(op, &subscriptions_);
    rows.Classify(read, &asker);
    asker.Ask(&sessions_);
  }
  // What partition 0 is asked about the table.
  TableRead AskedFor(Key key) {
    const size_t before = op_.parts.size();
    Ask({key}, &op_);
    return op_.parts.size() == before ? TableRead{cache_} : op_.parts.back()->tables.at(0);
  }

  Schema schema_;
  CachedTables tables_{2, 5};
  TableCache* cache_ = nullptr;
  Session::Config config_;
  std::deque<Session> sessions_;
  Subscriptions subscriptions_{&tables_};
  ReadOp op_;
};

TEST_F(AskerTest, ACachedRowIsCheckedWithItsClockAndHeld) {
  Line(7, 3);
  const TableRead asked = AskedFor(7);
  EXPECT_EQ(asked.checks, Vector<Key>({7}));
  EXPECT_EQ(asked.clocks, Vector<Clock>({3}));
  EXPECT_TRUE(asked.fetches.empty());
  EXPECT_EQ(testing::HeldLines(*cache_), 1u);
  EXPECT_EQ(op_.open_parts, 1u);
  EXPECT_TRUE(sessions_[0].waits());
  EXPECT_FALSE(sessions_[1].waits());
}

TEST_F(AskerTest, AnAbsentRowIsFetched) {
  EXPECT_EQ(AskedFor(7).fetches, Vector<Key>({7}));
  EXPECT_EQ(testing::HeldLines(*cache_), 0u);
}

TEST_F(AskerTest, AnInvalidRowIsFetched) {
  const uint32_t line = Line(7, 3);
  cache_->marks().Invalidate(line);
  EXPECT_EQ(AskedFor(7).fetches, Vector<Key>({7}));
}

TEST_F(AskerTest, WithoutABoundNothingIsAsked) {
  CacheConfig config;
  config.pull_bound = kUnbounded;
  Cache(config);
  Line(7, 3);
  EXPECT_TRUE(AskedFor(7).empty());
  EXPECT_TRUE(op_.done());
}

TEST_F(AskerTest, ASubscribedRowIsTrustedIfThePartitionHasAnsweredLately) {
  CacheConfig config;
  config.checks = Checks::kNotified;
  Cache(config);
  const uint32_t line = Line(7, 3);
  cache_->marks().Subscribe(line);
  EXPECT_EQ(AskedFor(7).checks.size(), 1u) << "it has never answered";
  cache_->numbers().SetAnswered(0, cache_->numbers().newest());
  cache_->BeginLookup(1);
  EXPECT_EQ(AskedFor(7).checks.size(), 1u) << "nothing bounds how long before the first lookup that was";
  cache_->numbers().SetAnswered(0, cache_->numbers().newest());
  for (uint64_t step = 2; step <= 3; ++step) {
    cache_->BeginLookup(step);
    EXPECT_EQ(AskedFor(7).checks.size(), step == 2 ? 0u : 1u) << step;
    EXPECT_TRUE(subscriptions_.asking()) << "the lookup after this one wants to know";
  }
  EXPECT_EQ(cache_->counters().trusted, 1u);
  cache_->numbers().SetAnswered(0, cache_->numbers().newest());
  cache_->marks().Notify(line);
  EXPECT_EQ(AskedFor(7).fetches, Vector<Key>({7}));
}

TEST_F(AskerTest, NoReadWaitsForAQuestionAlone) {
  CacheConfig config;
  config.checks = Checks::kNotified;
  Cache(config);
  const uint32_t line = Line(7, 3);
  cache_->marks().Subscribe(line);
  cache_->BeginLookup(1);
  cache_->numbers().SetAnswered(0, cache_->numbers().newest());
  EXPECT_TRUE(AskedFor(7).empty());
  EXPECT_TRUE(op_.done());
  EXPECT_TRUE(sessions_[0].waits());
  EXPECT_TRUE(subscriptions_.asking());
  subscriptions_.RemoveTable(schema_->id());
  EXPECT_FALSE(subscriptions_.asking());
}

TEST_F(AskerTest, TheEndOfAReadTakesItFromItsQuestions) {
  Line(7, 3);
  PartitionReadPtr part;
  {
    ReadOp op;
    Ask({7}, &op);
    part = op.parts.at(0);
    EXPECT_TRUE(part->wanted());
  }
  EXPECT_FALSE(part->wanted());
}

// A read of more than one answer may take is several requests, which together ask the same.
TEST_F(AskerTest, ALargeReadIsSplit) {
  const size_t row_bytes = TableRead{cache_}.most_row_bytes();
  config_.most_read_bytes = 3 * row_bytes;
  const std::set<Key> wanted = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  Ask(Vector<Key>(wanted.begin(), wanted.end()), &op_);
  EXPECT_EQ(op_.open_parts, 4u);
  std::set<Key> asked;
  for (const PartitionReadPtr& part : op_.parts) {
    EXPECT_LE(part->most_bytes(), config_.most_read_bytes);
    asked.insert(part->tables.at(0).fetches.begin(), part->tables.at(0).fetches.end());
  }
  EXPECT_EQ(asked, wanted);
}

TEST_F(AskerTest, APieceOfAReadTakesWhatBelongsToItsKeys) {
  auto read = std::make_shared<PartitionRead>();
  read->partition = 5;
  TableRead& asked = read->tables.emplace_back(TableRead{cache_});
  asked.checks = {1, 2, 3};
  asked.clocks = {11, 12, 13};
  asked.check_at = {21, 22, 23};
  asked.fetches = {4};
  asked.fetch_at = {24};
  const size_t row_bytes = asked.most_row_bytes();
  const PartitionReadPtr piece = read->TakePiece(3 * row_bytes);
  ASSERT_NE(piece, nullptr);
  EXPECT_EQ(read->TakePiece(3 * row_bytes), nullptr);
  const TableRead& taken = piece->tables.at(0);
  EXPECT_EQ(taken.fetches, Vector<Key>({4}));
  EXPECT_EQ(taken.fetch_at, Vector<uint32_t>({24}));
  EXPECT_EQ(taken.checks, Vector<Key>({2, 3}));
  EXPECT_EQ(taken.clocks, Vector<Clock>({12, 13}));
  EXPECT_EQ(taken.check_at, Vector<uint32_t>({22, 23}));
  EXPECT_EQ(piece->partition, 5u);
  EXPECT_EQ(read->tables.at(0).checks, Vector<Key>({1}));
  EXPECT_EQ(read->TakePiece(1), nullptr) << "a row is never split";
}

}  // namespace
}  // namespace het
