// Small numbers and ascending keys in a few bits each.
//
// Rice codes (Rice 1979, "Some practical universal noiseless coding techniques"): of each number v the
// quotient v >> k in ones and a zero, then the lower k bits; a byte before them has k, which fits their mean.
// So numbers of the mean m take about 2 + log2 m bits each, however they are spread. Bits fill bytes from the
// lowest on; the rest of the last byte is 0.
//
// Ascending keys are the first as a zigzagged varint and, if there are more, the gaps between neighbours less
// 1: no key comes twice. 20 of 100,000 ids take 14 bits each.
#pragma once

#include <limits>
#include <stdexcept>

#include "het_tf/core/base/bytes.h"

namespace het {

// Writes number(i) of each i below n, whose sum is `sum`; UINT64_MAX: or more.
template <typename Number>
void WriteNumbers(size_t n, uint64_t sum, Number number, Writer* w) {
  const uint64_t mean = n == 0 ? 0 : sum == UINT64_MAX ? sum : sum / n;
  const unsigned k = mean == 0 ? 0 : 63 - static_cast<unsigned>(__builtin_clzll(mean));
  const size_t most = 9 + n * (k + 3) / 8;  // all quotients together are below 2 n
  uint8_t* out = w->Append(most);
  const uint8_t* const end = out + most;
  *out++ = static_cast<uint8_t>(k);
  if (sum == 0) {
    std::memset(out, 0, (n + 7) / 8);
    return w->TakeBack(most - 1 - (n + 7) / 8);
  }
  uint64_t bits = 0;
  unsigned filled = 0;                                   // below 32
  const auto put = [&](uint64_t more, unsigned count) {  // at most 32
    bits |= more << filled;
    filled += count;
    if (filled < 32) return;
    std::memcpy(out, &bits, 4);
    out += 4;
    bits >>= 32;
    filled -= 32;
  };
  for (size_t i = 0; i < n; ++i) {
    const uint64_t v = number(i);
    uint64_t ones = v >> k;
    const uint64_t rest = v & ((uint64_t{1} << k) - 1);
    if (ones + 1 + k <= 32) {
      put(((uint64_t{1} << ones) - 1) | rest << (ones + 1), static_cast<unsigned>(ones) + 1 + k);
      continue;
    }
    for (; ones > 31; ones -= 31) put(0x7fffffff, 31);
    put((uint64_t{1} << ones) - 1, static_cast<unsigned>(ones) + 1);
    put(rest & 0xffffffff, k < 32 ? k : 32);
    if (k > 32) put(rest >> 32, k - 32);
  }
  for (; filled > 0; filled -= filled < 8 ? filled : 8, bits >>= 8) *out++ = static_cast<uint8_t>(bits);
  w->TakeBack(static_cast<size_t>(end - out));
}

template <typename Number>
void WriteNumbers(size_t n, Number number, Writer* w) {
  uint64_t sum = 0;
  bool over = false;
  for (size_t i = 0; i < n; ++i) over |= __builtin_add_overflow(sum, number(i), &sum);
  WriteNumbers(n, over ? UINT64_MAX : sum, number, w);
}

// Reads n numbers: take(i, number) of each, until it returns false. Fails the reader as well for bytes that
// WriteNumbers cannot have written.
template <typename Take>
void ReadNumbers(size_t n, Reader* r, Take take) {
  const unsigned k = r->Fixed<uint8_t>();
  if (!r->ok() || k > 63 || n > 8 * r->left()) return r->Fail();
  const uint8_t* at = r->Raw(0);
  const uint8_t* const begin = at;
  const uint8_t* const end = at + r->left();
  uint64_t bits = 0;
  unsigned filled = 0;
  const auto refill = [&] {
    if (end - at >= 8) {
      uint64_t word = 0;
      std::memcpy(&word, at, sizeof(word));
      bits |= word << filled;
      at += (63 - filled) >> 3;
      filled |= 56;
    } else {
      for (; filled <= 56 && at != end; filled += 8) bits |= uint64_t{*at++} << filled;
    }
  };
  const auto drop = [&](unsigned count) {  // below 64
    bits >>= count;
    filled -= count;
  };
  for (size_t i = 0; i < n; ++i) {
    uint64_t ones = 0;
    for (bool more = true; more;) {
      refill();
      const unsigned run = ~bits == 0 ? 64 : static_cast<unsigned>(__builtin_ctzll(~bits));
      more = run >= filled;
      if (more && filled == 0) return r->Fail();
      ones += more ? filled : run;
      if (more) {
        bits = 0;
        filled = 0;
      } else {
        drop(run + 1);
      }
    }
    if (ones > UINT64_MAX >> k) return r->Fail();
    uint64_t v = ones << k;
    for (unsigned have = 0; have < k;) {
      refill();
      const unsigned count = k - have < 32 ? k - have : 32;
      if (filled < count) return r->Fail();
      v |= (bits & ((uint64_t{1} << count) - 1)) << have;
      drop(count);
      have += count;
    }
    if (!take(i, v)) return r->Fail();
  }
  if ((bits & ((uint64_t{1} << filled % 8) - 1)) != 0) return r->Fail();
  r->Raw(static_cast<size_t>(at - begin) - filled / 8);
}

// Writes ascending keys, without their number. Throws std::logic_error if they do not ascend.
template <typename Keys>
void WriteAscending(const Keys& keys, Writer* w) {
  if (keys.size() == 0) return;
  bool ascend = true;
  for (size_t i = 1; i < keys.size(); ++i) ascend &= keys[i - 1] < keys[i];
  if (!ascend) throw std::logic_error("the keys of a list do not ascend");
  w->Varint(ZigZag(static_cast<int64_t>(keys[0])));
  const auto gap = [&](size_t i) {
    return static_cast<uint64_t>(keys[i + 1]) - static_cast<uint64_t>(keys[i]) - 1;
  };
  const size_t gaps = keys.size() - 1;
  const uint64_t span = static_cast<uint64_t>(keys[gaps]) - static_cast<uint64_t>(keys[0]);
  if (gaps > 0) WriteNumbers(gaps, span - gaps, gap, w);
}

// Appends n keys. Takes memory in proportion to the bytes that are left.
template <typename Key>
void ReadAscending(size_t n, Reader* r, Vector<Key>* keys) {
  if (n == 0) return;
  const int64_t first = UnZigZag(r->Varint());
  const bool fits = static_cast<int64_t>(static_cast<Key>(first)) == first;
  if (!r->ok() || !fits || n - 1 > 8 * r->left()) return r->Fail();
  const size_t before = keys->size();
  keys->resize(before + n);
  Key* const out = keys->data() + before;
  out[0] = static_cast<Key>(first);
  const auto take = [out](size_t i, uint64_t gap) {
    const auto last = static_cast<uint64_t>(out[i]);
    out[i + 1] = static_cast<Key>(last + gap + 1);
    return gap < static_cast<uint64_t>(std::numeric_limits<Key>::max()) - last;
  };
  if (n > 1) ReadNumbers(n - 1, r, take);
  if (!r->ok()) keys->resize(before);
}

}  // namespace het
