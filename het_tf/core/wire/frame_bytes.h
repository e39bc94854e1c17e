// What both kinds of frame are made of (parts.h): clocks, narrow numbers, differences.
#pragma once

#include <limits>
#include <string>

#include "het_tf/core/base/bytes.h"
#include "het_tf/core/base/status.h"
#include "het_tf/core/row/row_store.h"

namespace het::frame {

constexpr uint8_t kVersion = 3;

constexpr uint32_t kRequestMagic = 0x51544548;  // "HETQ"
constexpr uint32_t kReplyMagic = 0x52544548;    // "HETR"

inline Status Broken(const char* what) { return InvalidArgument(std::string("damaged frame: ") + what); }

inline Status OtherVersion(uint8_t version) {
  return InvalidArgument("frame version " + std::to_string(version) + "; this side speaks version " +
                         std::to_string(kVersion) + ": upgrade the older side");
}

// Differences of unsigned numbers, which may run over.
inline uint64_t Delta(uint64_t to, uint64_t from) { return ZigZag(static_cast<int64_t>(to - from)); }
inline uint64_t AddDelta(uint64_t from, uint64_t delta) {
  return from + static_cast<uint64_t>(UnZigZag(delta));
}
inline uint64_t Delta32(uint32_t to, uint32_t from) { return ZigZag(static_cast<int32_t>(to - from)); }
inline uint32_t AddDelta32(uint32_t from, uint64_t delta) {
  return from + static_cast<uint32_t>(UnZigZag(delta));
}

inline uint32_t Narrow(uint64_t value, bool* ok) {
  if (value > std::numeric_limits<uint32_t>::max()) *ok = false;
  return static_cast<uint32_t>(value);
}

inline void WriteClocks(const Vector<Clock>& clocks, Writer* w) {
  constexpr size_t kMost = 10;  // bytes of one
  uint8_t* at = w->Append(kMost * clocks.size());
  const uint8_t* const end = at + kMost * clocks.size();
  for (Clock clock : clocks) {
    uint64_t value = ZigZag(clock);
    for (; value >= 0x80; value >>= 7) *at++ = static_cast<uint8_t>(value) | 0x80;
    *at++ = static_cast<uint8_t>(value);
  }
  w->TakeBack(static_cast<size_t>(end - at));
}

inline void ReadClocks(size_t count, Reader* r, Vector<Clock>* clocks) {
  if (count > r->left()) count = 0;
  clocks->clear();
  clocks->reserve(count);
  for (size_t i = 0; i < count && r->ok(); ++i) clocks->push_back(UnZigZag(r->Varint()));
}

// Clocks of a reply, which are not negative, each with the class of its row.
inline void WriteClasses(const Vector<Clock>& clocks, const Vector<uint8_t>& tight, Writer* w) {
  for (size_t i = 0; i < clocks.size(); ++i) {
    const bool is_tight = i < tight.size() && tight[i] != 0;
    w->Varint(static_cast<uint64_t>(clocks[i]) << 1 | static_cast<uint64_t>(is_tight));
  }
}

inline void ReadClasses(size_t count, Reader* r, Vector<Clock>* clocks, Vector<uint8_t>* tight) {
  if (count > r->left()) count = 0;
  clocks->clear();
  tight->clear();
  clocks->reserve(count);
  tight->reserve(count);
  for (size_t i = 0; i < count && r->ok(); ++i) {
    const uint64_t value = r->Varint();
    clocks->push_back(static_cast<Clock>(value >> 1));
    tight->push_back(value & 1);
  }
}

// The next of a part's tables, cleared; those of the part before lend their memory. Whoever has all
// of them resizes the list to *used.
template <typename Table>
Table* NextTable(Vector<Table>* tables, size_t* used) {
  if (*used == tables->size()) tables->emplace_back();
  Table* const table = &(*tables)[(*used)++];
  table->Clear();
  return table;
}

inline size_t Present(const Vector<Clock>& clocks) {
  size_t rows = 0;
  for (Clock clock : clocks) rows += clock != 0;
  return rows;
}

}  // namespace het::frame
