#include "het_tf/core/row/stored_format.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "het_tf/core/base/half.h"

namespace het {
namespace {

constexpr uint32_t kMagnitude = 0x7fffffff;
constexpr uint8_t kInfinite = 255;  // a scale
constexpr int32_t kNotANumber = -128;
constexpr int32_t kMost = 127;
constexpr const char* kStoredNames[] = {"float32", "bfloat16", "int8"};

// Random bits for the numbers of a row.
class Draws {
 public:
  explicit Draws(uint64_t draw)
      : seed_(static_cast<uint32_t>(draw >> 32)), step_(static_cast<uint32_t>(draw) | 1) {}
  // 16 of them for number i: the finalizer of MurmurHash3, whose 32-bit operations become SIMD code.
  uint32_t operator()(size_t i) const {
    uint32_t x = seed_ + static_cast<uint32_t>(i) * step_;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x >> 16;
  }

 private:
  uint32_t seed_, step_;
};

// The loops below work on some numbers at a time, without branches: they become SIMD code.
constexpr size_t kAtOnce = 64;

template <bool kNearest>
void SomeBfloats(const float* x, size_t first, size_t n, const Draws& draws, uint16_t* out) {
  for (size_t i = 0; i < n; ++i) {
    const uint32_t bits = FloatBits(x[first + i]);
    const uint32_t rounded = bits + (kNearest ? 0x7fff + (bits >> 16 & 1) : draws(first + i));
    const bool overflows = (rounded & kInfinity) == kInfinity && (bits & kInfinity) != kInfinity;
    const bool nan = (bits & kMagnitude) > kInfinity;
    const uint32_t kept = overflows ? bits : rounded;
    out[i] = static_cast<uint16_t>((nan ? bits | 0x400000 : kept) >> 16);  // a quiet NaN
  }
}

float FromBfloat(uint16_t bits) { return FloatFromBits(static_cast<uint32_t>(bits) << 16); }

// Calls put(first, n, numbers) for some at a time.
template <typename Put>
void ToBfloats(const float* x, size_t n, uint64_t draw, Put put) {
  uint16_t some[kAtOnce];
  const Draws draws(draw);
  for (size_t first = 0; first < n; first += kAtOnce) {
    const size_t count = std::min(kAtOnce, n - first);
    draw == 0 ? SomeBfloats<true>(x, first, count, draws, some)
              : SomeBfloats<false>(x, first, count, draws, some);
    put(first, count, some);
  }
}

void RoundBfloats(float* x, size_t n, uint64_t draw) {
  ToBfloats(x, n, draw, [x](size_t first, size_t count, const uint16_t* numbers) {
    for (size_t i = 0; i < count; ++i) x[first + i] = FromBfloat(numbers[i]);
  });
}

// Reads n numbers from any address.
void FromBfloats(const uint8_t* bytes, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, bytes + 2 * i, sizeof bits);
    out[i] = FromBfloat(bits);
  }
}

// The integer of x / unit. 128 makes it positive, so that cutting off is the floor. (Nearest gives whole
// numbers.)
template <bool kNearest>
int8_t ToInteger(float x, float inverse, int32_t top, uint32_t draw) {
  const float up = kNearest
                       ? Nearest(x * inverse) + 128.0f
                       : x * inverse + 128.0f + static_cast<float>(static_cast<int32_t>(draw)) * 0x1p-16f;
  const int32_t whole = static_cast<int32_t>(up) - 128;
  return static_cast<int8_t>(whole > top ? top : whole < -top ? -top : whole);
}

// Writes integers, and returns their scale. kInfinite: they stand for numbers that are not finite.
uint8_t ToIntegers(const float* x, size_t n, uint64_t draw, int8_t* out) {
  const auto magnitude = [x](size_t i) { return FloatBits(x[i]) & kMagnitude; };
  uint32_t largest = 0;
  for (size_t i = 0; i < n; ++i) largest = std::max(largest, magnitude(i));
  const bool finite = largest < kInfinity;
  bool infinite = false;
  if (!finite) largest = 0;
  for (size_t i = 0; !finite && i < n; ++i) {
    infinite = infinite || magnitude(i) == kInfinity;
    if (magnitude(i) < kInfinity) largest = std::max(largest, magnitude(i));
  }
  for (size_t i = 0; infinite && i < n; ++i) {
    const int32_t whole = magnitude(i) == kInfinity ? (x[i] > 0 ? kMost : -kMost) : 0;
    out[i] = static_cast<int8_t>(magnitude(i) > kInfinity ? kNotANumber : whole);
  }
  if (infinite) return kInfinite;
  // Of exponent e: integers up to 127 with e - 6, unless the fraction is above 63/64.
  const uint32_t coarse = (largest >> 23) + ((largest & 0x7fffff) > 0x7e0000 ? 1 : 0);
  const auto scale = static_cast<uint8_t>(coarse > 6 ? coarse - 6 : 1);
  const float inverse = InverseOf(scale);
  const int32_t top = coarse == 255 ? kMost / 2 : kMost;  // 64 would be infinite
  const Draws draws(draw);
  if (!finite) {
    for (size_t i = 0; i < n; ++i) {
      out[i] = magnitude(i) > kInfinity ? static_cast<int8_t>(kNotANumber)
               : draw == 0              ? ToInteger<true>(x[i], inverse, top, 0)
                                        : ToInteger<false>(x[i], inverse, top, draws(i));
    }
  } else if (draw == 0) {
    for (size_t i = 0; i < n; ++i) out[i] = ToInteger<true>(x[i], inverse, top, 0);
  } else {
    for (size_t i = 0; i < n; ++i) out[i] = ToInteger<false>(x[i], inverse, top, draws(i));
  }
  int32_t most = 0;
  for (size_t i = 0; i < n; ++i) {
    const int32_t whole = out[i];
    most = std::max(most, whole == kNotANumber ? 0 : std::abs(whole));
  }
  // 63.5 may have become 63: twice that fits, with a scale of half.
  const bool twice = scale > 1 && most < 64;
  for (size_t i = 0; twice && i < n; ++i) {
    if (out[i] != kNotANumber) out[i] = static_cast<int8_t>(2 * out[i]);
  }
  return static_cast<uint8_t>(scale - twice);
}

