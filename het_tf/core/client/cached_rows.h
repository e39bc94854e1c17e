// What a lookup reads from a client, and what a gradient writes: the unique keys of a step, by
// table and partition.
#pragma once

#include <cstdint>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/base/span.h"
#include "het_tf/core/row/row_store.h"

namespace het {

struct CachedRead {
  // Arrays have `uniques` elements.
  struct Part {
    uint64_t table;
    uint32_t partition;
    size_t uniques;
    const Key* keys;
    const uint64_t* hashes;
    uint32_t* rows;        // out, for a training read: lines
    const float** values;  // out: good until the next call on the client
    // Of a planned lookup: the number of the planned lookup that uses the key next, 0: none.
    const uint32_t* next_use = nullptr;
  };
  Vector<Part> parts;
  uint32_t planned = 0;                // the number of this one; 0: it was not planned
  Vector<const float*> values;         // room for the parts' values
  Vector<Vector<float>> private_rows;  // rows that a reading without training fetched
};

// Keys of one table and partition.
struct OthersKeys {
  uint64_t table;
  uint32_t partition;
  Span<const Key> keys;
  Span<const uint64_t> hashes;
};

// What other workers do, where the stream says so: rows are then written on demand (engine/on_demand.h).
struct OthersUse {
  // Used by others soon, in order of partition: of these rows those past their push bound are sent. Other
  // rows stay, up to kMostUnsent ticks: what a worker that dies takes along has an end.
  Span<const OthersKeys> wanted = {};
  // Updated by others in this step: copies of these rows are not read any more.
  Span<const OthersKeys> outdated = {};
  bool exact = false;  // the step waits until all is applied; else until what earlier steps sent is

  static constexpr int64_t kMostUnsent = 1000;
};

struct CachedWrite {
  struct Part {
    uint64_t table;
    uint32_t partition;
    size_t uniques;
    const Key* keys;
    const uint64_t* hashes;
    uint32_t* rows;          // lines, as the read left them; checked
    float* sums;             // dim floats a key; used up
    const uint8_t* touched;  // 0: this key gets no tick
    float learning_rate;
  };
  Vector<Part> parts;                 // in order of partition
  const OthersUse* others = nullptr;  // null: rows are sent when they are past their push bound
};

}  // namespace het
