// Helpers for random frames.
#pragma once

#include <cstdint>

#include "het_tf/core/wire/parts.h"
#include "tests/testing/random.h"

namespace het::testing::frame_test {

constexpr int64_t kSpecial[] = {
    0,         1,         -1,           127, 128, INT32_MAX, int64_t{1} << 31, (int64_t{1} << 53) + 1,
    INT64_MIN, INT64_MAX, INT64_MIN + 1};

inline int64_t Any(Random* r) {
  return r->Chance(0.5) ? kSpecial[r->Below(11)] : static_cast<int64_t>(r->Next());
}

inline void AnyKeys(Random* r, Vector<Key>* keys) {
  for (uint64_t n = r->Chance(0.5) ? 0 : r->Below(9); n > 0; --n) keys->push_back(Any(r));
}

inline uint64_t Near(Random* r, uint64_t number) {
  return r->Chance(0.3) ? r->Next() : number + static_cast<uint64_t>(r->Between(-2, 2));
}

inline RowFormat AnyFormat(Random* r) { return static_cast<RowFormat>(r->Below(3)); }

inline Span<const uint8_t> View(const Bytes& bytes) { return {bytes.data(), bytes.size()}; }

}  // namespace het::testing::frame_test
