#include "het_tf/inputs/graph/neighbour_sampler.h"

#include <algorithm>
#include <string>

#include "het_tf/core/base/hash.h"

namespace het::graph {
namespace {

constexpr uint64_t kGamma = 0x9e3779b97f4a7c15ULL;
constexpr uint64_t kOfNodes = 0xffffffffULL;  // in place of a hop's number
constexpr uint64_t kItself = UINT64_MAX;      // in place of an edge: the node itself
constexpr size_t kBlockDraws = 4096;

// The random numbers of one parent.
class Stream {
 public:
  explicit Stream(uint64_t state) : state_(state) {}
  uint64_t Next() { return Mix64(state_ += kGamma); }
  // In [0, n): the product's high half (Lemire 2019, without rejection: the bias is at most n / 2^64).
  uint64_t Below(uint64_t n) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * n) >> 64);
  }
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t state_;
};

// A hop's streams, one a parent. Two mixing rounds make neighbouring seeds, batches and hops independent.
class Streams {
 public:
  Streams(const DrawKey& key, uint64_t hop)
      : state_(Mix64(Mix64(Mix64(key.seed + kGamma) ^ (key.batch + kGamma)) + hop * kGamma)) {}
  Stream Of(uint64_t place) const { return Stream(Mix64(state_ + place * kGamma)); }

 private:
  const uint64_t state_;
};

// Finds the edges of one block of parents, so that all of them are prefetched before one is read.
void DrawEdges(const GraphFile& graph, const Hop& hop, uint64_t node, Stream stream, uint64_t* edges) {
  for (const Draw& draw : hop) {
    const EdgeRange range = draw.type == kAnyType ? graph.EdgesOf(node)
                                                  : graph.EdgesOfType(node, static_cast<uint8_t>(draw.type));
    for (uint32_t i = 0; i < draw.count; ++i, ++edges) {
      if (range.size() == 0) {
        *edges = kItself;
        continue;
      }
      *edges = graph.weighted() ? graph.EdgeByWeight(range, stream.Unit())
                                : range.begin + stream.Below(range.size());
      graph.PrefetchEdge(*edges);
    }
  }
}

Status NoNode(const GraphFile& graph, int64_t node) {
  return InvalidArgument("nodes has " + std::to_string(node) + ", which is not a node of " + graph.path() +
                         ": give ids from 0 to " + std::to_string(graph.nodes() - 1));
}

}  // namespace

uint64_t Width(const Hop& hop) {
  uint64_t width = 0;
  for (const Draw& draw : hop) width += draw.count;
  return width;
}

Status CheckHops(const GraphFile& graph, Span<const Hop> hops) {
  for (const Hop& hop : hops) {
    if (Width(hop) == 0) return InvalidArgument("fanouts has a hop that draws nothing; give 1 or more a hop");
    for (const Draw& draw : hop) {
      if (draw.type == kAnyType) continue;
      if (!graph.typed()) {
        return InvalidArgument("fanouts names the type " + std::to_string(draw.type) + ", and the edges of " +
                               graph.path() + " have no types; give whole numbers, or write it with types");
      }
      if (draw.type < 0 || static_cast<uint32_t>(draw.type) >= graph.header().types) {
        return InvalidArgument("fanouts names the type " + std::to_string(draw.type) + ", and the types of " +
                               graph.path() + " are 0 to " + std::to_string(graph.header().types - 1));
      }
    }
  }
  return Status();
}

Status SampleHop(const GraphFile& graph, const DrawKey& key, uint32_t number, const Hop& hop,
                 Span<const int64_t> parents, int64_t* children) {
  const Streams streams(key, number);
  const size_t width = Width(hop);
  const size_t block = std::max<size_t>(1, kBlockDraws / width);
  std::vector<uint64_t> edges(block * width);
  for (size_t begin = 0; begin < parents.size(); begin += block) {
    const size_t end = std::min(parents.size(), begin + block);
    for (size_t p = begin; p < end; ++p) {
      if (static_cast<uint64_t>(parents[p]) >= graph.nodes()) return NoNode(graph, parents[p]);
      graph.PrefetchNode(static_cast<uint64_t>(parents[p]));
    }
    for (size_t p = begin; p < end; ++p) {
      DrawEdges(graph, hop, static_cast<uint64_t>(parents[p]), streams.Of(p), &edges[(p - begin) * width]);
    }
    for (size_t p = begin; p < end; ++p) {
      for (size_t i = 0; i < width; ++i) {
        const uint64_t edge = edges[(p - begin) * width + i];
        const uint64_t child = edge == kItself ? static_cast<uint64_t>(parents[p]) : graph.Neighbour(edge);
        if (child >= graph.nodes()) {
          return graph.Damaged("node " + std::to_string(parents[p]) + " has the neighbour " +
                               std::to_string(child) + " of " + std::to_string(graph.nodes()) + " nodes");
        }
        children[p * width + i] = static_cast<int64_t>(child);
      }
    }
  }
  return Status();
}

void SampleNodes(const GraphFile& graph, const DrawKey& key, bool uniform, Span<int64_t> nodes) {
  const Streams streams(key, kOfNodes);
  for (size_t i = 0; i < nodes.size(); ++i) {
    Stream stream = streams.Of(i);
    const uint64_t node = uniform ? stream.Below(graph.nodes()) : graph.NodeByPopularity(stream.Unit());
    nodes[i] = static_cast<int64_t>(node);
  }
}

}  // namespace het::graph
