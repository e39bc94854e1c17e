// Reading and writing the bytes of frames: fixed-width little-endian integers, varints, and runs of keys.
//
// A reader never trusts a length: every read checks the bytes left, and a failed read sticks (ok() stays
// false), so a decoder checks once at the end of a section rather than after every field.
#pragma once

#include <cstdint>
#include <cstring>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/base/span.h"

namespace het {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are little-endian and written by memcpy");

// Bytes(n) and resize(n) leave the new bytes unwritten.
using Bytes = std::vector<uint8_t, UnwrittenAllocator<uint8_t>>;

inline uint64_t ZigZag(int64_t v) { return (static_cast<uint64_t>(v) << 1) ^ static_cast<uint64_t>(v >> 63); }
inline int64_t UnZigZag(uint64_t v) { return static_cast<int64_t>((v >> 1) ^ (~(v & 1) + 1)); }

class Writer {
 public:
  explicit Writer(Bytes* out) : out_(out) {}

  template <typename T>
  void Fixed(T value) {
    Raw(&value, sizeof(value));
  }
  void Raw(const void* data, size_t size) {
    if (size > 0) std::memcpy(Append(size), data, size);
  }
  // Reserves the next `size` bytes, which the caller must fill before the next write.
  uint8_t* Append(size_t size) {
    const size_t at = out_->size();
    out_->resize(at + size);
    return out_->data() + at;
  }
  // Gives back the last `size` bytes.
  void TakeBack(size_t size) { out_->resize(out_->size() - size); }
  void Varint(uint64_t value) {
    while (value >= 0x80) {
      out_->push_back(static_cast<uint8_t>(value) | 0x80);
      value >>= 7;
    }
    out_->push_back(static_cast<uint8_t>(value));
  }
  // Writes keys as differences from the previous key: two or three bytes a key if they are sorted and dense;
  // correct for any int64 in any order.
  template <typename Keys>
  void KeyRun(const Keys& keys) {
    uint64_t before = 0;
    for (int64_t key : keys) {
      Varint(ZigZag(static_cast<int64_t>(static_cast<uint64_t>(key) - before)));
      before = static_cast<uint64_t>(key);
    }
  }

 private:
  Bytes* out_;
};

class Reader {
 public:
  explicit Reader(Span<const uint8_t> bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool ok() const { return ok_; }
  void Fail() { ok_ = false; }
  size_t left() const { return static_cast<size_t>(end_ - at_); }

  template <typename T>
  T Fixed() {
    T value{};
    if (const uint8_t* bytes = Raw(sizeof(T))) std::memcpy(&value, bytes, sizeof(T));
    return value;
  }
  // Returns null if fewer than `size` bytes are left.
  const uint8_t* Raw(size_t size) {
    if (!ok_ || size > left()) {
      ok_ = false;
      return nullptr;
    }
    const uint8_t* bytes = at_;
    at_ += size;
    return bytes;
  }
  uint64_t Varint() {
    // Without a branch on the length, which is unpredictable for keys a hundred apart.
    if (left() >= sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, at_, sizeof(word));
      const uint64_t ends = ~word & 0x8080808080808080;
      if (ends != 0) {
        at_ += __builtin_ctzll(ends) / 8 + 1;
        word &= ends ^ (ends - 1);  // keeps the bits up to the first end
        word = ((word & 0x7f007f007f007f00) >> 1) | (word & 0x007f007f007f007f);
        word = ((word & 0x3fff00003fff0000) >> 2) | (word & 0x00003fff00003fff);
        return ((word & 0x0fffffff00000000) >> 4) | (word & 0x000000000fffffff);
      }
    }
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == end_) break;
      const uint8_t byte = *at_++;
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    ok_ = false;
    return 0;
  }
  // Reads a count of items of at least one byte each. It fails above the number of bytes left, so that a
  // damaged count cannot cause a huge allocation.
  size_t Count() {
    const uint64_t count = Varint();
    if (count > left()) ok_ = false;
    return ok_ ? static_cast<size_t>(count) : 0;
  }
  void KeyRun(size_t count, Vector<int64_t>* keys) {
    keys->clear();
    if (count > left()) ok_ = false;
    if (!ok_) return;
    keys->resize(count);
    Reader r = *this;  // a copy that stays in registers
    uint64_t before = 0;
    for (size_t i = 0; i < count && r.ok_; ++i) {
      before += static_cast<uint64_t>(UnZigZag(r.Varint()));
      (*keys)[i] = static_cast<int64_t>(before);
    }
    *this = r;
    if (!ok_) keys->clear();
  }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
  bool ok_ = true;
};

}  // namespace het
