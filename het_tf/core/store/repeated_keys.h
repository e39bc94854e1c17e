// Finds a key that a request names twice.
#pragma once

#include "het_tf/core/base/hash.h"
#include "het_tf/core/base/span.h"

namespace het {

// Returns false if all keys of both lists are different; else *key is a repeated one. An adversary who
// chooses the keys cannot make it slow. Throws std::bad_alloc.
bool AnyRepeated(Span<const Key> first, Span<const Key> second, Key* key);

}  // namespace het
