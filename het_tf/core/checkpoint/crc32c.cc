#include "het_tf/core/checkpoint/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace het {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;

// A checksum as a column vector of bits: appending a zero bit multiplies it by one 32x32 matrix over GF(2).
using Matrix = std::array<uint32_t, 32>;

uint32_t Times(const Matrix& matrix, uint32_t vector) {
  uint32_t sum = 0;
  for (size_t i = 0; vector != 0; ++i, vector >>= 1) sum ^= (vector & 1) != 0 ? matrix[i] : 0;
  return sum;
}

// Appending so many zero bytes, as four tables of one byte each.
class ZeroBytes {
 public:
  explicit ZeroBytes(size_t bytes) {
    Matrix one;  // one zero bit
    one[0] = kPolynomial;
    for (size_t i = 1; i < 32; ++i) one[i] = uint32_t{1} << (i - 1);
    Matrix all;
    for (size_t i = 0; i < 32; ++i) all[i] = uint32_t{1} << i;
    for (size_t bits = 8 * bytes; bits != 0; bits >>= 1) {
      if ((bits & 1) != 0) {
        for (uint32_t& column : all) column = Times(one, column);
      }
      Matrix twice;
      for (size_t i = 0; i < 32; ++i) twice[i] = Times(one, one[i]);
      one = twice;
    }
    for (uint32_t byte = 0; byte < 256; ++byte) {
      for (uint32_t i = 0; i < 4; ++i) table_[i][byte] = Times(all, byte << (8 * i));
    }
  }
  uint32_t After(uint32_t crc) const {
    return table_[0][crc & 0xff] ^ table_[1][(crc >> 8) & 0xff] ^ table_[2][(crc >> 16) & 0xff] ^
           table_[3][crc >> 24];
  }

 private:
  uint32_t table_[4][256];
};

using ByteTables = std::array<std::array<uint32_t, 256>, 8>;

ByteTables MakeTables() {
  ByteTables tables;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ kPolynomial : crc >> 1;
    tables[0][byte] = crc;
  }
  for (size_t t = 1; t < 8; ++t) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[t - 1][byte];
      tables[t][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

#if defined(__x86_64__)

uint64_t Word(const uint8_t* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

// The instruction takes three cycles, but one can begin in each: three runs side by side, joined afterwards.
constexpr size_t kRun = 4096;

__attribute__((target("sse4.2"))) uint32_t WithInstruction(uint32_t crc, const uint8_t* at, size_t size) {
  static const ZeroBytes* const run = new ZeroBytes(kRun);
  static const ZeroBytes* const two_runs = new ZeroBytes(2 * kRun);
  uint64_t a = crc;
  for (; size >= 3 * kRun; at += 3 * kRun, size -= 3 * kRun) {
    uint64_t b = 0;
    uint64_t c = 0;
    for (size_t i = 0; i < kRun; i += 8) {
      a = _mm_crc32_u64(a, Word(at + i));
      b = _mm_crc32_u64(b, Word(at + kRun + i));
      c = _mm_crc32_u64(c, Word(at + 2 * kRun + i));
    }
    a = two_runs->After(static_cast<uint32_t>(a)) ^ run->After(static_cast<uint32_t>(b)) ^ c;
  }
  for (; size >= 8; at += 8, size -= 8) a = _mm_crc32_u64(a, Word(at));
  auto last = static_cast<uint32_t>(a);
  for (; size > 0; ++at, --size) last = _mm_crc32_u8(last, *at);
  return last;
}

#endif

}  // namespace

uint32_t Crc32cPortable(uint32_t crc, const void* data, size_t size) {
  static const ByteTables* const tables = new ByteTables(MakeTables());
  const ByteTables& t = *tables;
  const auto* at = static_cast<const uint8_t*>(data);
  crc = ~crc;
  for (; size >= 8; at += 8, size -= 8) {
    uint32_t low;
    uint32_t high;
    std::memcpy(&low, at, 4);
    std::memcpy(&high, at + 4, 4);
    low ^= crc;
    crc = t[7][low & 0xff] ^ t[6][(low >> 8) & 0xff] ^ t[5][(low >> 16) & 0xff] ^ t[4][low >> 24] ^
          t[3][high & 0xff] ^ t[2][(high >> 8) & 0xff] ^ t[1][(high >> 16) & 0xff] ^ t[0][high >> 24];
  }
  for (; size > 0; ++at, --size) crc = (crc >> 8) ^ t[0][(crc ^ *at) & 0xff];
  return ~crc;
}

uint32_t Crc32c(uint32_t crc, const void* data, size_t size) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ~WithInstruction(~crc, static_cast<const uint8_t*>(data), size);
#endif
  return Crc32cPortable(crc, data, size);
}

std::string Crc32cText(uint32_t crc) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(8, '0');
  for (int i = 7; i >= 0; --i, crc >>= 4) text[static_cast<size_t>(i)] = kDigits[crc & 15];
  return text;
}

}  // namespace het
