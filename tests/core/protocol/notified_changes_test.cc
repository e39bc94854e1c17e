// checks="notified": rows that change by other means than a push, or are removed. notified_test.cc has the
// rest.
#include "tests/core/protocol/notified_fixture.h"

namespace het::testing {
namespace {

class NotifiedChanges : public Notified {};

TEST_F(NotifiedChanges, RowsThatAreChangedByHandAreSeen) {
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

TEST_F(NotifiedChanges, SweptRowIsReported) {
  WorldConfig config = NotifiedConfig(3);
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

}  // namespace
}  // namespace het::testing