void FromIntegers(const int8_t* in, size_t n, uint8_t scale, float* out) {
  if (scale == kInfinite) {
    for (size_t i = 0; i < n; ++i) out[i] = in[i] == 0 ? 0 : static_cast<float>(in[i]) * ScaleOf(kInfinite);
  } else {
    const float unit = ScaleOf(scale);
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(in[i]) * unit;
  }
  for (size_t i = 0; i < n; ++i) out[i] = in[i] == kNotANumber ? FloatFromBits(0x7fc00000) : out[i];
}

uint64_t DrawOfSlot(uint64_t draw, size_t slot) { return draw == 0 ? 0 : Mix64(draw + slot) | 1; }

}  // namespace

const char* StoredName(Stored stored) { return kStoredNames[static_cast<size_t>(stored)]; }

Result<Stored> ParseStored(const std::string& name) {
  for (size_t i = 0; i < std::size(kStoredNames); ++i) {
    if (name == kStoredNames[i]) return static_cast<Stored>(i);
  }
  return InvalidArgument("stored is '" + name + "'; give 'float32', 'bfloat16' or 'int8'");
}

Status StoredFormat::Check(Stored stored, const Optimizer& optimizer) {
  const std::string as = std::string("stored is '") + StoredName(stored) + "'";
  if (stored != Stored::kFloat32 && optimizer.value_is_derived()) {
    return InvalidArgument(
        as +
        ", and the optimizer computes each value from the slots: rounded ones would move it "
        "at random. Give 'float32', or another optimizer");
  }
  if (stored == Stored::kInt8 && optimizer.dim() == 1) {
    return InvalidArgument(as + " and dim 1: each number would need a scale. Give 'bfloat16'");
  }
  return Status();
}

StoredFormat::StoredFormat(Stored stored, const Optimizer& optimizer)
    : stored_(stored), dim_(optimizer.dim()), words_(optimizer.row_floats()) {
  if (exact()) return;
  uint32_t at = static_cast<uint32_t>(dim_);
  for (size_t slot = 0; slot < optimizer.slots().size(); ++slot) {
    (optimizer.slots()[slot].per_element ? wides_ : singles_).push_back(at);
    at += static_cast<uint32_t>(optimizer.slot_floats(slot));
  }
  const size_t value = stored == Stored::kInt8 ? dim_ + 1 : 2 * dim_;  // with the scale
  words_ = singles_.size() + (value + 2 * dim_ * wides_.size() + 3) / 4;
}

void StoredFormat::ReadValue(const float* words, float* value) const {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(words + singles_.size());
  if (stored_ == Stored::kBfloat16) return FromBfloats(bytes, dim_, value);
  FromIntegers(reinterpret_cast<const int8_t*>(bytes), dim_, bytes[dim_ + 2 * dim_ * wides_.size()], value);
}

void StoredFormat::Read(const float* words, float* row) const {
  ReadValue(words, row);
  for (size_t i = 0; i < singles_.size(); ++i) row[singles_[i]] = words[i];
  const auto* bytes = reinterpret_cast<const uint8_t*>(words + singles_.size());
  bytes += stored_ == Stored::kInt8 ? dim_ : 2 * dim_;
  for (const uint32_t at : wides_) {
    FromBfloats(bytes, dim_, row + at);
    bytes += 2 * dim_;
  }
}

void StoredFormat::Write(const float* row, uint64_t draw, float* words) const {
  words[words_ - 1] = 0;
  for (size_t i = 0; i < singles_.size(); ++i) words[i] = row[singles_[i]];
  auto* bytes = reinterpret_cast<uint8_t*>(words + singles_.size());
  const auto put = [&bytes](size_t first, size_t n, const uint16_t* numbers) {
    std::memcpy(bytes + 2 * first, numbers, 2 * n);
  };
  uint8_t scale = 0;
  if (stored_ == Stored::kBfloat16) {
    ToBfloats(row, dim_, draw, put);
    bytes += 2 * dim_;
  } else {
    scale = ToIntegers(row, dim_, draw, reinterpret_cast<int8_t*>(bytes));
    bytes += dim_;
  }
  for (size_t slot = 0; slot < wides_.size(); ++slot, bytes += 2 * dim_) {
    ToBfloats(row + wides_[slot], dim_, DrawOfSlot(draw, slot), put);
  }
  if (stored_ == Stored::kInt8) *bytes = scale;
}

void StoredFormat::RoundValue(uint64_t draw, float* value) const {
  if (stored_ == Stored::kBfloat16) return RoundBfloats(value, dim_, draw);
  int8_t integers[kMostDim];  // on the stack: a push must not fail here
  const uint8_t scale = ToIntegers(value, dim_, draw, integers);
  FromIntegers(integers, dim_, scale, value);
}

void StoredFormat::Round(uint64_t draw, float* row) const {
  RoundValue(draw, row);
  for (size_t slot = 0; slot < wides_.size(); ++slot) {
    RoundBfloats(row + wides_[slot], dim_, DrawOfSlot(draw, slot));
  }
}

}  // namespace het
