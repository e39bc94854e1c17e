// Subscriptions of a cache on a device: what its lookups ask the store about. Random worlds:
// core/protocol/schedules_test.cc; the library alone: library_test.cc.
#include <gtest/gtest.h>

#include <utility>

#include "tests/core/protocol/notified_fixture.h"

namespace het::testing {
namespace {

// Worker 0 has its cache on the device, worker 1 in host memory.
class DeviceNotified : public Notified {
 protected:
  void Make(int64_t bound) {
    WorldConfig config = NotifiedConfig(bound);
    config.devices = 1;
    WorldTest::Make(config);
  }
  // The keys that worker 0 has asked about since recording began, or since the last call: checked and
  // fetched.
  std::pair<Vector<Key>, Vector<Key>> Asked() {
    std::pair<Vector<Key>, Vector<Key>> asked;
    for (const Request& request : Sent(0)) {
      for (const TableRequest& t : request.tables) {
        asked.first.insert(asked.first.end(), t.check_keys.begin(), t.check_keys.end());
        asked.second.insert(asked.second.end(), t.fetch_keys.begin(), t.fetch_keys.end());
      }
    }
    return asked;
  }
};

// Defect: rows are checked in every lookup, or a lookup without wanted rows asks for no notifications.
TEST_F(DeviceNotified, ALookupAsksAboutAbsentAndMovedRowsAlone) {
  Make(2);
  Hold(0, {1, 2, 3});
  net(0).record = true;
  for (int i = 0; i < 5; ++i) Read(0, {1, 2, 3});
  const std::vector<Request> sent = Sent(0);
  ASSERT_EQ(sent.size(), 5u) << "one question a lookup";
  for (const Request& request : sent) {
    EXPECT_TRUE(request.subscribes());
    EXPECT_TRUE(request.tables.at(0).check_keys.empty());
    EXPECT_TRUE(request.tables.at(0).fetch_keys.empty());
  }
  EXPECT_EQ(cache()->counters().trusted, 15u);
  EXPECT_EQ(checks(), 0u);
  for (int i = 0; i < 3; ++i) Train(1, {1});
  EXPECT_EQ(Seen(0, 1, 1), 0) << "within the bound when the partition last answered";
  Hear(0);
  EXPECT_EQ(cache()->counters().notified_rows, 1u);
  Sent(0);
  Read(0, {1, 2, 3, 4});
  EXPECT_EQ(Asked(), std::pair(Vector<Key>{}, Vector<Key>{1, 4}));
  EXPECT_EQ(Seen(0, 1, 1), 3);
  EXPECT_EQ(Asked(), std::pair(Vector<Key>{}, Vector<Key>{})) << "it is subscribed again";
  Drained();
}

// Defect: rows are read without a check though the partition has not answered for two lookups.
TEST_F(DeviceNotified, RowsWithoutARecentAnswerAreChecked) {
  Make(2);
  Hold(0, {1, 2});
  net(0).record = true;
  Read(0, {1, 2});
  EXPECT_EQ(checks(), 0u);
  // Without training nothing is trusted, and nothing is subscribed to.
  Read(0, {1, 2, 5}, /*training=*/false);
  EXPECT_EQ(Asked(), std::pair(Vector<Key>({1, 2}), Vector<Key>({5})));
  Read(0, {1, 2});
  EXPECT_EQ(Asked(), std::pair(Vector<Key>{}, Vector<Key>{}));
  net(0).HoldReplies(0, true);
  Read(0, {1, 2});
  net(0).HoldReplies(0, false);
  net(0).HoldRepliesFor(0, 1);
  Sent(0);
  Read(0, {1, 2});
  EXPECT_EQ(Asked().first, Vector<Key>({1, 2}));
  Drained();
}

// Defect: rows stay subscribed at the device after the partition has forgotten the worker: they are read for
// ever, and nobody tells that they have moved.
TEST_F(DeviceNotified, SubscriptionsThatTheStoreHasDropped) {
  Make(2);
  Hold(0, {1, 2});
  Read(0, {1, 2});
  subscribers().Clear();
  Read(0, {1, 2});  // its answer says so
  for (int i = 0; i < 3; ++i) Train(1, {1});
  net(0).record = true;
  EXPECT_EQ(Seen(0, 1, 1), 3);
  EXPECT_EQ(cache()->counters().subscription_resets, 1u);
  Read(0, {1, 2});
  EXPECT_EQ(Asked().first, Vector<Key>({1, 2})) << "each once";
  for (int i = 0; i < 3; ++i) Read(0, {1, 2});
  EXPECT_EQ(Asked(), std::pair(Vector<Key>{}, Vector<Key>{}));
  EXPECT_EQ(cache()->counters().subscription_resets, 1u);
  Drained();
}

// Defect: the partition keeps a subscription to every row that the worker has ever had.
TEST_F(DeviceNotified, EvictedRowsAreReported) {
  WorldConfig config = NotifiedConfig(2);
  config.devices = 1;
  config.cache.capacity = 32;  // one bucket of the kernels
  WorldTest::Make(config);
  for (Key key = 0; key < 100; key += 2) {
    Train(0, {key, key + 1});
    EXPECT_LE(subscribers().held(), 36u);
  }
  EXPECT_GE(subscribers().held(), 32u);
  Drained();
}

}  // namespace
}  // namespace het::testing
