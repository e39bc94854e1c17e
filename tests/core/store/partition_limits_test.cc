// Refusals by a partition's owner that limit a client's share: ticks, repeated keys, unbounded answers,
// tables. Copies accept what their owner accepted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "het_tf/core/store/partition.h"
#include "tests/testing/handle_frame.h"
#include "tests/testing/partition_bytes.h"
#include "tests/testing/requests.h"
#include "tests/testing/table_specs.h"

namespace het::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kEpoch = 77;
constexpr size_t kDim = 2;

Schema MakeSchema(const std::string& name) { return NewSchema(name, kDim); }

class PartitionLimits : public ::testing::Test {
 protected:
  PartitionLimits() { EXPECT_TRUE(partition_.CreateTable(schema_, kEpoch).ok()); }

  Request NewRequest() const {
    Request q = RequestOf(partition_.id(), {1, 2});
    AddTable(&q, *schema_, kEpoch);
    return q;
  }
  Request Push(const std::vector<Key>& keys, uint32_t ticks = 1) const {
    Request q = NewRequest();
    q.seq = q.after_seq = partition_.clients().LastSeq(q.client) + 1;
    AddPush(&q.tables[0], keys, ticks);
    return q;
  }
  Request Fetch(const std::vector<Key>& keys) const {
    Request q = NewRequest();
    q.tables[0].fetch_keys.assign(keys.begin(), keys.end());
    return q;
  }
  // Handles it as the owner does, unless `how` says otherwise.
  Reply Handle(const Request& q, Handling how = Owner()) {
    Bytes frame, bytes;
    Encode(q, &frame);
    handled_ = HandleFrame(&partition_, frame, &bytes, how);
    Reply reply;
    EXPECT_TRUE(Decode(bytes, &reply).ok());
    return reply;
  }
  static Handling Owner() {
    Handling how;
    how.now = 1000;
    return how;
  }
  // The request is refused for this reason, and nothing has changed.
  void ExpectRefused(const Request& q, const std::string& why) {
    const Bytes before = BytesOf(partition_);
    const Reply reply = Handle(q);
    EXPECT_EQ(reply.status, FrameStatus::kBadFrame);
    EXPECT_THAT(reply.message, HasSubstr(why));
    EXPECT_EQ(BytesOf(partition_), before);
  }
  Clock& ClockOf(Key key) {
    RowStore& rows = partition_.Find(schema_->id())->rows();
    return rows.meta(rows.Find(key)).clock;
  }
  void SetClock(Key key, Clock clock) {
    ClockOf(key) = clock;
    partition_.Find(schema_->id())->RaiseNewest(clock);
  }

  const Schema schema_ = MakeSchema("t");
  Partition partition_{PartitionId{0, 1, 5}, 1000};
  Handled handled_;
};

TEST_F(PartitionLimits, TicksOfAPush) {
  ExpectRefused(Push({1, 2}, Shard::kMaxPushTicks), "an update of table 't' has more than 1073741823 ticks");
  EXPECT_EQ(Handle(Push({1, 2}, Shard::kMaxPushTicks - 1)).status, FrameStatus::kOk);
  EXPECT_EQ(ClockOf(1), Shard::kMaxPushTicks - 1);
}

TEST_F(PartitionLimits, ClockOfARow) {
  Handle(Push({1}));
  SetClock(1, Shard::kLastClock);
  EXPECT_EQ(Handle(Push({1})).status, FrameStatus::kOk);
  ExpectRefused(Push({2, 1}), "a row of this push is at clock 2305843008139952129");
  Request other = Push({2, 1});
  other.client = {8, 8};
  other.seq = other.after_seq = 1;
  ExpectRefused(other, "clear its table, or load it anew");
  EXPECT_EQ(partition_.clients().all().size(), 1u);
  // From a log that was written without the limit.
  SetClock(1, INT64_MAX);
  EXPECT_EQ(Handle(Push({2, 1}), Handling()).status, FrameStatus::kOk);
  EXPECT_TRUE(handled_.clamped);
  EXPECT_EQ(ClockOf(1), Shard::kLastClock + 1);
  EXPECT_EQ(ClockOf(2), 1);
}

TEST_F(PartitionLimits, KeysThatComeTwice) {
  ExpectRefused(Push({1, 2, 1}), "key 1 of table 't' comes twice");
  ExpectRefused(Fetch({3, INT64_MIN, 4, INT64_MIN}), "key -9223372036854775808 of table 't' comes twice");
  Request both = Fetch({5});
  both.tables[0].check_keys = {4, 5};
  both.tables[0].check_clocks = {1, 1};
  ExpectRefused(both, "key 5 of table 't' comes twice");
  Request read_and_push = Push({1, 2});
  read_and_push.tables[0].fetch_keys = {1, 2};
  EXPECT_EQ(Handle(read_and_push).status, FrameStatus::kOk) << "once in each";
  EXPECT_EQ(Handle(Push({1, 1}), Handling()).status, FrameStatus::kOk) << "a copy";
  EXPECT_EQ(ClockOf(1), 3);
  // More keys than the reused table has room for, and as many calls as it counts.
  std::vector<Key> keys;
  for (Key key = 5000; key-- > 0;) keys.push_back(key * 64);
  EXPECT_EQ(Handle(Fetch(keys)).status, FrameStatus::kOk);
  keys.push_back(64 * 17);
  ExpectRefused(Fetch(keys), "key 1088 of table 't' comes twice");
  keys.resize(300);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(Handle(Fetch(keys)).status, FrameStatus::kOk);
}

TEST_F(PartitionLimits, TablesThatComeTwice) {
  Request q = Fetch({1});
  q.tables.push_back(q.tables[0]);
  q.tables[1].bound = 3;
  q.tables[1].fetch_keys = {2};
  ExpectRefused(q, "a part names table 't' twice");
}

// A sweep looks at some tables, and the next one at others.
TEST_F(PartitionLimits, ASweepReachesAllOfManyTables) {
  TableLimits limits;
  limits.ttl = 10;
  limits.since = 1;
  constexpr int kTables = 600;
  for (int i = 0; i < kTables; ++i) {
    TableSpec spec = MakeSchema("table" + std::to_string(i))->spec();
    spec.limits = limits;
    const Schema schema = TableSchema::Create(spec).value();
    ASSERT_TRUE(partition_.CreateTable(schema, kEpoch).ok());
    bool created = false;
    Shard* const shard = partition_.Find(schema->id());
    shard->FindOrCreate(7, shard->rows().Hash(7), &created);
  }
  EXPECT_TRUE(partition_.swept_all());
  const uint64_t first = partition_.Sweep(5000, 1000, nullptr).rows();
  EXPECT_GT(first, 0u);
  EXPECT_LT(first, 300u);
  EXPECT_FALSE(partition_.swept_all());
  uint64_t swept = first;
  for (int i = 0; i < 2; ++i) swept += partition_.Sweep(5000, 1000, nullptr).rows();
  EXPECT_EQ(swept, static_cast<uint64_t>(kTables));
}

TEST(LoadMark, HoldsADayAtMost) {
  EXPECT_TRUE((LoadMark{"me", 100, 200}).holds(199));
  EXPECT_FALSE((LoadMark{"me", 100, 200}).holds(200));
  EXPECT_TRUE((LoadMark{"me", 100, 100 + LoadMark::kMaxSeconds}).holds(100));
  EXPECT_FALSE((LoadMark{"me", 100, 101 + LoadMark::kMaxSeconds}).holds(100)) << "until 2106, say";
}

}  // namespace
}  // namespace het::testing
