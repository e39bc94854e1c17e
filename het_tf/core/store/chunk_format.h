// The bytes of chunks, for writer and reader (chunk.h describes them).
#pragma once

#include "het_tf/core/base/bytes.h"
#include "het_tf/core/base/status.h"
#include "het_tf/core/row/row_format.h"
#include "het_tf/core/store/shard.h"

namespace het::chunk {

constexpr uint32_t kMagic = 0x43544548;  // "HETC"
constexpr uint8_t kVersion = 3;
constexpr size_t kRowsHead = 8 + 8 + 4 + 4;
constexpr size_t kRowHead = 8 + 8 + 4 + 2;
constexpr size_t kClientBytes = 28;

enum class Kind : uint8_t {
  kHead = 1,
  kTable = 2,
  kRows = 3,
  kClients = 4,
  kEnd = 5,
  kSet = 6,
  kRemove = 7,
  kForget = 8,
  kLoading = 9,
  kEpoch = 10,
  kValues = 11,
  kKeys = 12,
};

// Overwrites *chunk with the head of a chunk.
inline Writer Begin(Kind kind, Bytes* chunk) {
  chunk->clear();
  Writer w(chunk);
  w.Fixed(kMagic);
  w.Fixed(kVersion);
  w.Fixed(kind);
  w.Fixed(uint16_t{0});
  return w;
}

// Encode kRemove or kKeys; kValues and kRows of those rows of a shard that are live, and return how many are.
void EncodeKeys(Kind kind, uint64_t table, Span<const Key> keys, Bytes* chunk);
size_t EncodeValues(const Shard& shard, RowFormat format, Span<const uint32_t> rows, Bytes* chunk);
size_t EncodeStored(const Shard& shard, Span<const uint32_t> rows, Bytes* chunk);

// What a chunk of rows says of each: its words of four bytes, and above 24 bits how they are stored.
inline uint32_t ShapeOf(const TableSchema& schema) {
  const StoredFormat& format = schema.stored();
  return static_cast<uint32_t>(format.words()) | static_cast<uint32_t>(format.stored()) << 24;
}
inline size_t RowBytesOf(uint32_t shape) { return (shape & 0xffffff) * sizeof(float); }
inline std::string ShapeText(uint32_t shape) {
  const uint32_t stored = std::min<uint32_t>(shape >> 24, 3);
  return std::to_string(RowBytesOf(shape)) + " bytes stored as " +
         (stored < 3 ? StoredName(static_cast<Stored>(stored)) : "of another version");
}

// Reads the head; InvalidArgument if it is malformed.
Result<Kind> ReadKind(Reader* r);

}  // namespace het::chunk
