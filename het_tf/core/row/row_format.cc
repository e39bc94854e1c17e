#include "het_tf/core/row/row_format.h"

#include <algorithm>
#include <cstring>

#include "het_tf/core/row/row_block.h"

namespace het {
namespace {

constexpr uint8_t kLarger = 0;  // in place of integers: a block of the next larger kind
bool HalvesAre(const uint8_t* halves, size_t n, float unit, const float* x) {
  float back[blocks::kPiece];
  for (size_t i = 0; i < n; i += blocks::kPiece) {
    const size_t piece = std::min(blocks::kPiece, n - i);
    blocks::FromHalves(halves + 2 * i, piece, unit, back);
    if (std::memcmp(back, x + i, piece * sizeof(float)) != 0) return false;
  }
  return true;
}

template <int kBits>
bool IntegersAre(const uint8_t* integers, size_t n, float unit, const float* x) {
  float back[blocks::kPiece];
  for (size_t i = 0; i < n; i += blocks::kPiece) {
    const size_t piece = std::min(blocks::kPiece, n - i);
    blocks::FromIntegers<kBits>(integers + blocks::IntegerBytes<kBits>(i), piece, unit, back);
    if (std::memcmp(back, x + i, piece * sizeof(float)) != 0) return false;
  }
  return true;
}

uint8_t* PutFloats(const float* x, size_t n, uint8_t* out) {
  *out = blocks::kFloats;
  std::memcpy(out + 1, x, n * sizeof(float));
  return out + 1 + n * sizeof(float);
}

// Writes halves if they lose nothing or losses are allowed. Returns null otherwise, with undefined bytes at
// `out`, at most 1 + 2 * n.
uint8_t* TryHalves(const float* x, size_t n, bool exact, uint8_t* out) {
  const uint8_t byte = blocks::HalfByte(blocks::LargestBits(x, n), /*down=*/false);
  if (byte == blocks::kFloats) return nullptr;
  *out = byte;
  blocks::ToHalves<false>(x, n, blocks::Inverse(byte), out + 1);
  if (exact && !HalvesAre(out + 1, n, blocks::Unit(byte), x)) return nullptr;
  return out + 1 + 2 * n;
}

// Writes a block and returns its end. `exact`: as small as possible without a loss; else rounded.
uint8_t* PackHalves(const float* x, size_t n, bool exact, uint8_t* out) {
  uint8_t* const end = TryHalves(x, n, exact, out);
  return end != nullptr ? end : PutFloats(x, n, out);
}

// Writes integers of kBits bits, if they lose nothing or losses are allowed; else the next larger kind. Null:
// floats are needed.
template <int kBits>
uint8_t* TryIntegers(const float* x, size_t n, bool exact, uint8_t* out) {
  const uint8_t byte = blocks::IntegerByte<kBits>(blocks::LargestBits(x, n));
  if (byte == blocks::kFloats) return nullptr;
  *out = byte;
  blocks::ToIntegers<kBits>(x, n, blocks::Inverse(byte), out + 1);
  if (!exact || IntegersAre<kBits>(out + 1, n, blocks::Unit(byte), x))
    return out + 1 + blocks::IntegerBytes<kBits>(n);
  *out = kLarger;
  return kBits == 4 ? TryIntegers<8>(x, n, true, out + 1) : TryHalves(x, n, true, out + 1);
}

template <int kBits>
uint8_t* PackIntegers(const float* x, size_t n, bool exact, uint8_t* out) {
  uint8_t* const end = TryIntegers<kBits>(x, n, exact, out);
  return end != nullptr ? end : PutFloats(x, n, out);
}

constexpr uint16_t kWholeFloat = 0xffff;  // four bytes follow; a NaN, which is never an upper half

uint8_t* PackSingle(float x, bool exact, uint8_t* out) {
  const uint32_t bits = FloatBits(exact ? x : blocks::RoundSingle(x, /*down=*/false));
  const bool whole = (bits & 0xffff) != 0 || bits >> 16 == kWholeFloat;
  const uint16_t half = whole ? kWholeFloat : static_cast<uint16_t>(bits >> 16);
  std::memcpy(out, &half, sizeof(half));
  if (!whole) return out + sizeof(half);
  std::memcpy(out + sizeof(half), &bits, sizeof(bits));
  return out + sizeof(half) + sizeof(bits);
}

bool UnpackSingle(Reader* in, float* x) {
  const auto half = in->Fixed<uint16_t>();
  *x = FloatFromBits(half == kWholeFloat ? in->Fixed<uint32_t>() : uint32_t{half} << 16);
  return in->ok();
}

uint8_t* PackRow(RowFormat format, size_t block, size_t floats, const float* row, bool exact, uint8_t* out) {
  size_t at = 0;
  for (; at + block <= floats; at += block) {
    if (at > 0 || format == RowFormat::kFloat16) {
      out = PackHalves(row + at, block, exact, out);
    } else {
      out = format == RowFormat::kInt4 ? PackIntegers<4>(row, block, exact, out)
                                       : PackIntegers<8>(row, block, exact, out);
    }
  }
  if (!blocks::RoundsSingles(format)) {
    if (at < floats) std::memcpy(out, row + at, (floats - at) * sizeof(float));
    return out + (floats - at) * sizeof(float);
  }
  for (; at < floats; ++at) out = PackSingle(row[at], exact, out);
  return out;
}

// Reads a block of elements of kBits bits. Returns false if it is cut off or its byte is invalid. kInstead:
// in place of smaller ones, where floats are not allowed.
template <int kBits, bool kInstead = false>
bool UnpackBlock(size_t n, Reader* in, float* out) {
  const uint8_t byte = in->Fixed<uint8_t>();
  if (byte == blocks::kFloats) {
    if (kInstead) return false;
    const uint8_t* floats = in->Raw(n * sizeof(float));
    if (floats != nullptr) std::memcpy(out, floats, n * sizeof(float));
    return floats != nullptr;
  }
  if (byte == kLarger) {
    if constexpr (kBits == 16) return false;
    if constexpr (kBits < 16) return UnpackBlock<2 * kBits, true>(n, in, out);
  }
  const uint8_t* elements = in->Raw(kBits == 16 ? 2 * n : blocks::IntegerBytes<kBits>(n));
  if (elements == nullptr) return false;
  if constexpr (kBits == 16) {
    blocks::FromHalves(elements, n, blocks::Unit(byte), out);
  } else {
    blocks::FromIntegers<kBits>(elements, n, blocks::Unit(byte), out);
  }
  return true;
}

// The bytes of a row whose first block has `first` bytes, the others `other` an element, and single floats
// `single` each.
size_t RowBytes(size_t block, size_t floats, size_t first, size_t other, size_t single) {
  const size_t blocks = floats / block;
  const size_t of_blocks = blocks == 0 ? 0 : blocks + first + (blocks - 1) * block * other;
  return of_blocks + floats % block * single;
}

}  // namespace

const char* RowFormatName(RowFormat format) {
  switch (format) {
    case RowFormat::kFloat32:
      return "float32";
    case RowFormat::kFloat16:
      return "float16";
    case RowFormat::kInt8:
      return "int8";
    case RowFormat::kInt4:
      return "int4";
  }
  return "unknown";
}

Result<RowFormat> ParseRowFormat(const std::string& name) {
  for (uint8_t format = 0; IsRowFormat(format); ++format) {
    if (name == RowFormatName(static_cast<RowFormat>(format))) return static_cast<RowFormat>(format);
  }
  return InvalidArgument("wire is '" + name + "'; it must be 'float32', 'float16', 'int8' or 'int4'");
}

size_t MostRowBytes(RowFormat format, size_t block, size_t floats) {
  if (format == RowFormat::kFloat32 || block == 0) return floats * sizeof(float);
  return RowBytes(block, floats, block * sizeof(float), sizeof(float),
                  blocks::RoundsSingles(format) ? sizeof(uint16_t) + sizeof(float) : sizeof(float));
}

size_t LeastRowBytes(RowFormat format, size_t block, size_t floats) {
  if (format == RowFormat::kFloat32 || block == 0) return floats * sizeof(float);
  const size_t bits = format == RowFormat::kInt4 ? 4 : format == RowFormat::kInt8 ? 8 : 16;
  return RowBytes(block, floats, (block * bits + 7) / 8, 2,
                  blocks::RoundsSingles(format) ? sizeof(uint16_t) : sizeof(float));
}

void PackRows(RowFormat format, size_t block, size_t floats, const float* rows, size_t n, Writer* out) {
  if (format == RowFormat::kFloat32) return out->Raw(rows, n * floats * sizeof(float));
  const size_t most = n * MostRowBytes(format, block, floats);
  uint8_t* const begin = out->Append(most);
  uint8_t* at = begin;
  for (size_t i = 0; i < n; ++i) at = PackRow(format, block, floats, rows + i * floats, true, at);
  out->TakeBack(most - static_cast<size_t>(at - begin));
}

void PackRounded(RowFormat format, size_t block, size_t floats, const float* const* rows, size_t n,
                 Writer* out) {
  const size_t most = n * MostRowBytes(format, block, floats);
  uint8_t* const begin = out->Append(most);
  uint8_t* at = begin;
  for (size_t i = 0; i < n; ++i) {
    if (format != RowFormat::kFloat32) {
      at = PackRow(format, block, floats, rows[i], false, at);
    } else if (most > 0) {  // without floats the pointer may be null
      std::memcpy(at, rows[i], floats * sizeof(float));
      at += floats * sizeof(float);
    }
  }
  out->TakeBack(most - static_cast<size_t>(at - begin));
}

bool UnpackRows(RowFormat format, size_t block, size_t floats, size_t n, Reader* in, Vector<float>* rows) {
  if (format != RowFormat::kFloat32 && block == 0) return false;
  const size_t least = LeastRowBytes(format, block, floats);
  if (!in->ok() || (least != 0 && n > in->left() / least)) return false;
  rows->resize(n * floats);
  if (format == RowFormat::kFloat32) {
    const uint8_t* bytes = in->Raw(rows->size() * sizeof(float));
    if (!rows->empty()) std::memcpy(rows->data(), bytes, rows->size() * sizeof(float));
    return true;
  }
  for (size_t i = 0; i < n; ++i) {
    float* const row = rows->data() + i * floats;
    size_t at = 0;
    for (; at + block <= floats; at += block) {
      const auto unpack = at > 0 || format == RowFormat::kFloat16 ? &UnpackBlock<16>
                          : format == RowFormat::kInt4            ? &UnpackBlock<4>
                                                                  : &UnpackBlock<8>;
      if (!unpack(block, in, row + at)) return false;
    }
    if (blocks::RoundsSingles(format)) {
      for (; at < floats; ++at) {
        if (!UnpackSingle(in, row + at)) return false;
      }
    } else {
      const uint8_t* single = in->Raw((floats - at) * sizeof(float));
      if (single == nullptr) return false;
      if (at < floats) std::memcpy(row + at, single, (floats - at) * sizeof(float));
    }
  }
  return true;
}

}  // namespace het
