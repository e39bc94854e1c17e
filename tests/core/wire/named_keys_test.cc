// Rings of named keys: names against their definition, and lists that no client can have sent.
#include "het_tf/core/wire/named_keys.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/testing/random.h"

namespace het::testing::named_keys_test {
namespace {

TEST(NamedKeys, AKeyHasTheNameOfItsNewestPlace) {
  for (uint64_t seed = 1; seed <= Scaled(200); ++seed) {
    SCOPED_TRACE(seed);
    Random r(seed);
    const auto size = r.Pick<uint32_t>({1, 4, 16});
    NamedKeys ring(size, 2 * size);
    NamedKeys equal(size, size);
    std::vector<Key> all;
    const auto expect = [&](Key key) {  // by definition
      for (size_t back = 1; back <= std::min<size_t>(size, all.size()); ++back) {
        if (all[all.size() - back] == key) return static_cast<uint32_t>((all.size() - back) % size);
      }
      return NamedKeys::kNone;
    };
    for (size_t n = r.Below(5 * size); n > 0; --n) {
      all.push_back(static_cast<Key>(r.Below(3 * size)));
      ring.Append(all.back());
      equal.Append(all.back());
    }
    ASSERT_EQ(ring.appended(), all.size());
    EXPECT_EQ(ring.state(), equal.state());
    for (Key key = 0; key < 3 * size; ++key) ASSERT_EQ(ring.Find(key), expect(key)) << key;
    // As of each moment that is not forgotten: a request's, before others were sent.
    for (size_t then = 0; then <= all.size(); ++then) {
      for (uint32_t name = 0; name <= size; ++name) {
        size_t at = then;
        while (at > 0 && (at - 1) % size != name) --at;
        const bool named = name < size && at > 0 && at + size > then && all.size() - (at - 1) <= 2 * size;
        const Key* const key = ring.At(name, then);
        ASSERT_EQ(key != nullptr, named) << name << " of " << then;
        ASSERT_EQ(named ? *key : 0, named ? all[at - 1] : 0);
      }
    }
    EXPECT_EQ(ring.At(0, all.size() + 1), nullptr);
    equal.Append(1);
    ring.Append(2);
    EXPECT_NE(ring.state(), equal.state());
  }
}

TEST(NamedKeys, ListsComeBackOrAreRefused) {
  NamedKeys ring(4, 4);
  for (const Key key : {30, 10, 20}) ring.Append(key);
  const Vector<Key> list = {10, 15, 20, 30};
  Vector<uint32_t> names;
  NameKeys(ring, list, &names);
  EXPECT_EQ(names, Vector<uint32_t>({2, 0, 3, 1}));
  Vector<Key> keys = {15, 40};  // 40: behind the list, of a row that left
  ASSERT_TRUE(CompleteKeys(ring, 3, names, &keys));
  EXPECT_EQ(keys, Vector<Key>({10, 15, 20, 30, 40}));
  const auto refused = [&](const Vector<uint32_t>& names, const Vector<Key>& in_full) {
    Vector<Key> keys = in_full;
    EXPECT_FALSE(CompleteKeys(ring, 3, names, &keys));
    EXPECT_EQ(keys, in_full);
  };
  refused({4}, {});  // a place without a key
  refused({5}, {});  // no place
  refused({UINT32_MAX}, {});
  refused({2, 2}, {});    // twice
  refused({1, 2}, {});    // out of order
  refused({2, 0}, {10});  // the same key by its name and in full
}

}  // namespace
}  // namespace het::testing::named_keys_test
