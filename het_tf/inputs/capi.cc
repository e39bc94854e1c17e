#include "het_tf/inputs/capi.h"

#include <nlohmann/json.hpp>

#include "het_tf/core/base/answer.h"
#include "het_tf/inputs/graph/graph_file.h"

const char* HetInputsMarch() { return HET_MARCH; }

int HetGraphInspect(const char* path) {
  return het::Answer([&]() -> het::Status {
    HET_ASSIGN_OR_RETURN(const auto graph, het::graph::GraphFile::Open(path));
    const het::graph::Header& header = graph->header();
    het::Text() = nlohmann::json({{"nodes", header.nodes},
                                  {"edges", header.edges},
                                  {"weighted", graph->weighted()},
                                  {"types", header.types},
                                  {"symmetric", (header.flags & het::graph::kSymmetric) != 0},
                                  {"self_loops", header.self_loops},
                                  {"duplicates", header.duplicates},
                                  {"isolated", header.isolated},
                                  {"bytes", header.file_bytes},
                                  {"neighbour_bytes", header.neighbour_bytes},
                                  {"offsets_at", header.offsets_at},
                                  {"neighbours_at", header.neighbours_at}})
                      .dump();
    return het::Status();
  });
}
