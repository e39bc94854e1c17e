#include "het_tf/core/row/row_format.h"

#include <cstring>

#include "het_tf/core/base/half.h"
#include "het_tf/core/base/names.h"
#include "het_tf/core/row/row_block.h"

namespace het {
namespace {

constexpr uint32_t kExponent = 0x7f800000;
constexpr uint8_t kNoTerm = 255;  // before a single float that is no term

// --- floats after the last block

constexpr uint16_t kWholeFloat = 0xffff;  // four bytes follow; a NaN, which is never an upper half

bool RoundsSingles(RowFormat format) { return format >= RowFormat::kInt8; }
// Whether single floats are terms: 8 bits, or 3 bits of precision.
bool HasTerms(RowFormat format) { return format == RowFormat::kInt4 || format == RowFormat::kInt5; }

// The upper half, rounded to nearest or towards zero; the float itself if it is not finite, or would not be.
uint8_t* PackSingle(float x, bool down, uint8_t* out) {
  const uint32_t bits = FloatBits(x);
  const uint32_t rounded = down ? bits : bits + 0x7fff + (bits >> 16 & 1);
  const bool finite = (bits & kExponent) != kExponent && (rounded & kExponent) != kExponent;
  const bool whole = !finite && ((bits & 0xffff) != 0 || bits >> 16 == kWholeFloat);
  const uint16_t half = whole ? kWholeFloat : static_cast<uint16_t>((finite ? rounded : bits) >> 16);
  std::memcpy(out, &half, sizeof(half));
  if (!whole) return out + sizeof(half);
  std::memcpy(out + sizeof(half), &bits, sizeof(bits));
  return out + sizeof(half) + sizeof(bits);
}

// The upper 11 bits of a float in the range of kLeastTerm.
constexpr uint32_t kTermShift = 21;
constexpr uint32_t kLeastTerm = (127 - 48) << (23 - kTermShift);

uint8_t* PackTerm(float x, bool down, uint8_t* out) {
  const uint32_t bits = FloatBits(x);
  const uint32_t rounded = down ? bits : bits + 0xfffff + (bits >> kTermShift & 1);
  const uint32_t upper = rounded >> kTermShift;
  const bool negative = bits >> 31 != 0;
  if (!negative && upper < kLeastTerm) {
    *out = 0;
    return out + 1;
  }
  const bool fits = !negative && upper - kLeastTerm < kNoTerm - 1;
  *out = fits ? static_cast<uint8_t>(upper - kLeastTerm + 1) : kNoTerm;
  return fits ? out + 1 : PackSingle(x, down, out + 1);
}

float UnpackSingle(Reader* in) {
  const auto half = in->Fixed<uint16_t>();
  return FloatFromBits(half == kWholeFloat ? in->Fixed<uint32_t>() : uint32_t{half} << 16);
}

float UnpackTerm(Reader* in) {
  const auto byte = in->Fixed<uint8_t>();
  if (byte == kNoTerm) return UnpackSingle(in);
  return byte == 0 ? 0 : FloatFromBits((byte - 1 + kLeastTerm) << kTermShift);
}

// --- rows

uint8_t* PackRow(const Rounding& rounding, size_t block, size_t floats, const float* row, uint8_t* out) {
  size_t at = 0;
  for (; at + block <= floats; at += block) {
    if (at > 0 || rounding.format == RowFormat::kFloat16) {
      out = PackSlotBlock(row + at, block, at >= rounding.down_from, out);
    } else {
      out = PackValueBlock(rounding, block, row, out);
    }
  }
  if (RoundsSingles(rounding.format)) {
    const auto pack = HasTerms(rounding.format) ? &PackTerm : &PackSingle;
    for (; at < floats; ++at) out = pack(row[at], at >= rounding.down_from, out);
  } else if (at < floats) {
    std::memcpy(out, row + at, (floats - at) * sizeof(float));
    out += (floats - at) * sizeof(float);
  }
  return out;
}

// The bytes of a row, by those of its first block, of an element of others, and of a single float.
size_t RowBytes(size_t block, size_t floats, size_t first, size_t other, size_t single) {
  const size_t blocks = floats / block;
  const size_t of_blocks = blocks == 0 ? 0 : blocks + first + (blocks - 1) * block * other;
  return of_blocks + floats % block * single;
}

constexpr std::array kNames = {"float32", "float16", "int8", "int4"};  // but kInt5

}  // namespace

const char* RowFormatName(RowFormat format) {
  return format == RowFormat::kInt5 ? "int5" : kNames[static_cast<size_t>(format)];
}

Result<RowFormat> ParseRowFormat(const std::string& name) {
  return ParseName<RowFormat>("wire", kNames, name);
}

size_t MostRowBytes(RowFormat format, size_t block, size_t floats) {
  if (format == RowFormat::kFloat32 || block == 0) return floats * sizeof(float);
  const size_t single = HasTerms(format) ? 7 : format == RowFormat::kInt8 ? 6 : sizeof(float);
  return RowBytes(block, floats, block * sizeof(float), sizeof(float), single);
}

size_t LeastRowBytes(RowFormat format, size_t block, size_t floats) {
  if (format == RowFormat::kFloat32 || block == 0) return floats * sizeof(float);
  const size_t value = LeastValueBytes(format, block);
  const size_t single = HasTerms(format) ? 1 : format == RowFormat::kInt8 ? 2 : sizeof(float);
  return RowBytes(block, floats, value, 2, single);
}

void PackRows(const Rounding& rounding, size_t block, size_t floats, const float* const* rows, size_t n,
              Writer* out) {
  const size_t most = n * MostRowBytes(rounding.format, block, floats);
  uint8_t* const begin = out->Append(most);
  uint8_t* at = begin;
  for (size_t i = 0; i < n; ++i) {
    if (rounding.format != RowFormat::kFloat32) {
      at = PackRow(rounding, block, floats, rows[i], at);
    } else if (most > 0) {  // without floats the pointer may be null
      std::memcpy(at, rows[i], floats * sizeof(float));
      at += floats * sizeof(float);
    }
  }
  out->TakeBack(most - static_cast<size_t>(at - begin));
}

bool UnpackRow(RowFormat format, size_t block, size_t floats, Reader* in, float* row) {
  size_t at = 0;
  for (; format != RowFormat::kFloat32 && at + block <= floats; at += block) {
    const bool read =
        at > 0 ? UnpackSlotBlock(block, in, row + at) : UnpackValueBlock(format, block, in, row + at);
    if (!read) return false;
  }
  if (RoundsSingles(format)) {
    const auto unpack = HasTerms(format) ? &UnpackTerm : &UnpackSingle;
    for (; at < floats; ++at) row[at] = unpack(in);
    return in->ok();
  }
  const uint8_t* const single = in->Raw((floats - at) * sizeof(float));
  if (single != nullptr && at < floats) std::memcpy(row + at, single, (floats - at) * sizeof(float));
  return single != nullptr;
}

bool UnpackRows(RowFormat format, size_t block, size_t floats, size_t n, Reader* in, Vector<float>* rows) {
  if (format != RowFormat::kFloat32 && block == 0) return false;
  const size_t least = LeastRowBytes(format, block, floats);
  if (!in->ok() || (least != 0 && n > in->left() / least)) return false;
  rows->resize(n * floats);
  if (format == RowFormat::kFloat32) return UnpackRow(format, 0, rows->size(), in, rows->data());
  for (size_t i = 0; i < n; ++i) {
    if (!UnpackRow(format, block, floats, in, rows->data() + i * floats)) return false;
  }
  return true;
}

}  // namespace het
