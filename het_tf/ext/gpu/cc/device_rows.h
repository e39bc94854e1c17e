// The interface between a client and caches in the memory of a device (ext/gpu/cc/abi.h). The cache on the
// device keeps rows, clocks and unsent updates. The client keeps numbered frames, and sends them again after
// failures.
//
//   wanted (keys, bases) ─► DeviceClient::Read ─► rows, with the own frames that the store lacked on top;
//                                                     the device adds its unsent updates
//   due, victims         ─► DeviceClient::Push ─► frames; DeviceClient::Wait: until they are applied
//
// A training read subscribes to its rows (subscriptions.h): later lookups do not want them until the store
// has named them.
//
// A DeviceLines (core/client/device_lines.h) tells the cache of changes that it has not made.
//
// Order: a read ends, and its rows are installed, before anything of its tables is pushed or
// forgotten. A row of an answer must not leave to make room for another row of it. A row of an
// answer lacks updates that were pushed after it came.
#pragma once

#include <cstdint>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/row/row_store.h"

namespace het {

constexpr Clock kNoBase = -1;   // the row is absent
constexpr Clock kOldBase = -2;  // the row is there, and must be fetched

// Rows that a device wants: of each table and partition at most one part.
struct DeviceRead {
  struct Part {
    uint64_t table;
    uint32_t partition;
    size_t n;            // 0: only asks which rows have moved, if the table subscribes
    const Key* keys;     // ascending, all of this partition
    const Clock* bases;  // below 0: fetch; else: check, and fetch if it is past the pull bound
    // Out, n elements each; what they hold is good once the read has succeeded. The caller gives
    // the room.
    uint8_t* came;   // 0: the copy may stay as it is (checks alone); then nothing else is filled in
    uint8_t* admit;  // may it enter the cache? 0 in all but training reads
    // The store names the row when it moves; also of rows that did not come. 0 in all but training reads.
    uint8_t* subscribed;
    Clock* clocks;  // the new base
    float* rows;    // n * row_floats; row i at i * row_floats
  };
  Vector<Part> parts;
};

// Updates of one table that left a device.
struct DevicePush {
  struct Part {
    uint64_t table;
    size_t n;
    const Key* keys;        // different ones, of any partitions
    const uint32_t* ticks;  // > 0
    const Clock* clocks;    // of the rows, the ticks given here included
    const float* updates;   // n * row_floats, laid out like rows
    bool evicted;           // counted as evict_push, else as bound_push
  };
  Vector<Part> parts;  // of each table at most one: a key has one place in a frame
};

}  // namespace het
