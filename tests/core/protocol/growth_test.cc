// Rows and clients that are removed while caches know them: a recreated one is never mistaken for the old.
#include "het_tf/core/store/local_store.h"
#include "tests/testing/world/world_test.h"

namespace het::testing {
namespace {

class Growth : public WorldTest {
 protected:
  void Remove(Key key) {
    LocalStore store(&world().service());
    EXPECT_EQ(store.Remove(*world().schema(0), Span<const Key>(&key, 1)).value(), 1u);
  }
  // The oracle does not know removed rows: these steps bypass it. Ticks of worker `of` that worker w sees.
  int64_t SeenBy(size_t w, Key key, size_t of) {
    auto step = world().NewStep({{key}});
    EXPECT_TRUE(world().client(w).Read(step->MakeRead(), 0).ok());
    return static_cast<int64_t>(kInitial - step->Value(At(key).first, key)[of]);
  }
  std::unique_ptr<TestStep> Begin(size_t w, const std::vector<Key>& keys) {
    auto step = world().NewStep({keys});
    step->token = world().NewToken();
    EXPECT_TRUE(world().client(w).Read(step->MakeRead(), step->token).ok());
    return step;
  }
  void Finish(size_t w, TestStep* step) {
    for (auto& [where, part] : step->parts()) {
      for (size_t u = 0; u < part.keys.size(); ++u) part.sums[u * part.dim + w] = 1;
    }
    EXPECT_TRUE(world().client(w).Write(step->MakeWrite(1), step->token, nullptr).ok());
  }
  void Tick(size_t w, Key key) { Finish(w, Begin(w, {key}).get()); }
  bool There(Key key) { return world().ServerClock(At(key)) != 0; }
  size_t Clients() {
    return world().service().WithPartition(0, [](Partition& p) { return p.clients().all().size(); });
  }
};

TEST_F(Growth, RecreatedRowIsNotMistakenForTheOld) {
  WorldConfig config = Bounded(3);
  config.workers = 3;
  config.cache.push_bound = 0;
  Make(config);
  for (int i = 0; i < 4; ++i) Tick(0, 1);
  EXPECT_EQ(SeenBy(1, 1, 0), 4);
  Begin(1, {1});  // worker 1 keeps a copy at clock 4
  Remove(1);
  for (int i = 0; i < 6; ++i) Tick(2, 1);  // past the clock of the copy, by less than the bound
  EXPECT_EQ(SeenBy(1, 1, 2), 6) << "a copy of the removed row lacks all of them";
  EXPECT_EQ(SeenBy(1, 1, 0), 0);
  Abandon();
}

TEST_F(Growth, UpdateInFlightMeetsARecreatedRow) {
  Make(Bounded(0));
  for (int i = 0; i < 5; ++i) Tick(0, 1);
  auto step = Begin(0, {1});
  Remove(1);
  Finish(0, step.get());  // onto a recreated row; the copy contains five removed ticks
  EXPECT_EQ(SeenBy(0, 1, 0), 1);
  Tick(0, 1);
  EXPECT_EQ(SeenBy(0, 1, 0), 2);
  Abandon();
}

TEST_F(Growth, SweptRowIsInitialForAllWorkers) {
  WorldConfig config = Bounded(3);
  config.workers = 2;
  config.cache.push_bound = 0;
  config.limits = TableLimits();
  config.limits->ttl = 100;
  Make(config);
  Tick(0, 1);
  Begin(1, {1});
  EXPECT_EQ(SeenBy(1, 1, 0), 1);
  world().now += 99;
  for (Key key = 2; key < 20; ++key) Tick(0, key);
  EXPECT_TRUE(There(1)) << "not yet";
  world().now += 1;
  Tick(0, 2);
  EXPECT_FALSE(There(1));
  EXPECT_TRUE(There(2));
  EXPECT_EQ(SeenBy(1, 1, 0), 0);
  EXPECT_EQ(SeenBy(0, 1, 0), 0);
  Abandon();
}

// Nothing is lost or doubled when a forgotten client returns.
TEST_F(Growth, AClientThatWasForgottenBeginsAnew) {
  for (const bool reads_first : {true, false}) {
    WorldConfig config = Bounded(0);
    config.workers = 2;
    Make(config);
    for (int i = 0; i < 3; ++i) Train(0, {1, 2});
    const ClientId before = session(0).client();
    world().now += kClientSeconds - 1;
    Train(1, {1});
    EXPECT_EQ(Clients(), 2u);
    world().now += 1;
    Train(1, {1});
    EXPECT_EQ(Clients(), 1u);
    if (reads_first) Read(0, {1});
    Train(0, {1, 2});
    Train(0, {2});
    EXPECT_FALSE(session(0).client() == before);
    EXPECT_EQ(Clients(), 2u);
    Drained();
  }
}

TEST_F(Growth, AClientThatPushesIsNotForgotten) {
  WorldConfig config = Bounded(0);
  Make(config);
  const ClientId before = session(0).client();
  for (int i = 0; i < 5; ++i) {
    world().now += kClientSeconds - 1;
    Train(0, {1});
  }
  EXPECT_TRUE(session(0).client() == before);
  Drained();
}

}  // namespace
}  // namespace het::testing
