// The index against std::map, with hashes chosen to collide in bucket, tag or both.
#include "het_tf/core/row/key_index.h"

#include <gtest/gtest.h>

#include <map>

#include "het_tf/core/base/hash.h"
#include "tests/testing/fits_in.h"
#include "tests/testing/random.h"

namespace het::testing {
namespace {

// A bad hash: few distinct buckets and tags, yet a function of the key.
uint64_t Collide(uint64_t key, uint64_t buckets, uint64_t tags) {
  const uint64_t good = Mix64(key);
  return ((good % buckets) << 58) | ((good >> 8) % tags);
}

void RunAgainstMap(uint64_t seed, uint64_t buckets, uint64_t tags, int steps) {
  Random r(seed);
  KeyIndex index;
  std::map<uint64_t, uint32_t> truth;
  std::vector<uint64_t> key_of_row;
  std::vector<uint32_t> free_rows;
  auto hash = [&](uint64_t key) { return buckets == 0 ? Mix64(key) : Collide(key, buckets, tags); };
  auto find = [&](uint64_t key) {
    return index.Find(hash(key), [&](uint32_t row) { return key_of_row[row] == key; });
  };
  for (int i = 0; i < steps; ++i) {
    const uint64_t key = r.Below(400);
    const auto it = truth.find(key);
    ASSERT_EQ(find(key), it == truth.end() ? kNoRow : it->second) << "seed " << seed << " step " << i;
    if (it == truth.end() && r.Chance(i % 2000 < 1000 ? 0.9 : 0.3)) {
      uint32_t row = static_cast<uint32_t>(key_of_row.size());
      if (!free_rows.empty()) {
        row = free_rows.back();
        free_rows.pop_back();
        key_of_row[row] = key;
      } else {
        key_of_row.push_back(key);
      }
      index.Reserve([&](uint32_t at) { return hash(key_of_row[at]); });
      index.Insert(hash(key), row);
      truth[key] = row;
    } else if (it != truth.end() && r.Chance(i % 2000 < 1000 ? 0.1 : 0.7)) {
      index.Erase(hash(key), it->second);
      free_rows.push_back(it->second);
      truth.erase(it);
    }
    ASSERT_EQ(index.size(), truth.size());
  }
  for (uint64_t key = 0; key < 400; ++key) {
    const auto it = truth.find(key);
    ASSERT_EQ(find(key), it == truth.end() ? kNoRow : it->second) << "seed " << seed;
  }
}

TEST(KeyIndex, GoodHashes) {
  for (uint64_t seed = 1; seed <= Scaled(20); ++seed) RunAgainstMap(seed, 0, 0, 6000);
}

TEST(KeyIndex, HashesThatCollideInBucketAndTag) {
  for (uint64_t seed = 1; seed <= Scaled(10); ++seed) {
    RunAgainstMap(seed, 1, 1, 4000);  // every key in one home bucket under one tag
    RunAgainstMap(seed, 1, 300, 4000);
    RunAgainstMap(seed, 7, 2, 4000);
    RunAgainstMap(seed, 64, 1, 4000);
  }
}

// More keys than 255 pass a full bucket: its counter sticks, and nothing is lost.
TEST(KeyIndex, AnOverflowCounterThatSticks) {
  KeyIndex index;
  std::vector<uint64_t> hashes;
  for (uint32_t row = 0; row < 2000; ++row) {
    hashes.push_back(row % 5 == 0 ? Mix64(row) : 3);
    index.Reserve([&](uint32_t at) { return hashes[at]; });
    index.Insert(hashes[row], row);
  }
  for (uint32_t row = 0; row < 2000; row += 2) index.Erase(hashes[row], row);
  for (uint32_t row = 0; row < 2000; ++row) {
    EXPECT_EQ(index.Find(hashes[row], [&](uint32_t at) { return at == row; }), row % 2 == 0 ? kNoRow : row);
  }
}

TEST(KeyIndex, OutOfMemoryLeavesItAsItWas) {
  KeyIndex index;
  auto hash = [](uint32_t row) { return Mix64(row); };
  uint32_t rows = 0;
  for (; testing::FitsIn(0, [&] { index.Reserve(hash); }); ++rows) index.Insert(hash(rows), rows);
  EXPECT_EQ(index.size(), rows);
  index.Reserve(hash);
  index.Insert(hash(rows), rows);
  for (uint32_t row = 0; row <= rows; ++row) {
    EXPECT_EQ(index.Find(hash(row), [&](uint32_t at) { return at == row; }), row);
  }
}

TEST(KeyIndex, FewBytesAKey) {
  KeyIndex index;
  for (uint32_t row = 0; row < 200000; ++row) {
    index.Reserve([](uint32_t at) { return Mix64(at); });
    index.Insert(Mix64(row), row);
  }
  EXPECT_LT(static_cast<double>(index.bytes()) / 200000, 9.5);
}

}  // namespace
}  // namespace het::testing
