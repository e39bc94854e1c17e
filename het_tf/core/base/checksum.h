// XXH3-64 (https://xxhash.com): the checksum of everything in a checkpoint, in a serving file and in the head
// of a graph.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace het {

// Of bytes that come piece by piece; how they are cut changes nothing.
class Checksum {
 public:
  Checksum() { XXH3_64bits_reset(&state_); }

  void Add(const void* data, size_t size) { XXH3_64bits_update(&state_, data, size); }
  uint64_t value() const { return XXH3_64bits_digest(&state_); }

  static uint64_t Of(const void* data, size_t size) { return XXH3_64bits(data, size); }
  // 16 hex digits, as manifests have it.
  static std::string Text(uint64_t value);

 private:
  XXH3_state_t state_;
};

}  // namespace het
