// The arguments of a client's lookups and gradients: the unique keys of a step, by table and partition.
#pragma once

#include <cstdint>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/base/span.h"
#include "het_tf/core/row/row_store.h"

namespace het {

struct CachedRead {
  // Of one table and partition. Arrays have `uniques` elements, and so have those of the parts.
  struct Keys {
    uint64_t table;
    uint32_t partition;
    size_t uniques;
    const Key* keys;
    const uint64_t* hashes;
    uint32_t* rows;  // their lines: a training read sets them, a write checks them
  };
  struct Part : Keys {
    const float** values;  // out: good until the next call on the client
    // For a planned lookup: the number of the planned lookup that uses the key next; 0: none.
    const uint32_t* next_use = nullptr;
  };
  Vector<Part> parts;
  uint32_t planned = 0;                // this lookup's number; 0: it was not planned
  bool follows = false;                // the stream tells when its rows are out of date (LineMarks::Follow)
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

// Other workers' use of rows, if the stream tells it: rows are then written on demand
// (ext/streams/cc/window.h).
struct OthersUse {
  // Keys that others use soon, in order of partition: those past their push bound are sent. Other rows stay
  // unsent, up to kMostUnsent ticks, which limits the loss when a worker dies.
  Span<const OthersKeys> wanted = {};
  // Keys that others update in this step: copies of these rows become outdated.
  Span<const OthersKeys> outdated = {};
  bool exact = false;  // the step waits for all pushes; else only for those of earlier steps

  static constexpr int64_t kMostUnsent = 1000;
};

struct CachedWrite {
  struct Part : CachedRead::Keys {
    const float* sums;       // dim floats a key
    const uint8_t* touched;  // 0: this key gets no tick
    float learning_rate;
    float scale = 1;  // of the sums
  };
  Vector<Part> parts;                 // in order of partition
  Vector<float> scratch;              // room for the gradient of one key of each part
  const OthersUse* others = nullptr;  // null: rows past their push bound are sent
};

}  // namespace het
