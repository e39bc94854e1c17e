// The partitions of tables, and how evenly they are on shards.
#include "het_tf/core/wire/layout.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace het::testing {
namespace {

constexpr uint64_t kSeed = 7;

// Rows of a table in each partition, for 8,000 keys.
std::vector<size_t> RowsOf(uint32_t partitions, uint64_t table) {
  const Layout layout(partitions, kSeed);
  std::vector<size_t> rows(partitions);
  for (Key key = 0; key < 8000; ++key) ++rows.at(layout.OfKey(table, key));
  return rows;
}

std::set<uint32_t> PlacesOf(uint32_t partitions, uint64_t table) {
  std::set<uint32_t> places;
  const std::vector<size_t> rows = RowsOf(partitions, table);
  for (uint32_t p = 0; p < partitions; ++p) {
    if (rows[p] > 0) places.insert(p);
  }
  return places;
}

// The number of partitions determines a table's group. A remainder would leave partitions empty.
TEST(Layout, AGroupDividesThePartitions) {
  const std::pair<uint32_t, size_t> expected[] = {{1, 1},     {3, 3},    {16, 16},   {17, 17},
                                                  {18, 9},    {24, 8},   {64, 8},    {100, 20},
                                                  {127, 127}, {128, 16}, {1024, 128}};
  for (const auto& [partitions, group] : expected) {
    EXPECT_EQ(PlacesOf(partitions, 12345).size(), group) << partitions;
    EXPECT_EQ(Layout(partitions, kSeed).partitions(), partitions);
  }
}

// Tables of neighbouring numbers are in disjoint groups, and all groups together are all partitions.
TEST(Layout, GroupsAreApartAndCoverEveryPartition) {
  for (const uint32_t partitions : {24u, 64u, 100u}) {
    std::set<uint32_t> all;
    size_t sum = 0;
    const size_t groups = partitions / PlacesOf(partitions, 0).size();
    for (uint64_t table = 0; table < groups; ++table) {
      const std::set<uint32_t> places = PlacesOf(partitions, table);
      all.insert(places.begin(), places.end());
      sum += places.size();
      EXPECT_EQ(places, PlacesOf(partitions, table + groups)) << "the number of the table decides";
    }
    EXPECT_EQ(all.size(), partitions);
    EXPECT_EQ(sum, partitions);
  }
}

// A shard has neighbouring partitions (keyspace.h): a group of neighbours would be on one shard.
TEST(Layout, EachTableIsEvenOnTheShards) {
  for (uint64_t table = 0; table < 8; ++table) {
    const std::vector<size_t> rows = RowsOf(64, table);
    for (const size_t shards : {1, 2, 4, 8}) {
      std::vector<size_t> of_shard(shards);
      for (size_t p = 0; p < 64; ++p) of_shard[p * shards / 64] += rows[p];
      for (const size_t one : of_shard) {
        EXPECT_NEAR(static_cast<double>(one * shards), 8000, 900) << table << " on " << shards;
      }
    }
  }
}

}  // namespace
}  // namespace het::testing
