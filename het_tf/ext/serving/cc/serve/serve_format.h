// The format of a serving file: one table's rows, which serving processes map and never write.
//
//   header (192 bytes) | spec (JSON of core/row/schema.h) | rows, row_bytes each | buckets, 64 bytes each
//
// Every section begins at a multiple of 64, padded with zeros. Integers are little-endian, floats IEEE. The
// file holds no addresses, so it may be mapped anywhere. Rows stand in the order of arrival; the index comes
// last, since it is built when the rows are known, so that a file is written in one pass.
//
// A bucket has five keys and their row numbers. A key lives in its home bucket or, if that is full, in one of
// the next. Every full bucket that a key was moved past has `more` set; a search ends at the first bucket
// without it. At a load of 3/4 nine keys in ten are at home: reading a present key then costs one cache line
// of the index and those of its row.
//
// Rows are float32, float16, bfloat16, or one float32 scale and int8 (row_codec.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "het_tf/core/base/hash.h"

namespace het::serve {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian and mapped as they are");

constexpr char kMagic[8] = {'H', 'E', 'T', 'S', 'E', 'R', 'V', 'E'};
constexpr uint32_t kVersion = 2;
constexpr size_t kAlign = 64;
constexpr uint64_t kMaxRows = 0xfffffffe;  // row numbers have 32 bits
constexpr uint32_t kMaxProbes = 1024;      // limit on the buckets that one search reads
constexpr uint64_t kMaxSpecBytes = 1 << 20;

enum class RowType : uint32_t { kFloat32 = 0, kFloat16 = 1, kBfloat16 = 2, kInt8 = 3 };

// What an id without a row reads.
enum class Unknown : uint32_t {
  kInitial = 0,  // the initial row of the table's initializer, as in training
  kZeros = 1,
};

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;
  uint64_t file_bytes;
  uint64_t rows;
  uint64_t buckets;  // at least 1
  uint64_t hash_seed;
  uint32_t dim;
  uint32_t row_bytes;  // distance between two rows
  RowType row_type;
  Unknown unknown;
  uint32_t probes;  // the longest search, in buckets
  uint32_t zero;
  uint64_t spec_offset;
  uint64_t spec_bytes;
  uint64_t rows_offset;
  uint64_t buckets_offset;
  uint8_t reserved[56];  // zeros
  // XXH3-64 of the sections, and of the header's bytes before its own checksum.
  uint64_t spec_checksum;
  uint64_t rows_checksum;
  uint64_t buckets_checksum;
  uint64_t checksum;
};
static_assert(sizeof(Header) == 192);

constexpr uint32_t kBucketKeys = 5;

struct alignas(64) Bucket {
  Key key[kBucketKeys];
  uint32_t row[kBucketKeys];
  uint8_t count;
  uint8_t more;  // a key of this home or an earlier one may be further on
  uint16_t zero;
};
static_assert(sizeof(Bucket) == 64);

inline uint64_t HomeBucket(uint64_t hash, uint64_t buckets) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(hash) * buckets) >> 64);
}

constexpr uint64_t AlignUp(uint64_t offset) { return (offset + kAlign - 1) / kAlign * kAlign; }

}  // namespace het::serve
