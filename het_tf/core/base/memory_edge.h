// Turns exhausted memory into an error, for TensorFlow's kernels and other callers that must not throw.
#pragma once

#include <new>

#include "het_tf/core/base/status.h"

namespace het {

// Runs body() -> Status; ResourceExhausted if it throws std::bad_alloc. A failed step must change no row.
template <typename Body>
Status AtMemoryEdge(const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted,
                  "out of memory; no row was changed. Use a smaller batch, fewer rows, a smaller dim, or a "
                  "machine with more memory");
  }
}

}  // namespace het
