// What the loops of the optimizers need to become SIMD code.
//
// Every optimizer writes its tick once, as `template <bool kTrack> void Tick(...)`: with kTrack false the
// loop neither reads nor writes the update. The parts of a row are restrict pointers, because they never
// overlap.
//
// The roots need -fno-math-errno as well: a sqrtf that may set errno is not SIMD, and GCC 12 takes that from
// the command line only, not from a pragma.
#pragma once

#include <cmath>
#include <cstddef>

#define HET_RESTRICT __restrict__

namespace het {

// The part of an update that begins at `offset`, or null where there is no update.
inline float* Part(float* update, size_t offset) { return update == nullptr ? nullptr : update + offset; }

}  // namespace het
