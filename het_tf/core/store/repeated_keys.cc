#include "het_tf/core/store/repeated_keys.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/store/local_service.h"

namespace het {
namespace {

constexpr size_t kSlotsPerKey = 4;
constexpr size_t kSlots = 4096;  // of the table that is used again

// An open-addressing set of positions in the two lists. A slot holds `base` and the position + 1; what is no
// larger than `base` is of an earlier call, so nothing is cleared between calls.
struct Slots {
  uint32_t at[kSlots];
  uint32_t base;
};

bool Ascends(Span<const Key> keys) {
  return std::adjacent_find(keys.begin(), keys.end(), std::greater_equal<Key>()) == keys.end();
}

bool Find(Span<const Key> first, Span<const Key> second, uint32_t* slots, uint32_t shift, uint32_t base,
          Key* key) {
  // Multiplied by a number that only this process knows.
  static const uint64_t secret = RandomId() | 1;
  const uint32_t mask = static_cast<uint32_t>((uint64_t{1} << (64 - shift)) - 1);
  uint32_t position = base;
  for (const Span<const Key> keys : {first, second}) {
    for (const Key each : keys) {
      ++position;
      auto slot = static_cast<uint32_t>((static_cast<uint64_t>(each) * secret) >> shift);
      for (; slots[slot] > base; slot = (slot + 1) & mask) {
        const size_t other = slots[slot] - base - 1;
        if ((other < first.size() ? first[other] : second[other - first.size()]) != each) continue;
        *key = each;
        return true;
      }
      slots[slot] = position;
    }
  }
  return false;
}

}  // namespace

bool AnyRepeated(Span<const Key> first, Span<const Key> second, Key* key) {
  static thread_local Slots kept;
  if (second.empty() ? Ascends(first) : first.empty() && Ascends(second)) return false;
  const size_t keys = first.size() + second.size();
  uint32_t shift = 63;
  while ((size_t{1} << (64 - shift)) < kSlotsPerKey * keys) --shift;
  const size_t slots = size_t{1} << (64 - shift);
  if (slots > kSlots) {
    Vector<uint32_t> own(slots);
    return Find(first, second, own.data(), shift, 0, key);
  }
  if (kept.base > std::numeric_limits<uint32_t>::max() - kSlots) kept = Slots();
  const uint32_t base = kept.base;
  kept.base += static_cast<uint32_t>(keys);
  return Find(first, second, kept.at, shift, base, key);
}

}  // namespace het
