// Makes the bytes of a graph file (het_tf/inputs/graph/graph_format.h) as Python's writer does.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "het_tf/inputs/graph/graph_format.h"
#include "tests/testing/change_head.h"

namespace het::testing {

struct TestEdge {
  uint64_t to;
  double weight = 1;
  uint8_t type = 0;
};

struct TestGraph {
  std::vector<std::vector<TestEdge>> nodes;  // edges grouped by type, ascending
  bool weighted = false;
  uint32_t types = 0;
  uint32_t neighbour_bytes = 4;
};

inline void SealGraph(std::string* bytes) {
  ChangeHead<graph::Header>(bytes, [](graph::Header*) {});
}

template <typename T>
uint64_t AddSection(const std::vector<T>& values, std::string* bytes) {
  bytes->resize((bytes->size() + graph::kAlign - 1) / graph::kAlign * graph::kAlign);
  const uint64_t at = bytes->size();
  bytes->append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return at;
}

inline std::string GraphBytes(const TestGraph& graph) {
  std::vector<int64_t> offsets = {0};
  std::vector<double> popularity, weights;
  std::vector<uint32_t> narrow;
  std::vector<uint64_t> wide;
  std::vector<uint8_t> types;
  for (const auto& edges : graph.nodes) {
    double sum = 0;
    for (const TestEdge& edge : edges) {
      weights.push_back(sum += edge.weight);
      narrow.push_back(static_cast<uint32_t>(edge.to));
      wide.push_back(edge.to);
      types.push_back(edge.type);
    }
    offsets.push_back(static_cast<int64_t>(wide.size()));
    popularity.push_back((popularity.empty() ? 0 : popularity.back()) +
                         std::pow(static_cast<double>(edges.size()), 0.75));
  }
  graph::Header header = {};
  std::memcpy(header.magic, graph::kMagic, sizeof header.magic);
  header.version = graph::kVersion;
  header.header_bytes = sizeof header;
  header.nodes = graph.nodes.size();
  header.edges = wide.size();
  header.neighbour_bytes = graph.neighbour_bytes;
  header.flags = (graph.weighted ? graph::kWeighted : 0) | (graph.types > 0 ? graph::kTyped : 0);
  header.types = graph.types;
  std::string bytes(sizeof header, '\0');
  header.offsets_at = AddSection(offsets, &bytes);
  header.popularity_at = AddSection(popularity, &bytes);
  header.neighbours_at = graph.neighbour_bytes == 4 ? AddSection(narrow, &bytes) : AddSection(wide, &bytes);
  if (graph.weighted) header.weights_at = AddSection(weights, &bytes);
  if (graph.types > 0) header.types_at = AddSection(types, &bytes);
  header.file_bytes = bytes.size();
  std::memcpy(bytes.data(), &header, sizeof header);
  SealGraph(&bytes);
  return bytes;
}

inline TestGraph SmallGraph(bool weighted, uint32_t types, uint32_t neighbour_bytes = 4) {
  TestGraph graph{std::vector<std::vector<TestEdge>>(5), weighted, types, neighbour_bytes};
  graph.nodes[0] = {{1, 1.0, 0}, {2, 2.0, 0}, {4, 0.5, 1}};
  graph.nodes[3] = {{4, 1.0, 1}};
  return graph;
}

}  // namespace het::testing
