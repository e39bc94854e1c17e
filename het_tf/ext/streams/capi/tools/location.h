// Placing by location (ext/streams/cc/location.h) for Python without TensorFlow. Codes and HetText() as in
// management.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "het_tf/core/base/c_text.h"

extern "C" {

// Location::Place for batch `number` of a pass. keys: workers * batch * width; slots: Location::kSlots;
// owners: workers * batch.
HET_EXPORT int HetPlaceByLocation(int64_t workers, int64_t batch, int64_t number, const uint64_t* keys,
                                  size_t width, uint32_t* slots, int64_t* owners);

}  // extern "C"
