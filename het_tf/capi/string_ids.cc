#include "het_tf/capi/string_ids.h"

#include <cstring>

namespace het {
namespace {

constexpr uint64_t kKey[] = {0x6865745f7466, 0x656d626564};  // "het_tf", "embed"

uint64_t Rotate(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

struct State {
  uint64_t a = kKey[0] ^ 0x736f6d6570736575, b = kKey[1] ^ 0x646f72616e646f6d;
  uint64_t c = kKey[0] ^ 0x6c7967656e657261, d = kKey[1] ^ 0x7465646279746573;

  void Mix(int rounds) {
    for (; rounds > 0; --rounds) {
      a += b, b = Rotate(b, 13) ^ a, a = Rotate(a, 32);
      c += d, d = Rotate(d, 16) ^ c;
      a += d, d = Rotate(d, 21) ^ a;
      c += b, b = Rotate(b, 17) ^ c, c = Rotate(c, 32);
    }
  }
  void Add(uint64_t word) {
    d ^= word;
    Mix(2);
    a ^= word;
  }
};

}  // namespace

int64_t IdOfString(std::string_view text) {
  State state;
  uint64_t word = 0;
  const size_t whole = text.size() / sizeof(word) * sizeof(word);
  for (size_t at = 0; at < whole; at += sizeof(word)) {
    std::memcpy(&word, text.data() + at, sizeof(word));
    state.Add(word);
  }
  word = 0;
  if (whole < text.size()) std::memcpy(&word, text.data() + whole, text.size() - whole);
  state.Add(word | static_cast<uint64_t>(text.size()) << 56);
  state.c ^= 0xff;
  state.Mix(4);
  return static_cast<int64_t>((state.a ^ state.b ^ state.c ^ state.d) % (~uint64_t{0} >> 1));
}

}  // namespace het
