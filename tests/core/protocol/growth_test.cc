// Clients that the store forgets. Rows that are removed: schedules_test.cc.
#include "tests/testing/world/world_test.h"

namespace het::testing {
namespace {

class Growth : public WorldTest {
 protected:
  size_t Clients() {
    return world().service().WithPartition(0, [](Partition& p) { return p.clients().all().size(); });
  }
};

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
