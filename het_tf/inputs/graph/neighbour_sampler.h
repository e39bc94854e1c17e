// Draws neighbours of nodes: the mini-batches of GraphSAGE (Hamilton, Ying and Leskovec, NIPS 2017, algorithm
// 2), and negatives for its unsupervised loss (equation 1).
//
//   fan-outs {25}, {10}; 512 nodes
//     hop 0: 512 nodes  -> 512 x 25 neighbours
//     hop 1: those      -> 512 x 25 x 10
//
// As in the paper a node has a fixed number of draws, uniform and with replacement: by weight where edges
// have weights, and among the edges of one type where a draw names one. A node without such an edge draws
// itself: all shapes are fixed, and its mean over neighbours is its own row.
//
// A draw is a pure function of the seed, the number of the batch, the hop, the place of the parent in its
// hop, and its own number: the same wherever, whenever and by how many threads it is made. 64 random bits are
// a mix (hash.h, Mix64) of a counter, one stream a parent.
//
// Cost: two cache misses a parent and one a draw, waited for together in blocks of parents; by weight or type
// O(log degree) more.
//
// Concurrency: functions of their arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "het_tf/core/base/span.h"
#include "het_tf/inputs/graph/graph_file.h"

namespace het::graph {

constexpr int32_t kAnyType = -1;

// So many neighbours of each parent, over edges of this type.
struct Draw {
  int32_t type = kAnyType;
  uint32_t count = 0;
};

// What one hop draws of each parent, one after the other.
using Hop = std::vector<Draw>;
uint64_t Width(const Hop& hop);

// Which draws: those of another seed or batch are independent.
struct DrawKey {
  uint64_t seed = 0;
  uint64_t batch = 0;
};

// Whether the graph can be sampled so. InvalidArgument: a type without there being types, or beyond them; a
// hop that draws nothing.
Status CheckHops(const GraphFile& graph, Span<const Hop> hops);

// children [parents][Width(hop)]. `number`: of the hop, from 0. InvalidArgument: a parent is no node, with
// its value; the file is damaged. What children has then is not defined.
Status SampleHop(const GraphFile& graph, const DrawKey& key, uint32_t number, const Hop& hop,
                 Span<const int64_t> parents, int64_t* children);

// Nodes, by degree^0.75 or, with `uniform`, each as likely as the other.
void SampleNodes(const GraphFile& graph, const DrawKey& key, bool uniform, Span<int64_t> nodes);

}  // namespace het::graph
