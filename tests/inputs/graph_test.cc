// Graphs: draws follow the edges, and a damaged file is refused or read within its bounds.

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "het_tf/inputs/graph/neighbour_sampler.h"
#include "tests/testing/graph_bytes.h"
#include "tests/testing/random.h"
#include "tests/testing/status.h"
#include "tests/testing/temp_folder.h"

namespace het::graph {
namespace {

using het::testing::GraphBytes;
using het::testing::PutFile;
using het::testing::Random;
using het::testing::TestGraph;

class GraphTest : public het::testing::FolderTest {
 protected:
  std::shared_ptr<const GraphFile> Open(const TestGraph& graph) {
    PutFile(path_, GraphBytes(graph));
    return ValueOf(GraphFile::Open(path_));
  }
  // Returns the error of opening, or "".
  std::string Refusal(const std::string& bytes) {
    PutFile(path_, bytes);
    return GraphFile::Open(path_).status().message();
  }
  static std::vector<int64_t> Sample(const GraphFile& graph, const DrawKey& key, const Hop& hop,
                                     const std::vector<int64_t>& parents, uint32_t number = 0) {
    std::vector<int64_t> children(parents.size() * Width(hop), -7);
    EXPECT_TRUE(Ok(SampleHop(graph, key, number, hop, parents, children.data())));
    return children;
  }
  // The share of each node among draws from node 0.
  static std::map<int64_t, double> Shares(const GraphFile& graph, const Hop& hop) {
    const std::vector<int64_t> parents(2000, 0);
    const auto children = Sample(graph, {3, 4}, hop, parents);
    std::map<int64_t, double> shares;
    for (int64_t child : children) shares[child] += 1.0 / static_cast<double>(children.size());
    return shares;
  }

  const std::string path_ = Path("graph");
};

TEST_F(GraphTest, DrawsAreUniformOverTheNeighbours) {
  for (uint32_t bytes : {4, 8}) {
    TestGraph graph{std::vector<std::vector<het::testing::TestEdge>>(6)};
    graph.neighbour_bytes = bytes;
    graph.nodes[0] = {{1}, {3}, {5}};
    const auto shares = Shares(*Open(graph), {{kAnyType, 10}});
    ASSERT_EQ(shares.size(), 3u);
    for (int64_t node : {1, 3, 5}) EXPECT_NEAR(shares.at(node), 1.0 / 3, 0.02);  // 6 standard deviations
  }
}

TEST_F(GraphTest, DrawsFollowWeightsAndTypes) {
  TestGraph graph{std::vector<std::vector<het::testing::TestEdge>>(8)};
  graph.nodes[0] = {{1, 1.0, 0}, {2, 3.0, 0}, {3, 6.0, 2}, {4, 2.0, 2}};
  graph.weighted = true;
  graph.types = 4;
  const auto file = Open(graph);
  const auto any = Shares(*file, {{kAnyType, 10}});
  EXPECT_NEAR(any.at(1), 1.0 / 12, 0.02);
  EXPECT_NEAR(any.at(2), 3.0 / 12, 0.02);
  EXPECT_NEAR(any.at(3), 6.0 / 12, 0.02);
  const auto of_two = Shares(*file, {{2, 10}});
  ASSERT_EQ(of_two.size(), 2u);
  EXPECT_NEAR(of_two.at(3), 0.75, 0.02);
  EXPECT_NEAR(Shares(*file, {{1, 5}}).at(0), 1.0, 1e-9);  // no edge of type 1: itself
  const auto one = Sample(*file, {1, 1}, {{0, 2}, {2, 1}}, {0});
  EXPECT_TRUE(one[0] <= 2 && one[1] <= 2 && one[2] >= 3);  // one type after the other
}

TEST_F(GraphTest, DrawsDependOnTheirPlaceAlone) {
  Random random(5);
  TestGraph graph{std::vector<std::vector<het::testing::TestEdge>>(500)};
  for (auto& edges : graph.nodes) {
    for (uint64_t i = random.Below(40); i > 0; --i) edges.push_back({random.Below(500)});
  }
  const auto file = Open(graph);
  std::vector<int64_t> parents(3000);
  for (int64_t& parent : parents) parent = static_cast<int64_t>(random.Below(500));
  const Hop hop = {{kAnyType, 7}};
  const auto all = Sample(*file, {9, 2}, hop, parents);
  parents.resize(1001);  // changes the blocks
  const auto some = Sample(*file, {9, 2}, hop, parents);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()));
  for (size_t i = 0; i < some.size(); ++i) {
    const auto& edges = graph.nodes[static_cast<size_t>(parents[i / 7])];
    const bool is_neighbour = std::any_of(edges.begin(), edges.end(), [&](const auto& edge) {
      return static_cast<int64_t>(edge.to) == some[i];
    });
    EXPECT_TRUE(is_neighbour || (edges.empty() && some[i] == parents[i / 7]));
  }
  // With another seed, batch or hop, or a seed that offsets the batch, about one draw in twenty is equal.
  const std::vector<std::vector<int64_t>> drawn = {
      some, Sample(*file, {10, 2}, hop, parents), Sample(*file, {9, 3}, hop, parents),
      Sample(*file, {10, 1}, hop, parents), Sample(*file, {9, 2}, hop, parents, 1)};
  for (size_t a = 0; a < drawn.size(); ++a) {
    for (size_t b = a + 1; b < drawn.size(); ++b) {
      size_t same = 0;
      for (size_t i = 0; i < some.size(); ++i) same += drawn[a][i] == drawn[b][i];
      EXPECT_LT(same, some.size() / 4) << a << " " << b;
    }
  }
  // A node's draws at different places of a batch are independent, also in other blocks.
  TestGraph star{std::vector<std::vector<het::testing::TestEdge>>(101)};
  for (uint64_t node = 1; node <= 100; ++node) star.nodes[0].push_back({node});
  const auto draws = Sample(*Open(star), {9, 2}, hop, std::vector<int64_t>(3000, 0));
  std::set<std::vector<int64_t>> rows;
  for (size_t i = 0; i < draws.size(); i += 7) rows.insert(std::vector<int64_t>(&draws[i], &draws[i] + 7));
  EXPECT_EQ(rows.size(), 3000u);  // of 100^7
}

