// Sums over ranks, and what all have, on top of Mesh::Exchange.
#pragma once

#include <cstddef>
#include <string>

#include "het_tf/ext/workers/cc/mesh.h"

namespace het {

// Replaces `values` by their sums over all ranks, or their means. T: float, double, int32_t, int64_t.
//
// Every sum is made once or in the same way everywhere, in the order of ranks, so its bits are equal on all
// ranks. Two ranks, or few values, send all to all: one exchange. Else each rank sums a slice: two exchanges,
// 2 (N - 1) / N of the values a rank in each direction.
template <typename T>
Status SumOverRanks(Mesh* mesh, const std::string& label, bool mean, T* values, size_t count);

// Sets `all` to what the ranks give, one after the other. `what`: as of Mesh::Exchange.
Status GatherFromRanks(Mesh* mesh, const std::string& label, const std::string& what,
                       Span<const uint8_t> mine, Bytes* all);

}  // namespace het
