// What a lookup reads from a client, and what a gradient writes: the unique keys of a step, by
// table and partition.
#pragma once

#include <cstdint>

#include "het_tf/core/base/alloc.h"
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
  Vector<Part> parts;  // in order of partition
};

}  // namespace het
