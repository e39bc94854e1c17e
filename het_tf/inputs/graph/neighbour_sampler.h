// Draws neighbours of nodes: the mini-batches of GraphSAGE (Hamilton, Ying and Leskovec, NIPS 2017, algorithm
// 2), and negatives for its unsupervised loss (equation 1).
//
//   fan-outs {25}, {10}; 512 nodes
//     hop 0: 512 nodes  -> 512 x 25 neighbours
//     hop 1: these      -> 512 x 25 x 10
//
// As in the paper, a node has a fixed number of draws, uniform and with replacement; by weight if edges have
// weights, and among the edges of one type if a draw names one. A node without such an edge draws itself: so
// all shapes are fixed, and its mean over neighbours is its own row.
//
// A draw is a pure function of the seed, the batch's number, the hop, the parent's position in its hop, and
// the draw's number, independent of time and threads. Its 64 random bits are a mix (hash.h, Mix64) of a
// counter, with one stream for each parent.
//
// Cost: two cache misses a parent and one a draw, overlapped in blocks of parents; O(log degree) more by
// weight or type.
//
// Concurrency: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "het_tf/core/base/span.h"
#include "het_tf/inputs/graph/graph_file.h"

namespace het::graph {

constexpr int32_t kAnyType = -1;

// Draws `count` neighbours of each parent, over edges of this type.
struct Draw {
  int32_t type = kAnyType;
  uint32_t count = 0;
};

// The draws of one hop for each parent, in sequence.
using Hop = std::vector<Draw>;
uint64_t Width(const Hop& hop);

// Identifies draws: another seed or batch gives independent draws.
struct DrawKey {
  uint64_t seed = 0;
  uint64_t batch = 0;
};

// Checks that the graph supports these hops. InvalidArgument: a type that the graph does not have, or a hop
// that draws nothing.
Status CheckHops(const GraphFile& graph, Span<const Hop> hops);

// Fills children [parents][Width(hop)]. `number`: the hop's index, from 0. InvalidArgument, with undefined
// children: a parent is not a node (the message has its value), or the file is damaged.
Status SampleHop(const GraphFile& graph, const DrawKey& key, uint32_t number, const Hop& hop,
                 Span<const int64_t> parents, int64_t* children);

// Draws nodes by degree^0.75 or, with `uniform`, with equal probability.
void SampleNodes(const GraphFile& graph, const DrawKey& key, bool uniform, Span<int64_t> nodes);

}  // namespace het::graph
