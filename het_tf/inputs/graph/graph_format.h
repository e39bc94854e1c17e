// The format of a graph file, which processes map and never write: compressed sparse rows (CSR).
//
//   header (192 bytes) | offsets | popularity | neighbours | weights | types
//
//   offsets      int64 [nodes + 1]    the edges of node v are offsets[v] .. offsets[v + 1]
//   popularity   float64 [nodes]      prefix sums of degree^0.75 over the nodes, this one included; for
//                                     drawing negatives
//   neighbours   uint32 or int64 [edges]   the other end; 4 bytes if there are at most 2^32 nodes
//   weights      float64 [edges]      prefix sums of weights over the node's edges, this one included
//   types        uint8 [edges]        ascending within a node
//
// The last two are optional. Every section begins at a multiple of 64. Integers are little-endian, floats
// IEEE. With prefix sums a draw by weight is one binary search, among a node's edges of all types or of one.
//
// Example: edges 0-1 and 0-2, both ways: offsets 0 2 3 4, neighbours 1 2 0 0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace het::graph {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian and mapped as they are");

constexpr char kMagic[8] = {'H', 'E', 'T', 'G', 'R', 'A', 'P', 'H'};
constexpr uint32_t kVersion = 1;
constexpr size_t kAlign = 64;

constexpr uint32_t kWeighted = 1;   // there is a section of weights
constexpr uint32_t kTyped = 2;      // there is a section of types
constexpr uint32_t kSymmetric = 4;  // the file has every edge in both directions

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;
  uint64_t file_bytes;
  uint64_t nodes;
  uint64_t edges;
  uint32_t neighbour_bytes;  // 4 or 8
  uint32_t flags;
  uint32_t types;  // types of edges are in [0, types); 0: edges have none
  uint32_t zero;
  uint64_t offsets_at;
  uint64_t popularity_at;
  uint64_t neighbours_at;
  uint64_t weights_at;  // 0: none
  uint64_t types_at;    // 0: none
  // Counts of edges and nodes in the writer's input.
  uint64_t self_loops;  // left out
  uint64_t duplicates;  // merged into others
  uint64_t isolated;    // nodes without an edge
  uint8_t reserved[64];
  uint64_t checksum;  // XXH3-64 of the bytes before
};
static_assert(sizeof(Header) == 192);

}  // namespace het::graph
