// A file of a graph (graph_format.h), mapped: all samplers of a process, and all processes of a machine, read
// one copy of it.
//
// Open reads the header and the offsets, O(nodes), and refuses what a reader could not trust: after it the
// edges of every node lie inside of the file. What the edges say is not read then; a reader compares each
// neighbour that it draws with the number of nodes. So no bytes, whatever they are, make a reader leave the
// file.
//
// What is mapped must not change (mapped_file.h); Python's writer replaces a file by renaming.
//
// Thread-safe; nothing in it changes after Open.
#pragma once

#include <memory>
#include <string>

#include "het_tf/core/base/mapped_file.h"
#include "het_tf/core/base/span.h"
#include "het_tf/core/base/status.h"
#include "het_tf/inputs/graph/graph_format.h"

namespace het::graph {

// Where edges of a node stand: [begin, end) of the neighbours, and the node's first one.
struct EdgeRange {
  uint64_t begin, end, first;
  uint64_t size() const { return end - begin; }
};

class GraphFile {
 public:
  // The files that this process opened last stay mapped, so opening one again costs a stat(). NotFound: there
  // is no file. InvalidArgument: it is damaged, cut off, nobody's, or of another version. Each message names
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
  // Those of one type; typed() alone.
  EdgeRange EdgesOfType(uint64_t node, uint8_t type) const;

  // --- one edge, edge < edges()
  void PrefetchEdge(uint64_t edge) const { __builtin_prefetch(&neighbours_[edge * header_.neighbour_bytes]); }
  // The other end. It may be >= nodes() in a damaged file.
  uint64_t Neighbour(uint64_t edge) const {
    return header_.neighbour_bytes == 4 ? reinterpret_cast<const uint32_t*>(neighbours_.data())[edge]
                                        : reinterpret_cast<const uint64_t*>(neighbours_.data())[edge];
  }
  // The edge of a range that `unit`, in [0, 1), stands for, by weight; weighted() alone, and no empty range.
  uint64_t EdgeByWeight(const EdgeRange& range, double unit) const;
  // The node that `unit`, in [0, 1), stands for, by degree^0.75.
  uint64_t NodeByPopularity(double unit) const;

  // What a reader says that met a neighbour >= nodes().
  Status Damaged(const std::string& what) const { return file_.Damaged(what); }

 private:
  explicit GraphFile(MappedFile file) : file_(std::move(file)) {}
  Status Read();
  Status CheckOffsets() const;

  MappedFile file_;
  Header header_ = {};
  // Sections; empty where the edges have no such.
  Span<const int64_t> offsets_;
  Span<const double> popularity_;
  Span<const uint8_t> neighbours_;  // of header_.neighbour_bytes each
  Span<const double> weights_;
  Span<const uint8_t> types_;
};

}  // namespace het::graph
