// Does a request name a key twice?
#pragma once

#include "het_tf/core/base/hash.h"
#include "het_tf/core/base/span.h"

namespace het {

// False: all keys of both lists together are different. Else *key is one that comes twice. Whoever chose the
// keys cannot make it slow. Throws std::bad_alloc.
bool AnyRepeated(Span<const Key> first, Span<const Key> second, Key* key);

}  // namespace het
