// The edge at which memory that ends becomes an error: TensorFlow's kernels, and whoever else calls
// an engine and must not throw.
#pragma once

#include <new>

#include "het_tf/core/base/status.h"

namespace het {

// body() -> Status. ResourceExhausted where it throws std::bad_alloc: what a worker does in a step
// leaves rows as they were then.
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
