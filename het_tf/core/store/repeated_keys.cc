#include "het_tf/core/store/repeated_keys.h"

#include <limits>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/store/local_service.h"

namespace het {
namespace {

constexpr size_t kSlotsPerKey = 4;
constexpr size_t kSlots = 4096;  // of the reused table

// An open-addressing set of positions in the two lists. A slot holds `base` + position + 1; a value of at
// most `base` is from an earlier call, so nothing is cleared between calls.
struct Slots {
  uint32_t at[kSlots];
  uint32_t base;
};

bool Ascends(Span<const Key> keys) {
  const Key* at = keys.begin();
  const Key* const end = keys.end();
  if (at == end) return true;
  Key before = *at++;
  for (; end - at >= 4; at += 4) {  // half of the time is the loop's
    if (before >= at[0] || at[0] >= at[1] || at[1] >= at[2] || at[2] >= at[3]) return false;
    before = at[3];
  }
  for (; at != end; before = *at++) {
    if (before >= *at) return false;
  }
  return true;
}

// The set and its base.
class Positions {
 public:
  Positions(Span<const Key> first, Span<const Key> second, uint32_t* slots, uint32_t shift, uint32_t base)
      : first_(first), second_(second), slots_(slots), shift_(shift), base_(base), last_(base) {}

  // Returns false if one of them, *key, is in the set already.
  bool Add(Span<const Key> keys, Key* key) {
    // Multiplies by a number that only this process knows.
    static const uint64_t secret = RandomId() | 1;
    const uint64_t factor = secret;
    uint32_t* const slots = slots_;
    const uint32_t shift = shift_;
    const uint32_t base = base_;
    uint32_t position = last_;
    for (const Key* at = keys.begin(); at != keys.end(); ++at) {
      uint64_t slot = (static_cast<uint64_t>(*at) * factor) >> shift;
      while (slots[slot] > base) {
        if (KeyAt(slots[slot]) == *at) {
          *key = *at;
          return false;
        }
        slot = (slot + 1) & ((uint64_t{1} << (64 - shift)) - 1);
      }
      slots[slot] = ++position;
    }
    last_ = position;
    return true;
  }

 private:
  Key KeyAt(uint32_t position) const {
    const size_t i = position - base_ - 1;
    return i < first_.size() ? first_[i] : second_[i - first_.size()];
  }

  const Span<const Key> first_;
  const Span<const Key> second_;
  uint32_t* const slots_;
  const uint32_t shift_;
  const uint32_t base_;
  uint32_t last_;
};

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
    Positions positions(first, second, own.data(), shift, 0);
    return !positions.Add(first, key) || !positions.Add(second, key);
  }
  if (kept.base > std::numeric_limits<uint32_t>::max() - kSlots) kept = Slots();
  const uint32_t base = kept.base;
  kept.base += static_cast<uint32_t>(keys);
  Positions positions(first, second, kept.at, shift, base);
  return !positions.Add(first, key) || !positions.Add(second, key);
}

}  // namespace het
