// checks="notified": rows that change by other means than a push, or are removed. notified_test.cc has the
// rest.
#include "tests/cpp/protocol/notified_fixture.h"

namespace het::testing {
namespace {

class ToldChanges : public Told {};

TEST_F(ToldChanges, RowsThatAreChangedByHandAreSeen) {
  Make(1, 1);
  Hold(0, {1, 2, kOther});
  LocalStore store(&world().service());
  const std::vector<float> row(world().schema(0)->dim(), 7);
  const Key key = 1;
  const auto read = [&](Key wanted) {
    auto step = world().NewStep({{wanted}});
    EXPECT_TRUE(world().client(0).Read(step->MakeRead(), world().NewToken()).ok());
    world().client(0).Progress(0);
    return step->Value(At(wanted).first, wanted)[0];
  };
  ASSERT_TRUE(store.Assign(*world().schema(0), Span<const Key>(&key, 1), row.data(), false).ok());
  world().client(0).Invalidate(world().schema(0)->id(), Span<const Key>(&key, 1));
  EXPECT_EQ(read(1), 7);
  ASSERT_EQ(store.Remove(*world().schema(0), Span<const Key>(&key, 1)).value(), 1u);
  read(kOther);
  EXPECT_EQ(read(1), kInitial);
  world().service().ClearTable(world().schema(0)->id());
  read(kOther);
  EXPECT_EQ(read(1), kInitial);
  Abandon();
}

TEST_F(ToldChanges, SweptRowIsReported) {
  WorldConfig config = ToldConfig(3);
  config.limits = TableLimits();
  config.limits->ttl = 100;
  Make(config);
  auto train = [&](size_t w, const std::vector<Key>& keys) {
    auto step = world().NewStep({keys});
    ASSERT_TRUE(world().client(w).Read(step->MakeRead(), world().NewToken()).ok());
    for (auto& [where, part] : step->parts()) part.sums[w] = 1;
    ASSERT_TRUE(world().client(w).Write(step->MakeWrite(1), world().NewToken(), nullptr).ok());
  };
  train(0, {1, kOther});
  train(1, {1});
  world().now += 200;
  train(1, {2});
  train(1, {2});
  ASSERT_EQ(world().ServerClock(At(1)), 0);
  for (Key key : {kOther, Key{1}}) {
    auto step = world().NewStep({{key}});
    ASSERT_TRUE(world().client(0).Read(step->MakeRead(), world().NewToken()).ok());
    world().client(0).Progress(0);
    EXPECT_EQ(step->Value(At(key).first, key)[0], kInitial);
  }
  EXPECT_EQ(cache()->counters().subscription_resets, 0u);
  Abandon();
}

// A bound is set while an answer is in flight: its request did not subscribe to the rows.
TEST_F(ToldChanges, RowsWithoutASubscriptionAreNotCounted) {
  Make(1, 2, 1000, /*tables=*/2);
  const uint64_t first = world().schema(0)->id(), second = world().schema(1)->id();
  auto read = [&](size_t w, const std::vector<std::vector<Key>>& keys) {
    auto step = world().NewStep(keys);
    EXPECT_TRUE(world().Read(w, step.get()).ok());
    return step;
  };
  Write(0, read(0, {{1}, {9}}).get());
  world().client(0).cache(second)->policy().set_bounds(kUnbounded, 0);
  auto step = world().NewStep({{1, 2}, {1}});
  net(0).HoldReplies(0, true);
  auto op = world().BeginRead(0, step.get(), true);
  world().client(0).Progress(0);
  world().client(0).cache(second)->policy().set_bounds(1, 0);
  net(0).HoldReplies(0, false);
  Finish(0, op.get(), step.get());
  ASSERT_TRUE(cache()->marks().subscribed(cache()->lines().Find(2))) << "of table " << first;
  for (int i = 0; i < 2; ++i) Write(1, read(1, {{}, {1}}).get());
  EXPECT_EQ(read(0, {{}, {1}})->Value(second, 1)[1], kInitial - 2);
  Drained();
}

}  // namespace
}  // namespace het::testing
