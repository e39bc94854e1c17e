// The budget of several caches: who gives room, and that the sum holds.
#include "het_tf/core/cache/cache_budget.h"

#include <gtest/gtest.h>

#include <memory>

#include "het_tf/core/cache/table_cache.h"
#include "het_tf/core/client/cached_tables.h"
#include "tests/testing/random.h"
#include "tests/testing/table_specs.h"

namespace het::testing {
namespace {

constexpr size_t kLine = Lines::Bytes(2);

class CacheBudgetTest : public ::testing::Test {
 protected:
  // Caches of tables with these dims.
  void Make(size_t bytes, const std::vector<uint32_t>& dims, Policy policy = Policy::kLfu) {
    CacheConfig config;
    config.policy = policy;
    budget_ = std::make_shared<CacheBudget>(bytes);
    for (const uint32_t dim : dims) {
      const Schema schema = NewSchema("t" + std::to_string(caches_.size()), dim);
      caches_.push_back(std::make_unique<TableCache>(schema, config, 3, nullptr, 0, budget_));
      caches_.back()->BeginLookup(1);
    }
  }
  // As a step does: the row is there afterwards. True: it was before.
  bool Use(size_t table, Key key) {
    TableCache& cache = *caches_[table];
    const uint32_t line = cache.lines().Find(key);
    if (line == kNoRow) {
      cache.Insert(key, cache.lines().Hash(key), 0, false);
      return false;
    }
    cache.policy().eviction().Touch(line);
    return true;
  }
  size_t Rows(size_t table) const { return caches_[table]->marks().resident(); }
  size_t Bytes() const {
    size_t bytes = 0;
    for (const auto& cache : caches_) bytes += cache->marks().resident() * cache->lines().line_bytes();
    return bytes;
  }

  std::shared_ptr<CacheBudget> budget_;
  std::vector<std::unique_ptr<TableCache>> caches_;
};

// Would find a rule that looks at sizes or misses: the table with the misses would get the room.
TEST_F(CacheBudgetTest, RoomGoesToTheTableThatHasTheHits) {
  Make(60 * kLine, {2, 2});
  size_t hits = 0;
  for (int step = 0; step < 200; ++step) {
    for (Key key = 0; key < 50; ++key) hits += Use(0, key);
    for (Key key = 0; key < 40; ++key) Use(1, step * 40 + key);
    caches_[1]->MakeRoom(0);
    EXPECT_LE(Bytes(), budget_->bytes());
  }
  EXPECT_GE(Rows(0), 45u);
  EXPECT_GE(hits, 199u * 45);
  for (int step = 0; step < 200; ++step) {  // the tables change places
    for (Key key = 0; key < 50; ++key) hits += Use(1, key);
    for (Key key = 0; key < 40; ++key) Use(0, 1000 + step * 40 + key);
    caches_[0]->MakeRoom(0);
  }
  EXPECT_GE(Rows(1), 45u);
}

// Would find a table that gives for all, by its number or since it makes room, and shares by the size of
// tables.
TEST_F(CacheBudgetTest, OfTheLastRankAllTablesGiveTheSameShare) {
  const struct {
    size_t lines;
    Policy policy;
    size_t first, second;
  } kCases[] = {{39, Policy::kLfu, 25, 14},   // rank 1 is not needed
                {12, Policy::kLfu, 6, 6},     // all of rank 0, and 8 of the 20 of rank 1
                {30, Policy::kLru, 20, 10}};  // there is one rank
  for (const auto& [lines, policy, first, second] : kCases) {
    caches_.clear();
    Make(lines * kLine, {2, 2}, policy);
    for (Key key = 0; key < 30; ++key) Use(0, key);
    for (Key key = 0; key < 15; ++key) Use(1, key);
    for (Key key = 0; key < 10; ++key) Use(0, key);
    for (Key key = 0; key < 10; ++key) Use(1, key);
    caches_[1]->MakeRoom(0);
    EXPECT_EQ(Rows(0), first);
    EXPECT_EQ(Rows(1), second);
  }
}

// Would find lines that are counted as rows.
TEST_F(CacheBudgetTest, AWideLineTakesItsBytes) {
  Make(50 * kLine, {2, 64});
  const size_t wide = caches_[1]->lines().line_bytes();
  Random random(5);
  for (int step = 0; step < 100; ++step) {
    for (int i = 0; i < 30; ++i) Use(random.Below(2), random.Between(0, 200));
    caches_[step % 2]->MakeRoom(0);
    EXPECT_EQ(budget_->used(), Rows(0) * kLine + Rows(1) * wide);
    EXPECT_LE(budget_->used(), budget_->bytes());
    EXPECT_GT(budget_->used() + wide, budget_->bytes() - wide) << "more left than a line too many";
  }
}

// Would find held lines that go, and a sum that stays too large for their sake.
TEST_F(CacheBudgetTest, HeldLinesStayUntilTheyAreNotHeld) {
  Make(4 * kLine, {2, 2});
  for (auto& cache : caches_) cache->BeginLookup(2);
  for (Key key = 0; key < 6; ++key) {
    Use(0, key);
    caches_[0]->marks().Hold(caches_[0]->lines().Find(key), caches_[0]->numbers().Until(2));
  }
  for (Key key = 0; key < 6; ++key) Use(1, key);
  caches_[1]->MakeRoom(0);
  EXPECT_EQ(Rows(0), 6u);
  EXPECT_EQ(Rows(1), 0u);
  EXPECT_EQ(caches_[0]->capacity(), 6u);
  for (auto& cache : caches_) cache->numbers().End(2);
  for (auto& cache : caches_) cache->numbers().End(1);
  caches_[1]->MakeRoom(0);
  EXPECT_EQ(Rows(0), 4u);
}

TEST_F(CacheBudgetTest, ATableThatGoesGivesItsRoomBack) {
  Make(10 * kLine, {2, 2});
  for (Key key = 0; key < 6; ++key) Use(0, key);
  for (Key key = 0; key < 4; ++key) Use(1, key);
  caches_.erase(caches_.begin());
  EXPECT_EQ(budget_->used(), 4 * kLine);
  for (Key key = 0; key < 20; ++key) Use(0, key);
  caches_[0]->MakeRoom(0);
  EXPECT_EQ(Rows(0), 10u);
}

TEST(CacheBudgets, TablesOfALayerShareOne) {
  CachedTables tables(1, 3);
  CacheConfig config;
  config.capacity = 5;
  std::vector<uint64_t> ids;
  for (const uint64_t layer : {1, 1, 2, 0}) {
    const Schema schema = NewSchema("t" + std::to_string(ids.size()), 2);
    config.layer = layer;
    config.layer_bytes = 20 * kLine;
    tables.Add(schema, config);
    ids.push_back(schema->id());
  }
  const auto budget = [&](size_t i) { return tables.at(ids[i]).budget(); };
  EXPECT_EQ(budget(0), budget(1));
  EXPECT_NE(budget(0), budget(2));
  EXPECT_EQ(budget(2)->bytes(), 20 * kLine);
  EXPECT_EQ(budget(3)->bytes(), 5 * kLine) << "its own, of its rows";
  tables.Remove(ids[0]);
  tables.Remove(ids[1]);
  config.layer = 1;
  config.layer_bytes = kLine;
  tables.Add(NewSchema("t0", 2), config);
  EXPECT_EQ(budget(0)->bytes(), kLine) << "a layer that is gone leaves nothing";
}

}  // namespace
}  // namespace het::testing
