// A checksum of a run of bytes that comes in pieces: eight bytes at a time through a bijection, so a change
// of one word always shows.
#ifndef HET_TF_CORE_SERVE_CHECKSUM_H_
#define HET_TF_CORE_SERVE_CHECKSUM_H_

#include <cstdint>
#include <cstring>

#include "het_tf/core/hash.h"

namespace het::serve {

class Checksum {
 public:
  void Add(const void* data, size_t size) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    while (size > 0) {
      if (pending_ == 0 && size >= sizeof(word_)) {
        std::memcpy(&word_, bytes, sizeof word_);
        bytes += sizeof word_;
        size -= sizeof word_;
        Mix();
        continue;
      }
      reinterpret_cast<uint8_t*>(&word_)[pending_++] = *bytes++;
      --size;
      if (pending_ == sizeof word_) Mix();
    }
  }
  // Of what came so far.
  uint64_t value() const {
    uint64_t last = 0;
    std::memcpy(&last, &word_, pending_);
    return Mix64((state_ ^ last) + length_ + pending_ + 1);
  }

 private:
  void Mix() {
    state_ = Mix64(state_ ^ word_) + 0x9e3779b97f4a7c15ULL;
    length_ += sizeof word_;
    pending_ = 0;
  }

  uint64_t state_ = 0;
  uint64_t length_ = 0;
  uint64_t word_ = 0;
  size_t pending_ = 0;
};

inline uint64_t ChecksumOf(const void* data, size_t size) {
  Checksum checksum;
  checksum.Add(data, size);
  return checksum.value();
}

}  // namespace het::serve

#endif  // HET_TF_CORE_SERVE_CHECKSUM_H_
