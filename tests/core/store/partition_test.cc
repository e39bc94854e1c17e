// The partition's side of the protocol: applied and refused frames; a refused frame changes nothing. Refusals
// by a partition's owner limit a client's share: ticks, repeated keys, tables. Copies accept what their owner
// accepted.
#include "het_tf/core/store/partition.h"

#include <gmock/gmock.h>

#include <memory>

#include "tests/testing/fits_in.h"
#include "tests/testing/handle_frame.h"
#include "tests/testing/keys.h"
#include "tests/testing/packed_rows.h"
#include "tests/testing/partition_bytes.h"
#include "tests/testing/requests.h"
#include "tests/testing/table_specs.h"

namespace het::testing::partition_test {
namespace {

constexpr uint64_t kEpoch = 77;
constexpr ClientId kClient{1, 2};

Schema MakeSchema(const std::string& optimizer = "sgd", uint32_t dim = 2, const std::string& name = "t") {
  return NewSchema(name, dim, optimizer, {"constant", 1, 0});
}

class PartitionTest : public ::testing::Test {
 protected:
  PartitionTest()
      : schema_(MakeSchema()), partition_(std::make_unique<Partition>(PartitionId{0, 1, 5}, 1000)) {
    EXPECT_TRUE(partition_->CreateTable(schema_, kEpoch).ok());
  }

  Request NewRequest(uint64_t seq, uint64_t after_seq = 0) {
    Request q = RequestOf(partition_->id(), kClient, seq);
    q.request_id = ++last_id_;
    q.time = 9;
    q.after_seq = after_seq;
    AddTable(&q, *schema_, kEpoch);
    return q;
  }
  Request Push(uint64_t seq, const std::vector<Key>& keys, uint32_t ticks = 1) {
    Request q = NewRequest(seq);
    AddPush(&q.tables[0], keys, ticks, 20);
    return q;
  }
  // The client's next one.
  Request NextPush(const std::vector<Key>& keys, uint32_t ticks = 1) {
    return Push(partition_->clients().LastSeq(kClient) + 1, keys, ticks);
  }
  Request Fetch(const std::vector<Key>& keys) {
    Request q = NewRequest(0);
    q.tables[0].fetch_keys.assign(keys.begin(), keys.end());
    return q;
  }
  // Handles it as a copy does, unless `how` says otherwise.
  Reply Handle(const Request& q, const Handling& how = {}) {
    Bytes frame, bytes;
    Encode(q, &frame);
    handled_ = HandleFrame(partition_.get(), frame, &bytes, how);
    Reply reply;
    EXPECT_TRUE(Decode(bytes, &reply).ok());
    EXPECT_EQ(reply.inc, reply.same_inc ? 0 : 1000u);
    EXPECT_EQ(reply.request_id, q.request_id);
    if (reply.same_seq) reply.last_seq = q.newest_seq();
    return reply;
  }
  static Handling Owner() {
    Handling how;
    how.now = 1000;
    return how;
  }
  // The owner refuses the request for this reason, and nothing has changed.
  void ExpectRefused(const Request& q, const std::string& why) {
    const Bytes before = State();
    const Reply reply = Handle(q, Owner());
    EXPECT_EQ(reply.status, FrameStatus::kBadFrame);
    EXPECT_THAT(reply.message, ::testing::HasSubstr(why));
    EXPECT_EQ(State(), before);
  }
  void ExpectTaken(const Request& q, const Handling& how = Owner()) {
    EXPECT_EQ(Handle(q, how).status, FrameStatus::kOk);
  }
  Bytes State() { return BytesOf(*partition_); }
  Clock ClockOf(Key key) {
    const RowStore& rows = partition_->Find(schema_->id())->rows();
    const uint32_t row = rows.Find(key);
    return row == kNoRow ? 0 : rows.meta(row).clock;
  }
  void SetClock(Key key, Clock clock) {
    Shard* const shard = partition_->Find(schema_->id());
    shard->rows().meta(shard->rows().Find(key)).clock = clock;
    shard->RaiseNewest(clock);
  }

