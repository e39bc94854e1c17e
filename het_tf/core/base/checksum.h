// XXH3-64 (https://xxhash.com): the checksum in checkpoints, serving files and the head of graph files.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace het {

// The checksum of bytes that come in pieces; it does not depend on how they are cut.
class Checksum {
 public:
  Checksum() { XXH3_64bits_reset(&state_); }

  void Add(const void* data, size_t size) { XXH3_64bits_update(&state_, data, size); }
  uint64_t value() const { return XXH3_64bits_digest(&state_); }

  static uint64_t Of(const void* data, size_t size) { return XXH3_64bits(data, size); }
  // Returns 16 hex digits, as in manifests.
  static std::string Text(uint64_t value);

 private:
  XXH3_state_t state_;
};

}  // namespace het
