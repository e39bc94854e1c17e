// The common elements of both kinds of frame (parts.h): clocks, narrow numbers, differences.
#pragma once

#include <limits>
#include <string>

#include "het_tf/core/base/bytes.h"
#include "het_tf/core/base/rice.h"
#include "het_tf/core/base/status.h"
#include "het_tf/core/row/row_store.h"

namespace het::frame {

constexpr uint8_t kVersion = 7;

constexpr uint32_t kRequestMagic = 0x51544548;  // "HETQ"
constexpr uint32_t kReplyMagic = 0x52544548;    // "HETR"

// Flags of a table, of both kinds of frame. The rest are in request_flags.h and reply_flags.h.
constexpr uint8_t kNew = 1;
constexpr uint8_t kNumber = 2;  // not the previous table's + 1
constexpr uint8_t kMore = 128;

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

// One varint of each element, in one piece of memory.
template <typename Elements, typename Word>
void WriteWords(const Elements& elements, Word word, Writer* w) {
  constexpr size_t kMost = 10;  // bytes of one
  uint8_t* at = w->Append(kMost * elements.size());
  const uint8_t* const end = at + kMost * elements.size();
  for (const auto& element : elements) {
    uint64_t value = word(element);
    for (; value >= 0x80; value >>= 7) *at++ = static_cast<uint8_t>(value) | 0x80;
    *at++ = static_cast<uint8_t>(value);
  }
  w->TakeBack(static_cast<size_t>(end - at));
}

inline void WriteClocks(Span<const Clock> clocks, Writer* w) {
  WriteWords(
      clocks, [](Clock clock) { return static_cast<uint64_t>(clock); }, w);
}

// Small positive differences of clocks, modulo 2^64.
inline void WriteLags(Span<const Clock> lags, Writer* w) {
  if (lags.size() == 0) return;
  WriteNumbers(
      lags.size(), [&lags](size_t i) { return static_cast<uint64_t>(lags[i]); }, w);
}

inline void WriteKeys(Span<const Key> keys, Writer* w) {
  w->Varint(keys.size());
  WriteAscending(keys, w);
}

// A list with names (named_keys.h): these, then the keys that have none. `keys`: all, or those alone.
template <typename Keys>
void WriteNamed(Span<const uint32_t> names, const Keys& keys, Writer* w) {
  WriteNumbers(
      names.size(), [&names](size_t i) { return uint64_t{names[i]}; }, w);
  if (keys.size() < names.size()) return WriteAscending(keys, w);
  Vector<Key> in_full;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == 0) in_full.push_back(keys[i]);
  }
  WriteAscending(in_full, w);
}

// Appends to both.
inline void ReadNamed(size_t n, Reader* r, Vector<uint32_t>* names, Vector<Key>* keys) {
  if (n > 8 * r->left()) return r->Fail();
  names->resize(n);
  size_t in_full = 0;
  ReadNumbers(n, r, [&](size_t i, uint64_t name) {
    (*names)[i] = static_cast<uint32_t>(name);
    in_full += name == 0;
    return name <= UINT32_MAX;
  });
  if (r->ok()) ReadAscending(in_full, r, keys);
}

// Ticks are mostly 1: as a number to write they change places with 0.
inline uint64_t SwapOne(uint64_t ticks) { return ticks < 2 ? 1 - ticks : ticks; }

template <typename Ticks>
void WriteTicks(const Ticks& ticks, Writer* w) {
  WriteNumbers(
      ticks.size(), [&ticks](size_t i) { return SwapOne(ticks[i]); }, w);
}

inline void ReadClocks(size_t count, Reader* r, Vector<Clock>* clocks) {
  if (count > r->left()) count = 0;
  clocks->clear();
  clocks->reserve(count);
  for (size_t i = 0; i < count && r->ok(); ++i) clocks->push_back(static_cast<Clock>(r->Varint()));
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

}  // namespace het::frame
