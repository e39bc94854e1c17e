// Corner cases at the store: rows loaded during training.
#include <gtest/gtest.h>

#include "het_tf/core/store/chunk.h"
#include "tests/testing/world/world_test.h"

namespace het::testing {
namespace {

class Load : public WorldTest {
 protected:
  // A checkpoint of partition 0 as of now.
  std::vector<Bytes> Checkpoint() {
    return world().service().WithPartition(0, [](Partition& partition) {
      std::vector<Bytes> chunks;
      ChunkWriter writer(partition);
      for (Bytes chunk; writer.Next(&chunk);) chunks.push_back(chunk);
      return chunks;
    });
  }
  void LoadAgain(const std::vector<Bytes>& chunks) {
    world().service().WithPartition(0, [&](Partition& partition) {
      for (const Bytes& chunk : chunks) {
        const Status status = LoadChunk({chunk.data(), chunk.size()}, &partition, nullptr, RandomId());
        EXPECT_TRUE(status.ok()) << status.message();
      }
    });
  }
  float Seen(size_t w, Key key) {
    auto step = world().NewStep({{key}});
    EXPECT_TRUE(world().client(w).Read(step->MakeRead(), world().NewToken()).ok());
    return step->Value(At(key).first, key)[w];
  }
};

TEST_F(Load, DuringTraining) {
  WorldConfig config = Bounded(0);
  config.workers = 2;
  Make(config);
  for (int i = 0; i < 3; ++i) Train(0, {1, 2});
  Train(1, {1});
  const std::vector<Bytes> checkpoint = Checkpoint();
  for (int i = 0; i < 5; ++i) Train(i % 2, {1, 2});
  LoadAgain(checkpoint);
  for (size_t w = 0; w < 2; ++w) {
    const float loaded = w == 0 ? kInitial - 3 : kInitial - 1;
    EXPECT_EQ(Seen(w, 1), loaded) << "the loaded row";
    auto step = world().NewStep({{1}});
    for (auto& [where, part] : step->parts()) part.sums[2] = 1;
    Client& client = world().client(w);
    ASSERT_TRUE(client.Read(step->MakeRead(), 1000).ok());
    ASSERT_TRUE(client.Write(step->MakeWrite(1), 1000, nullptr).ok());
    ASSERT_TRUE(client.Flush().ok());
    EXPECT_EQ(world().ServerClock(At(1)), 5 + static_cast<int64_t>(w)) << "it continues from there";
  }
  Abandon();  // the oracle does not know loading
}

// A loaded row happens to have the clock of a worker's copy: only the epoch differs. A worker that has never
// pushed does not learn it from forgotten clients.
TEST_F(Load, LoadedRowWithTheReadersClock) {
  WorldConfig config = Bounded(0);
  config.workers = 2;
  Make(config);
  Train(0, {1});
  const std::vector<Bytes> checkpoint = Checkpoint();
  world().service().ClearTable(At(1).first);
  {
    auto other = world().NewStep({{1}});
    for (auto& [where, part] : other->parts()) std::fill(part.sums.begin(), part.sums.end(), 7.0f);
    ASSERT_TRUE(world().client(0).Read(other->MakeRead(), 500).ok());
    ASSERT_TRUE(world().client(0).Write(other->MakeWrite(1), 500, nullptr).ok());
  }
  ASSERT_EQ(world().ServerClock(At(1)), 1);
  EXPECT_EQ(Seen(1, 1), kInitial - 7);
  LoadAgain(checkpoint);
  ASSERT_EQ(world().ServerClock(At(1)), 1);
  EXPECT_EQ(Seen(1, 1), kInitial) << "the loaded row";
  Abandon();
}

}  // namespace
}  // namespace het::testing
