#include "het_tf/core/row/stored_format.h"

#include <algorithm>
#include <cstring>

#include "het_tf/core/base/half.h"

namespace het {
namespace {

constexpr uint32_t kMagnitude = 0x7fffffff;
constexpr uint8_t kInfinite = 255;  // a scale
constexpr int32_t kNotANumber = -128;
constexpr int32_t kMost = 127;
constexpr const char* kStoredNames[] = {"float32", "bfloat16", "int8"};

// Calls fn(i, bits) for each i below n, with 16 random bits.
template <typename Fn>
void ForDraws(uint64_t draw, size_t n, Fn fn) {
  for (size_t i = 0; i < n; i += 4) {
    uint64_t bits = Mix64(draw + i * 0x9e3779b97f4a7c15ULL);
    for (size_t j = i; j < std::min(i + 4, n); ++j, bits >>= 16) fn(j, static_cast<uint32_t>(bits & 0xffff));
  }
}

// `bits`: of x; `up`: what is added to the lower half, which is then cut off.
uint16_t ToBfloat(uint32_t bits, uint32_t up) {
  if ((bits & kMagnitude) > kInfinity) return static_cast<uint16_t>(bits >> 16 | 0x40);  // a quiet NaN
  const uint32_t rounded = bits + up;
  const bool overflows = (rounded & kInfinity) == kInfinity && (bits & kInfinity) != kInfinity;
  return static_cast<uint16_t>((overflows ? bits : rounded) >> 16);
}

float FromBfloat(uint16_t bits) { return FloatFromBits(static_cast<uint32_t>(bits) << 16); }

// Calls put(i, number) for each.
template <typename Put>
void ToBfloats(const float* x, size_t n, uint64_t draw, Put put) {
  if (draw == 0) {
    for (size_t i = 0; i < n; ++i) {
      const uint32_t bits = FloatBits(x[i]);
      put(i, ToBfloat(bits, 0x7fff + (bits >> 16 & 1)));
    }
    return;
  }
  ForDraws(draw, n, [&](size_t i, uint32_t bits) { put(i, ToBfloat(FloatBits(x[i]), bits)); });
}

// Calls put(i, integer) for each, and returns their scale; kInfinite: integers stand for what is not finite.
template <typename Put>
uint8_t ToIntegers(const float* x, size_t n, uint64_t draw, Put put) {
  uint32_t largest = 0;  // of the finite numbers
  bool finite = true;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t magnitude = FloatBits(x[i]) & kMagnitude;
    finite = finite && magnitude != kInfinity;
    largest = std::max(largest, magnitude < kInfinity ? magnitude : 0);
  }
  if (!finite) {
    for (size_t i = 0; i < n; ++i) {
      const uint32_t magnitude = FloatBits(x[i]) & kMagnitude;
      put(i, magnitude > kInfinity ? kNotANumber : magnitude == kInfinity ? (x[i] > 0 ? kMost : -kMost) : 0);
    }
    return kInfinite;
  }
  // Of exponent e: integers up to 127 with e - 6, unless the fraction is above 63/64.
  const uint32_t coarse = (largest >> 23) + ((largest & 0x7fffff) > 0x7e0000 ? 1 : 0);
  const auto scale = static_cast<uint8_t>(coarse > 6 ? coarse - 6 : 1);
  const float inverse = InversePower(scale);
  const int32_t top = coarse == 255 ? kMost / 2 : kMost;  // 64 would be infinite
  const auto give = [&](size_t i, float whole) {
    put(i, whole == whole ? std::clamp(static_cast<int32_t>(whole), -top, top) : kNotANumber);
  };
  if (draw == 0) {
    for (size_t i = 0; i < n; ++i) give(i, Nearest(x[i] * inverse));
  } else {
    // A whole number from 0 on is cut off as its floor; 128 is above every fraction that is added.
    ForDraws(draw, n, [&](size_t i, uint32_t bits) {
      const float up = x[i] * inverse + 128.0f + static_cast<float>(bits) * 0x1p-16f;
      give(i, up == up ? static_cast<float>(static_cast<int32_t>(up) - 128) : up);
    });
  }
  return scale;
}

float FromInteger(int32_t integer, uint8_t scale) {
  if (integer == kNotANumber) return FloatFromBits(0x7fc00000);
  return scale == kInfinite && integer == 0 ? 0 : static_cast<float>(integer) * PowerOfTwo(scale);
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
  if (stored_ == Stored::kBfloat16) {
    for (size_t i = 0; i < dim_; ++i) {
      uint16_t bits;
      std::memcpy(&bits, bytes + 2 * i, sizeof bits);
      value[i] = FromBfloat(bits);
    }
    return;
  }
  const uint8_t scale = bytes[dim_ + 2 * dim_ * wides_.size()];
  for (size_t i = 0; i < dim_; ++i) value[i] = FromInteger(static_cast<int8_t>(bytes[i]), scale);
}

void StoredFormat::Read(const float* words, float* row) const {
  ReadValue(words, row);
  for (size_t i = 0; i < singles_.size(); ++i) row[singles_[i]] = words[i];
  const auto* bytes = reinterpret_cast<const uint8_t*>(words + singles_.size());
  bytes += stored_ == Stored::kInt8 ? dim_ : 2 * dim_;
  for (const uint32_t at : wides_) {
    for (size_t i = 0; i < dim_; ++i, bytes += 2) {
      uint16_t bits;
      std::memcpy(&bits, bytes, sizeof bits);
      row[at + i] = FromBfloat(bits);
    }
  }
}

void StoredFormat::Write(const float* row, uint64_t draw, float* words) const {
  words[words_ - 1] = 0;
  for (size_t i = 0; i < singles_.size(); ++i) words[i] = row[singles_[i]];
  auto* bytes = reinterpret_cast<uint8_t*>(words + singles_.size());
  const auto put = [&bytes](size_t i, uint16_t bits) { std::memcpy(bytes + 2 * i, &bits, sizeof bits); };
  uint8_t scale = 0;
  if (stored_ == Stored::kBfloat16) {
    ToBfloats(row, dim_, draw, put);
    bytes += 2 * dim_;
  } else {
    int32_t most = 0;
    scale = ToIntegers(row, dim_, draw, [&](size_t i, int32_t integer) {
      if (integer != kNotANumber) most = std::max(most, integer < 0 ? -integer : integer);
      bytes[i] = static_cast<uint8_t>(integer);
    });
    // 63.5 may have become 63: twice that fits, with a scale of half.
    const bool twice = scale > 1 && most < 64;
    for (size_t i = 0; twice && i < dim_; ++i) {
      if (static_cast<int8_t>(bytes[i]) != kNotANumber) bytes[i] = static_cast<uint8_t>(2 * bytes[i]);
    }
    scale = static_cast<uint8_t>(scale - twice);
    bytes += dim_;
  }
  for (size_t slot = 0; slot < wides_.size(); ++slot, bytes += 2 * dim_) {
    ToBfloats(row + wides_[slot], dim_, DrawOfSlot(draw, slot), put);
  }
  if (stored_ == Stored::kInt8) *bytes = scale;
}

void StoredFormat::RoundValue(uint64_t draw, float* value) const {
  if (stored_ == Stored::kBfloat16) {
    ToBfloats(value, dim_, draw, [value](size_t i, uint16_t bits) { value[i] = FromBfloat(bits); });
    return;
  }
  // The floats keep the integers until the scale is known.
  const uint8_t scale = ToIntegers(
      value, dim_, draw, [value](size_t i, int32_t integer) { value[i] = static_cast<float>(integer); });
  for (size_t i = 0; i < dim_; ++i) value[i] = FromInteger(static_cast<int32_t>(value[i]), scale);
}

void StoredFormat::Round(uint64_t draw, float* row) const {
  RoundValue(draw, row);
  for (size_t slot = 0; slot < wides_.size(); ++slot) {
    float* const x = row + wides_[slot];
    ToBfloats(x, dim_, DrawOfSlot(draw, slot), [x](size_t i, uint16_t bits) { x[i] = FromBfloat(bits); });
  }
}

}  // namespace het