  Schema schema_;
  std::unique_ptr<Partition> partition_;
  uint32_t last_id_ = 0;
  Handled handled_;
};

TEST_F(PartitionTest, AppliesFramesInOrder) {
  EXPECT_EQ(Handle(Push(1, {1, 2})).last_seq, 1u);
  const Reply reply = Handle(Push(2, {2, 3}, 4));
  EXPECT_EQ(reply.status, FrameStatus::kOk);
  EXPECT_EQ(reply.last_seq, 2u);
  EXPECT_EQ(ClockOf(1), 1);
  EXPECT_EQ(ClockOf(2), 5);
  const RowStore& rows = partition_->Find(schema_->id())->rows();
  EXPECT_EQ(rows.data(rows.Find(2))[1], 41);
  EXPECT_EQ(rows.meta(rows.Find(2)).count, 5);
  EXPECT_EQ(rows.meta(rows.Find(2)).last_used, 9u);
}

TEST_F(PartitionTest, AnswersInTheFormatThatIsAskedFor) {
  Request push = Push(1, {1});
  push.tables[0].push_updates = {0.1f, 0.77f};
  Handle(push);
  const RowStore& rows = partition_->Find(schema_->id())->rows();
  for (RowFormat format : {RowFormat::kFloat16, RowFormat::kInt8}) {
    Request q = NewRequest(0);
    q.tables[0].row_format = format;
    q.tables[0].block = 2;
    q.tables[0].fetch_keys = {1};
    q.tables[0].check_keys = {1};
    q.tables[0].check_clocks = {5};  // ahead of the server: it is refreshed
    const Reply reply = Handle(q);
    ASSERT_EQ(reply.status, FrameStatus::kOk);
    Vector<float> rounded(2);
    RoundRow({format}, 2, 2, rows.data(rows.Find(1)), rounded.data());
    EXPECT_NE(rounded[0], rows.data(rows.Find(1))[0]);
    EXPECT_EQ(reply.tables[0].rows, Vector<float>({rounded[0], rounded[1], rounded[0], rounded[1]}));
    // A request with another view of the table.
    q.tables[0].block = 3;
    EXPECT_EQ(Handle(q).status, FrameStatus::kBadFrame);
  }
}

// A rounding remainder of earlier ticks.
TEST_F(PartitionTest, UpdateWithoutATickChangesOnlyTheRow) {
  Handle(Push(1, {1}));
  Request q = Push(2, {1, 2}, 0);
  q.time = 50;
  const Reply reply = Handle(q);
  EXPECT_EQ(reply.status, FrameStatus::kOk);
  EXPECT_EQ(reply.last_seq, 2u);
  const RowStore& rows = partition_->Find(schema_->id())->rows();
  EXPECT_EQ(rows.data(rows.Find(1))[1], 41);
  EXPECT_EQ(ClockOf(1), 1);
  EXPECT_EQ(rows.meta(rows.Find(1)).count, 1);
  EXPECT_EQ(rows.meta(rows.Find(1)).last_used, 9u);
  EXPECT_EQ(rows.Find(2), kNoRow) << "the row of these ticks was removed";
}

TEST_F(PartitionTest, AReadAheadOfItsPushesIsRefused) {
  Handle(Push(1, {1}));
  Request read = NewRequest(0, 2);
  read.tables[0].fetch_keys = {1};
  EXPECT_EQ(Handle(read).status, FrameStatus::kGap);
  read.after_seq = 1;
  EXPECT_EQ(Handle(read).status, FrameStatus::kOk);
  // A frame's own push counts.
  Request both = Push(2, {1});
  both.after_seq = 2;
  both.tables[0].fetch_keys = {1};
  const Reply reply = Handle(both);
  EXPECT_EQ(reply.status, FrameStatus::kOk);
  EXPECT_EQ(reply.tables[0].fetched_clocks[0], 2) << "the push part comes first";
}

TEST_F(PartitionTest, AnotherEpochRefusesTheWholeFrame) {
  ASSERT_TRUE(partition_->CreateTable(MakeSchema("sgd", 2, "u"), kEpoch).ok());
  Handle(Push(1, {1}));
  partition_->Find(schema_->id())->Clear(78);
  Request q = Push(2, {1});
  q.tables.push_back(q.tables[0]);
  q.tables[1].table = HashName("u");
  const Reply reply = Handle(q);
  EXPECT_EQ(reply.status, FrameStatus::kEpoch);
  EXPECT_EQ(reply.last_seq, 1u);
  ASSERT_EQ(reply.tables.size(), 2u);
  EXPECT_EQ(reply.tables[0].epoch, 78u);
  EXPECT_EQ(reply.tables[1].epoch, kEpoch);
  EXPECT_EQ(partition_->Find(HashName("u"))->rows().size(), 0u);
}

// Names are of one ring, which a request must know; a part with unknown ones changes nothing.
TEST_F(PartitionTest, NamesAreOfTheRingThatBothHave) {
  NamedKeys ring(4, 4);
  const auto named = [&](Request q, bool anew = false) {
    TableRequest& t = q.tables[0];
    t.ring = ring.size();
    t.anew = anew;
    t.names.state = ring.state();
    NameKeys(ring, t.push_keys, &t.names.push);
    NameKeys(ring, t.fetch_keys, &t.names.fetch);
    return q;
  };
  const auto taken = [&](const Request& q) {
    const Reply reply = Handle(q, Owner());
    EXPECT_EQ(reply.status, FrameStatus::kOk) << reply.message;
    AppendInFull(q.tables[0], &ring);
    return reply;
  };
  EXPECT_EQ(Handle(named(NextPush({1, 2})), Owner()).status, FrameStatus::kEpoch) << "nobody has begun it";
  EXPECT_EQ(ClockOf(1), 0);
  taken(named(NextPush({1, 2}), /*anew=*/true));
  taken(named(NextPush({1, 2, 3})));
  EXPECT_EQ(ClockOf(2), 2);
  EXPECT_EQ(taken(named(Fetch({1, 3}))).tables[0].fetched_clocks, Vector<Clock>({2, 1}));

  Request q = named(NextPush({1, 2}));
  for (const Vector<uint32_t>& names : {Vector<uint32_t>{1, 1}, {2, 1}, {1, 4}, {1, 9}}) {
    q.tables[0].names.push = names;
    ExpectRefused(q, "names a key that its ring does not have, or does not ascend");
  }
  // A request of before, and one whose client has another ring: refused, and the ring stays as it is.
  q = named(NextPush({1, 2}));
  q.tables[0].names.state ^= 1;
  EXPECT_EQ(Handle(q, Owner()).status, FrameStatus::kEpoch);
  q = named(NextPush({3, 4, 5, 6}));
  Request late = q;
  taken(q);
  late.seq = late.after_seq = partition_->clients().LastSeq(kClient) + 1;
  EXPECT_EQ(Handle(late, Owner()).status, FrameStatus::kEpoch);
  EXPECT_EQ(ring.Find(1), NamedKeys::kNone) << "its place is another's";
  taken(named(NextPush({1, 5})));
  EXPECT_EQ(ClockOf(1), 3);
  partition_->names().Clear();
  EXPECT_EQ(Handle(named(NextPush({1})), Owner()).status, FrameStatus::kEpoch);
  taken(NextPush({1}));  // keys in full need no ring
}

// Rings are bounded: of one client, and of all together. Silent clients lose theirs.
TEST_F(PartitionTest, RingsTakeBoundedMemory) {
  ClientNames& names = partition_->names();
  constexpr size_t kMost = ClientNames::kMostPlaces / NamedKeys::kMostPlaces;
  for (uint64_t table = 0; table <= kMost; ++table) {
    EXPECT_EQ(names.Begin({1, 1}, table, NamedKeys::kMostPlaces) != nullptr, table < kMost) << table;
  }
  EXPECT_NE(names.Begin({1, 1}, 0, NamedKeys::kMostPlaces), nullptr) << "in place of the one before";
  EXPECT_NE(names.Begin({1, 2}, 0, 16), nullptr) << "the client that was silent for longest makes room";
  EXPECT_EQ(names.Find({1, 1}, 0), nullptr);
  for (Key key = 0; key < 100; ++key) names.Find({1, 2}, 0)->Append(key);
  EXPECT_LT(names.bytes(), 16 * 64 + 500u);
  names.ForgetSilent(100);
  EXPECT_NE(names.Find({1, 2}, 0), nullptr);
  names.ForgetSilent(100 + ClientNames::kSilentSeconds);
  names.ForgetSilent(100 + 2 * ClientNames::kSilentSeconds);
  EXPECT_EQ(names.bytes(), 0u);
}

TEST_F(PartitionTest, ChecksCompareWithTheBound) {
  Handle(Push(1, {1, 2, 3, 4, 5}, 10));
  Request q = NewRequest(0);
  q.tables[0].bound = 4;
  q.tables[0].check_keys = {1, 2, 3, 4, 5, 99};
  q.tables[0].check_clocks = {6, 5, 11, INT64_MIN, INT64_MAX, 3};
  const Reply reply = Handle(q);
  // 1 is four behind; 2 five; 3 ahead of the server (it lost updates); 99 no longer exists.
  EXPECT_EQ(reply.tables[0].refreshed, Vector<uint32_t>({1, 2, 3, 4, 5}));
  EXPECT_THAT(reply.tables[0].refreshed_lags,
              ::testing::ElementsAre(5, -1, INT64_MIN + 10, 10 - INT64_MAX, 0));
  EXPECT_EQ(reply.tables[0].rows.size(), 4 * 2u);
  EXPECT_EQ(reply.tables[0].lag_histogram, Vector<uint64_t>({0, 0, 0, 1}));
}

TEST_F(PartitionTest, OtherPartitionOrTableIsRefused) {
  Handle(Push(1, {1}));
  const Bytes before = State();
  Request q = Push(2, {1});
  q.partition.count = 2;
  EXPECT_EQ(Handle(q).status, FrameStatus::kWrongPartition);
  q = Push(2, {1});
  q.partition.hash_seed = 6;
  EXPECT_EQ(Handle(q).status, FrameStatus::kWrongPartition);
  q = Push(2, {1});
  q.tables[0].table ^= 1;
  const Reply no_table = Handle(q);
  EXPECT_EQ(no_table.status, FrameStatus::kNoTable);
  EXPECT_NE(no_table.message.find("no table"), std::string::npos);
  q = Push(2, {1});
  q.tables[0].update_floats = 1;
  q.tables[0].push_updates.resize(1);
  EXPECT_EQ(Handle(q).status, FrameStatus::kBadFrame);
  EXPECT_EQ(State(), before);
}

// Memory is exhausted at any byte: the push is applied completely or not at all, as last_seq says.
TEST_F(PartitionTest, OutOfMemoryAtAnyByte) {
  Handle(Push(1, {1}));
  const std::vector<Key> keys = Range(0, 100);
  Request q = Push(2, keys);
  q.tables[0].fetch_keys.assign(keys.begin(), keys.end());
  Bytes frame;
  Encode(q, &frame);
  const Bytes fresh = State();
  int refused = 0;
  bool fits = false;  // the frame, read, and from then on at any more room
  for (size_t room = 0; room < 40000; room += 16) {
    partition_ = std::move(PartitionOf(fresh, 1000).value());
    Bytes bytes;
    Reply reply;
    if (!FitsIn(room, [&] { HandleFrame(partition_.get(), frame, &bytes); })) {
      ASSERT_LT(room, 160u) << "a short answer, and why it is none, fits";
      ASSERT_EQ(State(), fresh);
      continue;
    }
    ASSERT_TRUE(Decode(bytes, &reply).ok());
    if (reply.status == FrameStatus::kOk) {
      ASSERT_TRUE(reply.same_seq);
      continue;
    }
    ++refused;
    if (reply.status == FrameStatus::kBusy) {  // the frame could not even be read
      ASSERT_EQ(reply.message, kStoreOutOfMemory);
      ASSERT_EQ(State(), fresh);
      ASSERT_FALSE(fits) << room;
      continue;
    }
    fits = true;
    ASSERT_EQ(reply.status, FrameStatus::kOutOfMemory);
    ASSERT_EQ(reply.last_seq, partition_->clients().LastSeq(kClient))
        << "otherwise a client would take it for a loss";
    if (reply.last_seq == 1) {
      ASSERT_EQ(State(), fresh) << room;
      ASSERT_EQ(Handle(q).status, FrameStatus::kOk) << "there is memory again";
    }
    for (Key key : keys) ASSERT_EQ(ClockOf(key), key == 1 ? 2 : 1) << room;
  }
  EXPECT_GT(refused, 100);
}

// A rounding remainder of a row that was removed since (Apply) meets a client that subscribes to the row.
TEST_F(PartitionTest, PushWithoutTicksOfRemovedSubscribedRow) {
  Request holds = NewRequest(0);
  holds.tables[0].subscribe = true;
  holds.tables[0].fetch_keys = {5};
  holds.client = {1, 3};
  EXPECT_EQ(Handle(holds).tables.at(0).fetched_clocks.at(0), 0);
  EXPECT_EQ(partition_->subscribers().held(), 1u);
  EXPECT_EQ(Handle(Push(1, {5}, 0)).last_seq, 1u);
  EXPECT_EQ(ClockOf(5), 0);
  EXPECT_EQ(partition_->subscribers().held(), 1u);
  Handle(Push(2, {5}, 1));
  EXPECT_EQ(ClockOf(5), 1);
}

// --- limits

TEST_F(PartitionTest, TicksOfAPush) {
  ExpectRefused(NextPush({1, 2}, Shard::kMaxPushTicks),
                "an update of table 't' has more than 1073741823 ticks");
  ExpectTaken(NextPush({1, 2}, Shard::kMaxPushTicks - 1));
  EXPECT_EQ(ClockOf(1), Shard::kMaxPushTicks - 1);
}

TEST_F(PartitionTest, ClockOfARow) {
  Handle(Push(1, {1}));
  SetClock(1, Shard::kLastClock);
  ExpectTaken(NextPush({1}));
  ExpectRefused(NextPush({1, 2}), "a row of this push is at clock 2305843008139952129");
  Request other = NextPush({1, 2});
  other.client = {8, 8};
  other.seq = other.after_seq = 1;
  ExpectRefused(other, "clear its table, or load it anew");
  EXPECT_EQ(partition_->clients().all().size(), 1u);
  // From a log that was written without the limit.
  SetClock(1, INT64_MAX);
  ExpectTaken(NextPush({1, 2}), Handling());
  EXPECT_TRUE(handled_.clamped);
  EXPECT_EQ(ClockOf(1), Shard::kLastClock + 1);
  EXPECT_EQ(ClockOf(2), 1);
}

TEST_F(PartitionTest, KeysThatComeTwice) {
  Request left = NextPush({1, 2, 1});
  left.tables[0].left = 1;
  ExpectRefused(left, "key 1 of table 't' comes twice");
  for (const Key last : {4, 5, 6}) {
    Request both = Fetch({3, last});
    both.tables[0].check_keys = {INT64_MIN, 4, 5};
    both.tables[0].check_clocks = {1, 1, 1};
    last == 6 ? ExpectTaken(both)
              : ExpectRefused(both, ("key " + std::to_string(last) + " of table 't' comes twice").c_str());
  }
  Request read_and_push = NextPush({1, 2});
  read_and_push.tables[0].fetch_keys = {1, 2};
  ExpectTaken(read_and_push);  // once in each
  left.seq = left.after_seq = 2;
  ExpectTaken(left, Handling());  // a copy
  EXPECT_EQ(ClockOf(1), 3);
}

TEST_F(PartitionTest, TablesThatComeTwice) {
  Request q = Fetch({1});
  q.tables.push_back(q.tables[0]);
  q.tables[1].bound = 3;
  q.tables[1].fetch_keys = {2};
  ExpectRefused(q, "a part names table 't' twice");
}

// A sweep looks at some tables, and the next one at others.
TEST_F(PartitionTest, ASweepReachesAllOfManyTables) {
  TableLimits limits;
  limits.ttl = 10;
  limits.since = 1;
  constexpr int kTables = 600;
  for (int i = 0; i < kTables; ++i) {
    const Schema schema = NewSchema("table" + std::to_string(i), 2, "sgd", {}, limits);
    ASSERT_TRUE(partition_->CreateTable(schema, kEpoch).ok());
    bool created = false;
    Shard* const shard = partition_->Find(schema->id());
    shard->FindOrCreate(7, shard->rows().Hash(7), &created);
  }
  EXPECT_TRUE(partition_->swept_all());
  const uint64_t first = partition_->Sweep(5000, 1000, nullptr).rows();
  EXPECT_GT(first, 0u);
  EXPECT_LT(first, 300u);
  EXPECT_FALSE(partition_->swept_all());
  uint64_t swept = first;
  for (int i = 0; i < 2; ++i) swept += partition_->Sweep(5000, 1000, nullptr).rows();
  EXPECT_EQ(swept, static_cast<uint64_t>(kTables));
}

TEST(LoadMark, HoldsADayAtMost) {
  EXPECT_TRUE((LoadMark{"me", 100, 200}).holds(199));
  EXPECT_FALSE((LoadMark{"me", 100, 200}).holds(200));
  EXPECT_TRUE((LoadMark{"me", 100, 100 + LoadMark::kMaxSeconds}).holds(100));
  EXPECT_FALSE((LoadMark{"me", 100, 101 + LoadMark::kMaxSeconds}).holds(100)) << "until 2106, say";
}

}  // namespace
}  // namespace het::testing::partition_test
