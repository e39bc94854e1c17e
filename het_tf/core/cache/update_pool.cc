#include "het_tf/core/cache/update_pool.h"

#include <cstring>

namespace het {

UpdatePool::~UpdatePool() {
  for (float* chunk : chunks_) Release(chunk, kChunk * floats_ * sizeof(float), 64);
}

uint32_t UpdatePool::Take() {
  if (free_.empty()) {
    const size_t updates = (chunks_.size() + 1) * kChunk;
    if (free_.capacity() < updates) free_.reserve(2 * updates);
    if (chunks_.size() == chunks_.capacity()) chunks_.reserve(2 * chunks_.size() + 4);
    chunks_.push_back(static_cast<float*>(Allocate(kChunk * floats_ * sizeof(float), 64)));
    const auto first = static_cast<uint32_t>((chunks_.size() - 1) * kChunk);
    for (uint32_t i = kChunk; i > 0; --i) free_.push_back(first + i - 1);
  }
  const uint32_t update = free_.back();
  free_.pop_back();
  std::memset(data(update), 0, floats_ * sizeof(float));
  return update;
}

}  // namespace het
