// Helpers that let compilers turn the optimizers' loops into SIMD code.
//
// Every optimizer writes its tick once, as `template <bool kTrack> void Tick(...)`: with kTrack false the
// loop neither reads nor writes the update. Pointers to a row's parts are restrict, because the parts never
// overlap.
//
// The roots also need -fno-math-errno: a sqrtf that may set errno is not SIMD, and GCC 12 accepts that option
// only on the command line.
#pragma once

#include <cmath>
#include <cstddef>

#define HET_RESTRICT __restrict__

namespace het {

// Returns the part of an update that begins at `offset`, or null if there is no update.
inline float* Part(float* update, size_t offset) { return update == nullptr ? nullptr : update + offset; }

}  // namespace het
