#pragma once

#include <cstdint>

#include "het_tf/core/base/alloc.h"

namespace het {

// Updates of equal width, handed out and taken back by number.
class UpdatePool {
 public:
  explicit UpdatePool(size_t floats) : floats_(floats) {}
  ~UpdatePool();
  UpdatePool(const UpdatePool&) = delete;
  UpdatePool& operator=(const UpdatePool&) = delete;

  // Zeros. Throws std::bad_alloc.
  uint32_t Take();
  void Give(uint32_t update) { free_.push_back(update); }
  float* data(uint32_t update) { return chunks_[update / kChunk] + (update % kChunk) * floats_; }
  size_t bytes() const { return chunks_.size() * kChunk * (floats_ * sizeof(float) + sizeof(uint32_t)); }

 private:
  static constexpr uint32_t kChunk = 256;
  size_t floats_;
  Vector<float*> chunks_;
  Vector<uint32_t> free_;  // always has room for every update
};

}  // namespace het
