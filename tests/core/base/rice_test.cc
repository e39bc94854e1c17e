// Rice codes: what is written is read, in few bits, and nothing else is.
#include "het_tf/core/base/rice.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/testing/random.h"

namespace het {
namespace {

using testing::Random;
using testing::Scaled;

template <typename Key>
Bytes Written(const std::vector<Key>& keys) {
  Bytes bytes;
  Writer w(&bytes);
  WriteAscending(keys, &w);
  return bytes;
}

// Empty: refused, or it does not end with the bytes.
template <typename Key>
Vector<Key> Read(size_t n, const Bytes& bytes) {
  Reader r(bytes);
  Vector<Key> keys;
  ReadAscending(n, &r, &keys);
  return r.ok() && r.left() == 0 ? keys : Vector<Key>();
}

template <typename Key>
void RoundTrips(Random* r) {
  using Limits = std::numeric_limits<Key>;
  const unsigned bits = static_cast<unsigned>(r->Below(64));
  std::vector<Key> keys;
  Key last = r->Chance(0.2) ? Limits::min() : static_cast<Key>(r->Next());
  for (uint64_t n = r->Below(200); n > 0; --n) {
    keys.push_back(last);
    const uint64_t room = static_cast<uint64_t>(Limits::max()) - static_cast<uint64_t>(last);
    if (room == 0) break;
    const uint64_t gap = r->Chance(0.01) ? r->Next() : r->Next() >> bits;
    last = static_cast<Key>(static_cast<uint64_t>(last) + 1 + gap % room);
  }
  const Bytes bytes = Written(keys);
  ASSERT_EQ(Read<Key>(keys.size(), bytes), Vector<Key>(keys.begin(), keys.end()));
  if (bytes.empty()) return;
  // Bytes that are cut off or damaged may be other keys, which ascend, too.
  Bytes damaged(bytes.begin(), bytes.end() - static_cast<ptrdiff_t>(1 + r->Below(bytes.size())));
  EXPECT_TRUE(Read<Key>(keys.size(), damaged).empty());
  damaged = bytes;
  damaged[r->Below(damaged.size())] ^= static_cast<uint8_t>(1 << r->Below(8));
  const Vector<Key> read = Read<Key>(keys.size(), damaged);
  for (size_t i = 1; i < read.size(); ++i) ASSERT_LT(read[i - 1], read[i]);
}

TEST(Rice, KeysRoundTrip) {
  for (uint64_t seed = 1; seed <= Scaled(4000); ++seed) {
    SCOPED_TRACE(seed);
    Random r(seed);
    RoundTrips<int64_t>(&r);
    RoundTrips<uint32_t>(&r);
  }
}

TEST(Rice, IdsTakeFewBits) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 1000; ++i) ids.push_back(i * 997 + i % 7);
  EXPECT_LE(Written(ids).size(), 1 + 1 + 1000 * 12 / 8);  // 2 + log2 997
  for (int64_t i = 0; i < 1000; ++i) ids[static_cast<size_t>(i)] = i;
  EXPECT_EQ(Written(ids).size(), 1 + 1 + 125u);
}

TEST(Rice, TheBytesThemselves) {
  // The gaps less 1 are 2 and 9, their mean is 5 and k 2: 0 10, 110 10.
  EXPECT_EQ(Written<int64_t>({-1, 2, 12}), (Bytes{1, 2, 0b01011'100}));
  Bytes padded = Written<int64_t>({-1, 2, 12});
  EXPECT_EQ(Read<int64_t>(3, padded).size(), 3u);
}

TEST(Rice, OtherKeysAreRefused) {
  EXPECT_THROW(Written<int64_t>({1, 1}), std::logic_error);
  EXPECT_THROW(Written<int64_t>({2, 1}), std::logic_error);
  EXPECT_TRUE(Read<int64_t>(2, {0, 64, 0}).empty()) << "k of 64 bits";
  EXPECT_TRUE(Read<uint32_t>(1, {1}).empty()) << "-1 is none of 32 bits";
  EXPECT_TRUE(Read<int64_t>(2, {0, 0, 0b10}).empty()) << "a bit behind the end";
  EXPECT_TRUE(Read<int64_t>(2, {0, 0, 0xff, 0xff}).empty()) << "a number without an end";
  EXPECT_TRUE(Read<int64_t>(size_t{1} << 40, {0, 0, 0}).empty()) << "more keys than bits";
  // INT64_MAX has no key behind it.
  Bytes bytes = Written<int64_t>({std::numeric_limits<int64_t>::max()});
  bytes.insert(bytes.end(), {0, 0});
  EXPECT_TRUE(Read<int64_t>(2, bytes).empty());
}

}  // namespace
}  // namespace het
