// Overlapping steps: lookups whose gradients come late or never, validation in between, reads and pushes of a
// key that cross on the wire.
#include <gtest/gtest.h>

#include "tests/testing/held_lines.h"
#include "tests/testing/world/world_test.h"

namespace het::testing {
namespace {

using Overlap = WorldTest;

// --- steps and holds

TEST_F(Overlap, TenThousandLookupsNeverDifferentiated) {
  Make(Bounded(kUnbounded, 100));
  for (int i = 0; i < 10000; ++i) Read(0, {i % 50, 1000 + i % 77});
  EXPECT_LE(HeldLines(*cache()), 2 * LookupNumbers::kSteps);
  EXPECT_LE(cache()->lines().size(), 100 + 2 * LookupNumbers::kSteps);
  for (size_t i = 0; i < LookupNumbers::kSteps; ++i) Train(0, {1});
  EXPECT_EQ(HeldLines(*cache()), 0u);
  EXPECT_LE(cache()->lines().size(), 100u);
}

TEST_F(Overlap, ValidationDoesNotTouchThePolicy) {
  Make(Bounded(kUnbounded, 3));
  for (Key key : {1, 2, 3}) Train(0, {key});
  Read(0, {1}, false);  // if it counted as a use, 2 would be evicted
  Train(0, {4});
  EXPECT_EQ(cache()->lines().Find(1), kNoRow);
  EXPECT_NE(cache()->lines().Find(2), kNoRow);
}

TEST_F(Overlap, AReadMayBeAbandoned) {
  Make(Bounded(0));
  Train(0, {1, 2});
  auto step = world().NewStep({{1, 2, 3}});
  world().transport(0).HoldReplies(0, true);
  auto op = world().client(0).BeginRead(step->MakeRead(), world().NewToken());
  world().client(0).Progress(0);
  EXPECT_EQ(HeldLines(*cache()), 2u);
  op.reset();
  world().transport(0).HoldReplies(0, false);
  Train(0, {3});
  Drained();
}

// A partition that restarts has other bases. Defect: the same question goes out when the thread looks again.
TEST_F(Overlap, AReadIsAskedAgainAtOnce) {
  Make(Bounded(0));
  Train(0, {1});
  world().Restart(0, world().Snapshot(0), /*close=*/false);
  auto step = world().NewStep({{1}});
  const auto op = world().BeginRead(0, step.get(), true);
  world().client(0).Progress(0);
  EXPECT_FALSE(op->done());
  EXPECT_FALSE(session().waits()) << "it is on its way again";
  while (!op->done()) world().client(0).Progress(0.05);
  ASSERT_TRUE(world().FinishRead(0, op.get(), step.get()).ok());
  Drained();
}

// --- pushes and fetches that cross

TEST_F(Overlap, FrameThatPushesAndFetchesOneKey) {
  WorldConfig config = Bounded(3, 0);
  config.cache.write_back_rows =
      0;  // an evicted row goes into a frame at once, which is sent with the next call
  Make(config);
  Train(0, {1});
  world().transport(0).record = true;
  EXPECT_EQ(Read(0, {1})->Value(At(1).first, 1)[0], kInitial - 1);
  const std::vector<Request> sent = Sent(0);
  ASSERT_EQ(sent.size(), 1u);
  ASSERT_EQ(sent[0].tables.size(), 1u);
  EXPECT_EQ(sent[0].tables[0].push_keys, Vector<Key>({1}));
  EXPECT_EQ(sent[0].tables[0].fetch_keys, Vector<Key>({1}));
  Drained();
}

}  // namespace
}  // namespace het::testing
