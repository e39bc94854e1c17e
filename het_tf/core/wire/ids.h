// Identities in messages: clients, partitions, and the parts of frames.
#pragma once

#include <cstdint>

namespace het {

// A staleness bound that lets a copy be any number of ticks behind.
constexpr int64_t kUnbounded = INT64_MAX;

struct ClientId {
  uint64_t high = 0;
  uint64_t low = 0;
  friend bool operator==(const ClientId& a, const ClientId& b) { return a.high == b.high && a.low == b.low; }
  friend bool operator<(const ClientId& a, const ClientId& b) {
    return a.high != b.high ? a.high < b.high : a.low < b.low;
  }
};

// One slice of key space. It belongs to the store, not to a table; every frame has it.
struct PartitionId {
  uint32_t index = 0;
  uint32_t count = 1;
  uint64_t hash_seed = 0;
  friend bool operator==(const PartitionId& a, const PartitionId& b) {
    return a.index == b.index && a.count == b.count && a.hash_seed == b.hash_seed;
  }
};

// One part of a frame: its partition, and the number that its client gave the request.
struct PartRef {
  uint32_t partition = 0;
  uint32_t request_id = 0;
};

}  // namespace het
