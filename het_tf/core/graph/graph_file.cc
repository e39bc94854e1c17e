#include "het_tf/core/graph/graph_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <tuple>

#include "het_tf/core/checkpoint/checksum.h"

namespace het::graph {
namespace {

// Which file a path leads to.
using Identity = std::tuple<dev_t, ino_t, off_t, int64_t, int64_t>;
Identity IdentityOf(const struct stat& status) {
  return {status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

Status CannotOpenGraph(const std::string& path, int error) {
  const Code code = error == ENOENT || error == ENOTDIR ? Code::kNotFound : Code::kFile;
  return Status(code, "cannot open the graph " + path + ": " + std::strerror(error) +
                          "; write it with Graph.from_edges, or give the path of one");
}

// The graphs that were opened last.
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
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return CannotOpenGraph(path, errno);
  if (auto graph = TheKeptGraphs().Find(path, IdentityOf(status))) return graph;

  // O_NONBLOCK: a FIFO is opened without waiting for its writer, and refused.
  const int descriptor = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return CannotOpenGraph(path, errno);
  std::shared_ptr<GraphFile> graph(new GraphFile(path));
  Status mapped = fstat(descriptor, &status) != 0 ? CannotOpenGraph(path, errno)
                  : !S_ISREG(status.st_mode)
                      ? InvalidArgument(path + " is no regular file; give a graph file")
                      : graph->Map(descriptor, static_cast<uint64_t>(status.st_size));
  (void)close(descriptor);  // the mapping does not need it
  if (!mapped.ok()) return mapped;
  TheKeptGraphs().Keep(IdentityOf(status), graph);
  return std::shared_ptr<const GraphFile>(std::move(graph));
}

GraphFile::~GraphFile() {
  if (map_ != nullptr) munmap(const_cast<uint8_t*>(map_), map_bytes_);
}

Status GraphFile::Map(int descriptor, uint64_t size) {
  if (size < sizeof(Header)) {
    return Damaged("it has " + std::to_string(size) + " bytes, less than a header");
  }
  void* map = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (map == MAP_FAILED) return CannotOpenGraph(path_, errno);
  map_ = static_cast<const uint8_t*>(map);
  map_bytes_ = size;
  std::memcpy(&header_, map_, sizeof header_);
  return Check(size);
}

Status GraphFile::Check(uint64_t file_bytes) {
  const Header& h = header_;
  if (std::memcmp(h.magic, kMagic, sizeof kMagic) != 0) return Damaged("it does not begin as a graph");
  if (h.version != kVersion) {
    return InvalidArgument("the graph " + path_ + " has version " + std::to_string(h.version) +
                           ", and this het_tf reads version " + std::to_string(kVersion) +
                           "; write it again with this het_tf");
  }
  if (h.header_bytes != sizeof(Header) || h.checksum != Checksum::Of(&h, offsetof(Header, checksum))) {
    return Damaged("the checksum of its header is wrong");
  }
  if (h.file_bytes != file_bytes) {
    return Damaged("it has " + std::to_string(file_bytes) + " bytes and should have " +
                   std::to_string(h.file_bytes));
  }
  HET_RETURN_IF_ERROR(CheckSections());
  offsets_ = reinterpret_cast<const int64_t*>(map_ + h.offsets_at);
  popularity_ = reinterpret_cast<const double*>(map_ + h.popularity_at);
  neighbours_ = map_ + h.neighbours_at;
  if (h.flags & kWeighted) weights_ = reinterpret_cast<const double*>(map_ + h.weights_at);
  if (h.flags & kTyped) types_ = map_ + h.types_at;
  return CheckOffsets();
}

// The checksum keeps out accidents; this keeps out everything else.
Status GraphFile::CheckSections() const {
  const Header& h = header_;
  const bool typed = (h.flags & kTyped) != 0;
  if (h.nodes == 0 || (h.neighbour_bytes != 4 && h.neighbour_bytes != 8) || typed != (h.types > 0) ||
      h.types > 256 || (h.flags & ~(kWeighted | kTyped | kSymmetric)) != 0) {
    return Damaged("its header describes no graph");
  }
  const auto fits = [&](uint64_t at, uint64_t count, uint64_t element) {
    return at % kAlign == 0 && at >= sizeof(Header) && at <= h.file_bytes &&
           count <= (h.file_bytes - at) / element;
  };
  // nodes + 1 elements: nodes is at most file_bytes / 8 where nodes elements fit, and nothing overflows.
  if (!fits(h.offsets_at, h.nodes, sizeof(int64_t)) || !fits(h.offsets_at, h.nodes + 1, sizeof(int64_t)) ||
      !fits(h.popularity_at, h.nodes, sizeof(double)) || !fits(h.neighbours_at, h.edges, h.neighbour_bytes) ||
      ((h.flags & kWeighted) != 0 && !fits(h.weights_at, h.edges, sizeof(double))) ||
      (typed && !fits(h.types_at, h.edges, 1))) {
    return Damaged("its header names parts that are not in it");
  }
  return Status();
}

Status GraphFile::CheckOffsets() const {
  const uint64_t nodes = header_.nodes;
  if (offsets_[0] != 0 || offsets_[nodes] != static_cast<int64_t>(header_.edges)) {
    return Damaged("its offsets do not go from 0 to its number of edges");
  }
  constexpr uint64_t kBlock = 4096;  // looked at without a branch an element
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
  const auto found = std::equal_range(types_ + all.begin, types_ + all.end, type);
  return {static_cast<uint64_t>(found.first - types_), static_cast<uint64_t>(found.second - types_),
          all.first};
}

uint64_t GraphFile::EdgeByWeight(const EdgeRange& range, double unit) const {
  const double before = range.begin == range.first ? 0.0 : weights_[range.begin - 1];
  const double point = before + unit * (weights_[range.end - 1] - before);
  // The first edge whose sum exceeds the point; the last one where rounding found none.
  const double* found = std::upper_bound(weights_ + range.begin, weights_ + range.end - 1, point);
  return static_cast<uint64_t>(found - weights_);
}

uint64_t GraphFile::NodeByPopularity(double unit) const {
  const double* last = popularity_ + header_.nodes - 1;
  return static_cast<uint64_t>(std::upper_bound(popularity_, last, unit * *last) - popularity_);
}

Status GraphFile::Damaged(const std::string& what) const {
  return InvalidArgument("the graph " + path_ + " is damaged: " + what +
                         "; write it again, or copy it again");
}

}  // namespace het::graph
