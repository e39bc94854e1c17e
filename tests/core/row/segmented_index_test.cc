// The index against std::unordered_map, through its split and growths that fail, and what a growth costs.
#include "het_tf/core/row/segmented_index.h"

#include <gtest/gtest.h>

#include <unordered_map>

#include "het_tf/core/base/hash.h"
#include "tests/testing/fits_in.h"
#include "tests/testing/random.h"

namespace het::testing {
namespace {

// Hashes fall to so many segments.
void RunAgainstMap(uint64_t seed, uint64_t segments) {
  Random r(seed);
  SegmentedIndex index;
  std::unordered_map<uint64_t, uint32_t> truth;
  std::vector<uint64_t> key_of_row;
  std::vector<uint32_t> free_rows;
  auto hash = [&](uint64_t key) {
    const uint64_t good = Mix64(key);
    return (good & ~uint64_t{0xff00}) | (good >> 8 & 0xff) % segments << 8;
  };
  auto hash_of = [&](uint32_t row) { return hash(key_of_row[row]); };
  auto expect = [&](uint64_t key) {
    const auto it = truth.find(key);
    const uint32_t found = index.Find(hash(key), [&](uint32_t row) { return key_of_row[row] == key; });
    ASSERT_EQ(found, it == truth.end() ? kNoRow : it->second) << "seed " << seed << " key " << key;
  };
  int refusals = 0;
  for (int i = 0; i < 600000; ++i) {
    const uint64_t key = r.Below(160000);
    expect(key);
    const auto it = truth.find(key);
    const bool filling = i % 300000 < 240000;
    if (it == truth.end() && r.Chance(filling ? 0.9 : 0.3)) {
      if (free_rows.empty()) {
        free_rows.push_back(static_cast<uint32_t>(key_of_row.size()));
        key_of_row.push_back(key);
      }
      if (r.Chance(0.00001)) index.ReserveMany(hash_of, r.Below(20000));
      while (!FitsIn(size_t{1} << r.Below(24), [&] { index.Reserve(hash_of, hash(key)); })) {
        ++refusals;
        expect(r.Below(160000));
      }
      key_of_row[free_rows.back()] = key;
      index.Insert(hash(key), free_rows.back());
      truth[key] = free_rows.back();
      free_rows.pop_back();
    } else if (it != truth.end() && r.Chance(filling ? 0.1 : 0.7)) {
      index.Erase(hash(key), it->second);
      free_rows.push_back(it->second);
      truth.erase(it);
    }
    ASSERT_EQ(index.size(), truth.size());
  }
  for (uint64_t key = 0; key < 160000; ++key) expect(key);
  EXPECT_GT(refusals, 20);
  index.Clear();
  EXPECT_EQ(index.bytes(), KeyIndex().bytes());
}

TEST(SegmentedIndex, AgainstAMap) {
  for (uint64_t seed = 1; seed <= Scaled(2); ++seed) {
    RunAgainstMap(seed, 256);
    RunAgainstMap(seed, 3);
  }
}

// Memory rises evenly, and no insert moves many keys.
TEST(SegmentedIndex, GrowsInSmallSteps) {
  SegmentedIndex index;
  for (uint32_t row = 0, moved = 0; row < 1000000; ++row, moved = 0) {
    index.Reserve([&](uint32_t at) { return ++moved, Mix64(at); }, Mix64(row));
    index.Insert(Mix64(row), row);
    ASSERT_LT(moved, row < 100000 ? 200000u : 6000u) << row;
    ASSERT_LT(static_cast<double>(index.bytes()), 8.5 * row + 100000) << row;
  }
}

}  // namespace
}  // namespace het::testing
