// A client's rings of named keys, played without a partition: which keys go in full, and what answers mean.
#include "het_tf/core/client/client_rings.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/testing/table_specs.h"

namespace het::testing::client_rings_test {
namespace {

constexpr Key kFar = Key{1} << 40;  // between two keys

class ClientRingsTest : public ::testing::Test {
 protected:
  ClientRingsTest() : schema_(NewSchema("t", 2)) {
    CacheConfig cache;
    cache.capacity = 1;  // so that the ring has 17 places
    tables_.Add(schema_, cache);
  }
  static Vector<Key> Keys(Key first, size_t n) {
    Vector<Key> keys(n);
    std::iota(keys.begin(), keys.end(), first);
    for (Key& key : keys) key *= kFar;
    return keys;
  }
  // Sends a request that fetches these keys.
  OutTableRequest Send(const Vector<Key>& keys) {
    OutRequest request;
    request.request_id = ++newest_;
    OutTableRequest& t = request.tables.emplace_back();
    t.table = schema_->id();
    t.fetch_keys = keys;
    rings_.Name(tables_, &request);
    relied_ = rings_.Sent(request);
    return t;
  }
  // The answer to a request notifies of these names; returns their keys.
  Vector<Key> Notified(uint32_t request, const Vector<uint32_t>& names) {
    Reply reply;
    reply.request_id = request;
    TableReply& t = reply.tables.emplace_back();
    t.table = schema_->id();
    for (const uint32_t name : names) t.notified_names.push_back(name + 1);
    return rings_.Complete(&reply) ? reply.tables[0].notified_keys : Vector<Key>();
  }

  Schema schema_;
  CachedTables tables_{1, 5};
  ClientRings rings_{uint64_t{1} << 22};
  uint32_t newest_ = 0;
  bool relied_ = false;
};

TEST_F(ClientRingsTest, FarKeysGoInFullOnce) {
  EXPECT_EQ(Send({1, 2, 3}).ring, 0u) << "gaps take less";
  const OutTableRequest first = Send(Keys(1, 3));
  EXPECT_TRUE(first.ring == 17 && first.anew && !relied_);
  EXPECT_EQ(first.names.fetch, Vector<uint32_t>({0, 0, 0}));
  const OutTableRequest second = Send(Keys(2, 3));
  EXPECT_TRUE(second.ring == 17 && !second.anew && relied_);
  EXPECT_EQ(second.names.fetch, Vector<uint32_t>({2, 3, 0}));
  EXPECT_NE(second.names.state, first.names.state);
  rings_.Forget();
  EXPECT_TRUE(Send(Keys(2, 3)).anew) << "what the partition has is not known";
}

TEST_F(ClientRingsTest, AnAnswerNamesKeysAsOfItsRequest) {
  Send(Keys(1, 10));
  Send(Keys(11, 10));  // three of these take the places of the first
  EXPECT_EQ(Notified(1, {0, 3}), Vector<Key>({1 * kFar, 4 * kFar}));
  EXPECT_EQ(Notified(2, {10}), Vector<Key>({11 * kFar}));
  EXPECT_EQ(Notified(2, {0}), Vector<Key>({18 * kFar}));
  EXPECT_EQ(Notified(1, {12}), Vector<Key>()) << "a place that nothing had been put into";
  rings_.Taken(1);
  EXPECT_EQ(Notified(1, {0}), Vector<Key>()) << "it is answered";
}

// Or the answer to the older one could name keys that are forgotten.
TEST_F(ClientRingsTest, NoRingIsFilledBehindARequestInFlight) {
  Send(Keys(1, 10));
  EXPECT_NE(Send(Keys(11, 10)).ring, 0u);
  EXPECT_EQ(Send(Keys(21, 10)).ring, 0u) << "20 keys behind the first";
  EXPECT_EQ(Notified(1, {9}), Vector<Key>({10 * kFar}));
  rings_.Taken(1);
  EXPECT_NE(Send(Keys(21, 10)).ring, 0u);
}

TEST_F(ClientRingsTest, APartitionWithoutRoomGetsKeysInFull) {
  for (const bool accepted : {false, true, false, false, false}) {
    rings_.Forget();
    EXPECT_NE(Send(Keys(1, 3)).ring, 0u);
    rings_.Accepted(accepted);
  }
  rings_.Forget();
  EXPECT_EQ(Send(Keys(1, 3)).ring, 0u) << "three times in a row";
}

}  // namespace
}  // namespace het::testing::client_rings_test
