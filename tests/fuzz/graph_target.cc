// What a sampler maps: the file of a graph. Any bytes are opened or refused, and whatever was opened can be
// sampled from every node.
//
// The header's checksum is made right before the file is opened: else nothing but it would be tried.

#include <algorithm>

#include "het_tf/inputs/graph/neighbour_sampler.h"
#include "tests/fuzz/target.h"
#include "tests/testing/graph_bytes.h"

namespace het::fuzz {
namespace {

using het::testing::SmallGraph;

std::vector<Bytes> GraphSeeds() {
  std::vector<Bytes> seeds;
  for (const auto& graph : {SmallGraph(false, 0), SmallGraph(false, 0, 8), SmallGraph(true, 0),
                            SmallGraph(false, 2), SmallGraph(true, 2, 8)}) {
    seeds.push_back(Text(het::testing::GraphBytes(graph)));
  }
  return seeds;
}

void SampleAll(const graph::GraphFile& file) {
  std::vector<int64_t> parents;
  for (uint64_t node = 0; node < std::min<uint64_t>(file.nodes(), 512); ++node) {
    parents.push_back(static_cast<int64_t>(node));
  }
  parents.push_back(static_cast<int64_t>(file.nodes() - 1));
  std::vector<graph::Hop> hops = {{{graph::kAnyType, 3}}};
  if (file.typed()) hops.push_back({{0, 1}, {static_cast<int32_t>(file.header().types - 1), 1}});
  if (!graph::CheckHops(file, hops).ok()) Fail("good hops are refused");
  std::vector<int64_t> children(3 * parents.size());
  for (const graph::Hop& hop : hops) {
    const Span<const int64_t> all(parents.data(), parents.size());
    if (graph::SampleHop(file, {1, 2}, 0, hop, all, children.data()).ok()) continue;
  }
  for (bool uniform : {false, true}) {
    graph::SampleNodes(file, {1, 2}, uniform, children);
    for (int64_t node : children) {
      if (static_cast<uint64_t>(node) >= file.nodes()) Fail("a negative is no node");
    }
  }
}

void RunGraph(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  het::testing::SealGraph(&bytes);
  static const std::string path = PathOf("graph");
  PutFile(path, Bytes(bytes.begin(), bytes.end()));
  const auto file = graph::GraphFile::Open(path);
  if (file.ok()) SampleAll(*file.value());
  unlink(path.c_str());
}

const bool graph_target = Register({"graph", RunGraph, GraphSeeds});

}  // namespace
}  // namespace het::fuzz
