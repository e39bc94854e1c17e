#include "het_tf/core/row/row_store.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "tests/testing/fits_in.h"
#include "tests/testing/random.h"

namespace het::testing {
namespace {

TEST(RowStore, AgainstAMap) {
  for (uint64_t seed = 1; seed <= Scaled(20); ++seed) {
    Random r(seed);
    const size_t floats = r.Pick<size_t>({1, 3, 8, 40});
    RowStore store(floats, seed);
    std::map<Key, float> truth;
    for (int i = 0; i < 5000; ++i) {
      const Key key = r.Chance(0.02) ? std::numeric_limits<Key>::min() : r.Between(-300, 300);
      const uint32_t row = store.Find(key);
      const auto it = truth.find(key);
      ASSERT_EQ(row == kNoRow, it == truth.end());
      if (row == kNoRow) {
        const uint32_t added = store.Insert(key, store.Hash(key));
        EXPECT_EQ(store.meta(added).clock, 0);
        EXPECT_EQ(store.meta(added).key, key);
        truth[key] = static_cast<float>(i);
        std::fill_n(store.data(added), floats, truth[key]);
      } else {
        ASSERT_TRUE(store.live(row));
        ASSERT_EQ(store.data(row)[floats - 1], it->second);
        if (r.Chance(0.4)) {
          store.Erase(row);
          truth.erase(it);
        }
      }
      ASSERT_EQ(store.size(), truth.size());
    }
    size_t live = 0;
    for (uint32_t row = 0; row < store.end(); ++row) live += store.live(row);
    EXPECT_EQ(live, truth.size());
  }
}

// Growth across chunks keeps numbers and contents.
TEST(RowStore, RowNumbersAreStable) {
  RowStore store(64, 1);
  std::vector<uint32_t> rows;
  for (Key key = 0; key < 20000; ++key) {
    rows.push_back(store.Insert(key, store.Hash(key)));
    store.data(rows.back())[63] = static_cast<float>(key);
  }
  for (Key key = 0; key < 20000; ++key) {
    ASSERT_EQ(store.Find(key), rows[static_cast<size_t>(key)]);
    ASSERT_EQ(store.data(rows[static_cast<size_t>(key)])[63], static_cast<float>(key));
  }
}

TEST(RowStore, FindBatchEqualsFind) {
  Random r(4);
  RowStore store(5, 9);
  Key key = 0;
  for (size_t n : {0, 1, 11, 12, 24, 25, 500, 5000}) {
    for (; key < (n < 5000 ? 3000 : 300000); key += 2) store.Insert(key, store.Hash(key));
    std::vector<Key> keys;
    std::vector<uint64_t> hashes;
    for (size_t i = 0; i < n; ++i) {
      keys.push_back(r.Between(-10, key + 100));
      hashes.push_back(store.Hash(keys[i]));
    }
    std::vector<uint32_t> rows(n, 12345);
    store.FindBatch(keys.data(), hashes.data(), n, rows.data());
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(rows[i], store.Find(keys[i]));
  }
}

TEST(RowStore, RowNumbersChangeOnlyWithTheGeneration) {
  RowStore store(2, 1);
  RowStore other(2, 1);
  EXPECT_NE(store.generation(), other.generation());
  const uint64_t first = store.generation();
  const uint32_t row = store.Insert(1, store.Hash(1));
  EXPECT_EQ(store.generation(), first) << "a row that comes moves no other";
  store.Erase(row);
  EXPECT_NE(store.generation(), first);
  const uint64_t second = store.generation();
  store.Clear();
  EXPECT_NE(store.generation(), second);
}

TEST(RowStore, OutOfMemoryChangesNothing) {
  RowStore store(16, 1);
  Key key = 0;
  int refusals = 0;
  while (refusals < 5) {
    if (!testing::FitsIn(0, [&] { store.Insert(key, store.Hash(key)); })) {
      ++refusals;
      EXPECT_EQ(store.size(), static_cast<size_t>(key));
      EXPECT_EQ(store.Find(key), kNoRow);
      store.Insert(key, store.Hash(key));
    }
    ++key;
  }
  for (Key k = 0; k < key; ++k) EXPECT_NE(store.Find(k), kNoRow);
}

// Reserved rows take no more memory, whatever existed before; a failed reservation changes nothing.
TEST(RowStore, ReservedRoomIsEnough) {
  for (Key rows : {0, 3, 9000, 40000, 200000}) {
    RowStore store(16, 1);
    for (Key key = 0; key < rows; ++key) store.Insert(key, store.Hash(key));
    const Key more = 50000;
    EXPECT_FALSE(testing::FitsIn(1000000, [&] { store.Reserve(static_cast<size_t>(more)); }));
    EXPECT_EQ(store.size(), static_cast<size_t>(rows));
    store.Reserve(static_cast<size_t>(more));
    EXPECT_TRUE(testing::FitsIn(0, [&] {
      for (Key key = rows; key < rows + more; ++key) store.Insert(key, store.Hash(key));
    }));
    for (Key key = 0; key < rows + more; ++key) ASSERT_NE(store.Find(key), kNoRow) << key;
    EXPECT_EQ(store.Find(rows + more), kNoRow);
  }
}

TEST(RowStore, SmallTableIsSmallAndClearFreesAll) {
  const size_t before = AllocatedBytes();
  {
    RowStore store(16, 1);
    for (Key key = 0; key < 3; ++key) store.Insert(key, store.Hash(key));
    EXPECT_LT(store.bytes(), 4096u);
    for (Key key = 3; key < 50000; ++key) store.Insert(key, store.Hash(key));
    EXPECT_GT(store.bytes(), 50000 * (16 * 4 + 24u));
    store.Clear();
    EXPECT_LT(store.bytes(), 8192u);
    EXPECT_EQ(store.Find(5), kNoRow);
    store.Insert(5, store.Hash(5));
    EXPECT_EQ(store.size(), 1u);
  }
  EXPECT_EQ(AllocatedBytes(), before);
}

TEST(RowStore, RowDataIsAlignedToItsWidth) {
  RowStore store(16, 1);
  for (Key key = 0; key < 100; ++key) {
    const uint32_t row = store.Insert(key, store.Hash(key));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(store.data(row)) % 64, 0u);
  }
}

}  // namespace
}  // namespace het::testing
