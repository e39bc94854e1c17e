// A graph file (graph_format.h), mapped: all samplers and processes of a machine share one copy.
//
// Open reads the header and the offsets, O(nodes), and checks them: afterwards the edges of every node lie
// inside the file. It does not read the edges; a reader compares each neighbour that it draws with the number
// of nodes. So no reader leaves the file, whatever its bytes.
//
// A mapped file must not change (mapped_file.h); Python's writer replaces files by renaming.
//
// Thread-safe: nothing changes after Open.
#pragma once

#include <memory>
#include <string>

#include "het_tf/core/base/mapped_file.h"
#include "het_tf/core/base/span.h"
#include "het_tf/core/base/status.h"
#include "het_tf/inputs/graph/graph_format.h"

namespace het::graph {

// A range of a node's edges: [begin, end) among all edges, and the node's first edge.
struct EdgeRange {
  uint64_t begin, end, first;
  uint64_t size() const { return end - begin; }
};

class GraphFile {
 public:
  // The process's most recently opened files stay mapped, so reopening costs a stat(). NotFound: there is no
  // such file. InvalidArgument: it is damaged, cut off, no graph, or of another version. Each message names
  // the file and the remedy.
  static Result<std::shared_ptr<const GraphFile>> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const Header& header() const { return header_; }
  uint64_t nodes() const { return header_.nodes; }
  uint64_t edges() const { return header_.edges; }
  bool weighted() const { return (header_.flags & kWeighted) != 0; }
  bool typed() const { return (header_.flags & kTyped) != 0; }

  // --- edges of one node, node < nodes()
  void PrefetchNode(uint64_t node) const { __builtin_prefetch(&offsets_[node]); }
  EdgeRange EdgesOf(uint64_t node) const {
    const auto begin = static_cast<uint64_t>(offsets_[node]);
    return {begin, static_cast<uint64_t>(offsets_[node + 1]), begin};
  }
  // The edges of one type; requires typed().
  EdgeRange EdgesOfType(uint64_t node, uint8_t type) const;

  // --- one edge, edge < edges()
  void PrefetchEdge(uint64_t edge) const { __builtin_prefetch(&neighbours_[edge * header_.neighbour_bytes]); }
  // Returns the other end. In a damaged file it may be >= nodes().
  uint64_t Neighbour(uint64_t edge) const {
    return header_.neighbour_bytes == 4 ? reinterpret_cast<const uint32_t*>(neighbours_.data())[edge]
                                        : reinterpret_cast<const uint64_t*>(neighbours_.data())[edge];
  }
  // Maps `unit`, in [0, 1), to an edge of a non-empty range, by weight; requires weighted().
  uint64_t EdgeByWeight(const EdgeRange& range, double unit) const;
  // Maps `unit`, in [0, 1), to a node, by degree^0.75.
  uint64_t NodeByPopularity(double unit) const;

  // The error of a reader that met a neighbour >= nodes().
  Status Damaged(const std::string& what) const { return file_.Damaged(what); }

 private:
  explicit GraphFile(MappedFile file) : file_(std::move(file)) {}
  Status Read();
  Status CheckOffsets() const;

  MappedFile file_;
  Header header_ = {};
  // Sections; empty if the edges do not have them.
  Span<const int64_t> offsets_;
  Span<const double> popularity_;
  Span<const uint8_t> neighbours_;  // of header_.neighbour_bytes each
  Span<const double> weights_;
  Span<const uint8_t> types_;
};

}  // namespace het::graph
