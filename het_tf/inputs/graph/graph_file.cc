#include "het_tf/inputs/graph/graph_file.h"

#include <algorithm>
#include <deque>
#include <mutex>

namespace het::graph {
namespace {

using Identity = MappedFile::Identity;

constexpr MappedFile::Kind kGraphs = {"graph",
                                      "write it with Graph.from_edges, or give a graph file's path",
                                      "write it again, or copy it again",
                                      "write it again with this het_tf",
                                      Code::kInvalidArgument,
                                      Code::kInvalidArgument};

// The most recently opened graphs.
class KeptGraphs {
 public:
  std::shared_ptr<const GraphFile> Find(const std::string& path, const Identity& identity) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const Kept& kept : kept_) {
      if (kept.graph->path() == path && kept.identity == identity) return kept.graph;
    }
    return nullptr;
  }
  void Keep(const Identity& identity, const std::shared_ptr<const GraphFile>& graph) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto is_old = [&](const Kept& kept) { return kept.graph->path() == graph->path(); };
    kept_.erase(std::remove_if(kept_.begin(), kept_.end(), is_old), kept_.end());
    kept_.push_back({identity, graph});
    if (kept_.size() > kMost) kept_.pop_front();
  }

 private:
  static constexpr size_t kMost = 16;
  struct Kept {
    Identity identity;
    std::shared_ptr<const GraphFile> graph;
  };
  std::mutex mutex_;
  std::deque<Kept> kept_;  // newest last
};

KeptGraphs& TheKeptGraphs() {
  static auto* const graphs = new KeptGraphs;  // threads may sample while the process ends
  return *graphs;
}

}  // namespace

Result<std::shared_ptr<const GraphFile>> GraphFile::Open(const std::string& path) {
  HET_ASSIGN_OR_RETURN(const Identity identity, MappedFile::Find(path, kGraphs));
  if (auto graph = TheKeptGraphs().Find(path, identity)) return graph;
  HET_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path, kGraphs));
  std::shared_ptr<GraphFile> graph(new GraphFile(std::move(file)));
  HET_RETURN_IF_ERROR(graph->Read());
  TheKeptGraphs().Keep(graph->file_.identity(), graph);
  return std::shared_ptr<const GraphFile>(std::move(graph));
}

Status GraphFile::Read() {
  HET_RETURN_IF_ERROR(file_.ReadHead(kMagic, kVersion, &header_));
  const Header& h = header_;  // the checksum catches accidents, the checks below anything else
  if (h.nodes == 0 || (h.neighbour_bytes != 4 && h.neighbour_bytes != 8) || typed() != (h.types > 0) ||
      h.types > 256 || (h.flags & ~(kWeighted | kTyped | kSymmetric)) != 0) {
    return Damaged("its header describes no graph");
  }
  HET_ASSIGN_OR_RETURN(popularity_, file_.Section<double>(h.popularity_at, h.nodes));
  // nodes is at most the number of sums, so nodes + 1 cannot overflow; nor can edges * neighbour_bytes.
  HET_ASSIGN_OR_RETURN(offsets_, file_.Section<int64_t>(h.offsets_at, h.nodes + 1));
  if (h.edges > file_.size() / h.neighbour_bytes) return Damaged("it has fewer edges than its header says");
  HET_ASSIGN_OR_RETURN(neighbours_, file_.Section<uint8_t>(h.neighbours_at, h.edges * h.neighbour_bytes));
  if (weighted()) {
    HET_ASSIGN_OR_RETURN(weights_, file_.Section<double>(h.weights_at, h.edges));
  }
  if (typed()) {
    HET_ASSIGN_OR_RETURN(types_, file_.Section<uint8_t>(h.types_at, h.edges));
  }
  return CheckOffsets();
}

Status GraphFile::CheckOffsets() const {
  const uint64_t nodes = header_.nodes;
  if (offsets_[0] != 0 || offsets_[nodes] != static_cast<int64_t>(header_.edges)) {
    return Damaged("its offsets do not go from 0 to its number of edges");
  }
  constexpr uint64_t kBlock = 4096;  // checked without a branch for each element
  for (uint64_t begin = 0; begin < nodes; begin += kBlock) {
    const uint64_t end = std::min(nodes, begin + kBlock);
    bool falls = false;
    for (uint64_t node = begin; node < end; ++node) falls |= offsets_[node + 1] < offsets_[node];
    if (falls) {
      return Damaged("its offsets fall between the nodes " + std::to_string(begin) + " and " +
                     std::to_string(end));
    }
  }
  return Status();
}

EdgeRange GraphFile::EdgesOfType(uint64_t node, uint8_t type) const {
  const EdgeRange all = EdgesOf(node);
  const uint8_t* const types = types_.data();
  const auto found = std::equal_range(types + all.begin, types + all.end, type);
  return {static_cast<uint64_t>(found.first - types), static_cast<uint64_t>(found.second - types), all.first};
}

uint64_t GraphFile::EdgeByWeight(const EdgeRange& range, double unit) const {
  const double before = range.begin == range.first ? 0.0 : weights_[range.begin - 1];
  const double point = before + unit * (weights_[range.end - 1] - before);
  // Finds the first edge whose sum exceeds the point; after rounding errors, the last edge.
  const double* const sums = weights_.data();
  return static_cast<uint64_t>(std::upper_bound(sums + range.begin, sums + range.end - 1, point) - sums);
}

uint64_t GraphFile::NodeByPopularity(double unit) const {
  const double* const sums = popularity_.data();
  const double* const last = sums + header_.nodes - 1;
  return static_cast<uint64_t>(std::upper_bound(sums, last, unit * *last) - sums);
}

}  // namespace het::graph
