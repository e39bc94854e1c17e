// Ids of strings: the hash by which layers turn strings into ids.
#pragma once

#include <cstdint>
#include <string_view>

namespace het {

// SipHash-2-4 (Aumasson and Bernstein, 2012) with a fixed key, modulo 2^63 - 1: as python/ids.py by
// TensorFlow's to_hash_bucket_strong. Stored rows depend on it.
int64_t IdOfString(std::string_view text);

}  // namespace het