TEST_F(GraphTest, BadRequestsAreNamed) {
  TestGraph graph{std::vector<std::vector<het::testing::TestEdge>>(3)};
  const auto file = Open(graph);
  int64_t child = 0;
  for (int64_t bad : {int64_t{-1}, int64_t{3}, INT64_MIN, INT64_MAX}) {
    const Status status = SampleHop(*file, {}, 0, {{kAnyType, 1}}, {&bad, 1}, &child);
    EXPECT_NE(status.message().find("nodes has " + std::to_string(bad)), std::string::npos);
    EXPECT_NE(status.message().find("ids from 0 to 2"), std::string::npos);
  }
  const Hop typed = {{1, 1}}, nothing;
  EXPECT_NE(CheckHops(*file, {&typed, 1}).message().find("have no types"), std::string::npos);
  EXPECT_NE(CheckHops(*file, {&nothing, 1}).message().find("draws nothing"), std::string::npos);
  graph.types = 1;
  EXPECT_NE(CheckHops(*Open(graph), {&typed, 1}).message().find("are 0 to 0"), std::string::npos);
  EXPECT_EQ(GraphFile::Open(folder_.path() + "/none").status().code(), Code::kNotFound);
  EXPECT_NE(GraphFile::Open(folder_.path()).status().message().find("not a regular file"), std::string::npos);
}

// Forged headers.
TEST_F(GraphTest, LyingHeadersAreRefused) {
  const auto with = [&](const std::function<void(Header*)>& change) {
    std::string bytes = GraphBytes(het::testing::SmallGraph(true, 2));
    het::testing::ChangeHead<Header>(&bytes, change);
    return Refusal(bytes);
  };
  EXPECT_EQ(with([](Header*) {}), "");
  EXPECT_NE(with([](Header* h) { h->version = 9; }).find("version 9"), std::string::npos);
  for (uint64_t nodes : {uint64_t{0}, UINT64_MAX, (uint64_t{1} << 61) - 1}) {
    EXPECT_NE(with([=](Header* h) { h->nodes = nodes; }), "") << nodes;
  }
  EXPECT_NE(with([](Header* h) { h->edges = UINT64_MAX / 4; }), "");
  EXPECT_NE(with([](Header* h) { h->edges += 1; }), "");
  EXPECT_NE(with([](Header* h) { h->neighbour_bytes = 3; }), "");
  EXPECT_NE(with([](Header* h) { h->types = 0; }), "");
  EXPECT_NE(with([](Header* h) { h->flags |= 64; }), "");
  EXPECT_NE(with([](Header* h) { h->offsets_at = 0; }), "");
  EXPECT_NE(with([](Header* h) { h->offsets_at += 1; }), "");
  EXPECT_NE(with([](Header* h) { h->neighbours_at = UINT64_MAX - 63; }), "");
  EXPECT_NE(with([](Header* h) { h->weights_at = h->file_bytes / 64 * 64; }), "");
  EXPECT_NE(with([](Header* h) { h->types_at = h->file_bytes + 64; }), "");
}

TEST_F(GraphTest, LyingSectionsAreRefusedOrReadWithinBounds) {
  Header header;
  std::string bytes = GraphBytes(het::testing::SmallGraph(true, 2));
  std::memcpy(&header, bytes.data(), sizeof header);
  for (int64_t lie : {int64_t{-1}, int64_t{4}, int64_t{1} << 40}) {  // offsets are 0 3 3 3 4 4
    std::string other = bytes;
    std::memcpy(other.data() + header.offsets_at + 8, &lie, sizeof lie);
    EXPECT_NE(Refusal(other).find("offsets fall"), std::string::npos) << lie;
  }
  const uint32_t lie = 5;
  std::string other = bytes;
  std::memcpy(other.data() + header.neighbours_at + 4, &lie, sizeof lie);
  PutFile(path_, other);
  const auto file = GraphFile::Open(path_).value();
  const std::vector<int64_t> parents(100, 0);
  std::vector<int64_t> children(100);
  const Status status = SampleHop(*file, {}, 0, {{kAnyType, 1}}, parents, children.data());
  EXPECT_NE(status.message().find("node 0 has the neighbour 5 of 5 nodes"), std::string::npos);
}

}  // namespace
}  // namespace het::graph
