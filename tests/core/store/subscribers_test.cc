// A partition's record of its clients' subscriptions (core/store/subscribers.h): each rule separately. The
// random schedules with checks="notified" (protocol/schedules_test.cc) lose, repeat and reorder the answers.
#include "het_tf/core/store/subscribers.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "het_tf/core/base/alloc.h"

namespace het::testing {
namespace {

constexpr uint64_t kTable = 7;
constexpr int64_t kBound = 3;
constexpr ClientId kAnn{1, 1};
constexpr ClientId kBob{1, 2};

class SubscribersTest : public ::testing::Test {
 protected:
  using Names = Vector<Key>;

  // A request of a client that acknowledges `ack`, fetches keys at clock g_[key], and evicts others.
  struct Answer {
    uint32_t number;
    bool reset;
    Names named;
  };
  Answer Ask(ClientId client, uint32_t ack, const std::vector<Key>& fetch = {},
             const std::vector<Key>& drop = {}) {
    return AskAs(client, ++request_, ack, fetch, drop);
  }
  Answer AskAs(ClientId client, uint32_t request, uint32_t ack, const std::vector<Key>& fetch = {},
               const std::vector<Key>& drop = {}) {
    Subscribers::Turn turn =
        subscribers_.Begin(client, request, ack, {{kTable, epoch_, bound_, fetch.size()}});
    turn.At(kTable, Vector<Key>(drop.begin(), drop.end()));
    for (Key key : fetch) turn.Subscribe(key, g_[key]);
    Answer answer{turn.number(), turn.reset(), {}};
    turn.Notify(&answer.named);
    return answer;
  }
  void Push(ClientId from, Key key, uint32_t ticks) {
    g_[key] += ticks;
    subscribers_.Pushed(from, kTable, {key}, {ticks}, [&](size_t) { return g_[key]; });
  }
  void Left(ClientId from, uint32_t ack, const Names& keys) { subscribers_.Left(from, ack, kTable, keys); }

  Subscribers subscribers_;
  std::map<Key, Clock> g_;
  uint64_t epoch_ = 1;
  Bound bound_ = kBound;
  uint32_t request_ = 0;
};

TEST_F(SubscribersTest, NotifiesOnceAndEndsTheSubscription) {
  const Answer first = Ask(kAnn, 0, {1, 2});
  EXPECT_TRUE(first.reset);
  EXPECT_NE(first.number, 0u);
  Push(kBob, 1, kBound);
  const Answer within = Ask(kAnn, first.number);
  EXPECT_FALSE(within.reset);
  EXPECT_EQ(within.named, Names());
  Push(kBob, 1, 1);
  const Answer moved = Ask(kAnn, within.number);
  EXPECT_EQ(moved.named, Names({1}));
  EXPECT_EQ(subscribers_.held(), 2u) << "until it is known to have arrived";
  Push(kBob, 1, kBound + 1);
  const Answer after = Ask(kAnn, moved.number);
  EXPECT_EQ(after.named, Names());
  EXPECT_EQ(subscribers_.held(), 1u);
  const Answer back = Ask(kAnn, after.number, {1});
  Push(kBob, 1, kBound);
  EXPECT_EQ(Ask(kAnn, back.number).named, Names()) << "its base is what was fetched";
  Push(kBob, 1, 1);
  EXPECT_EQ(Ask(kAnn, back.number + 1).named, Names({1}));
}

TEST_F(SubscribersTest, NamesAreInOrder) {
  const uint32_t ack = Ask(kAnn, 0, {1, 2, 3, 4}).number;
  for (Key key : {3, 1, 4}) Push(kBob, key, kBound + 1);
  EXPECT_EQ(Ask(kAnn, ack).named, Names({1, 3, 4}));
}

TEST_F(SubscribersTest, SilentClientsAreForgotten) {
  const uint32_t ann = Ask(kAnn, 0, {1, 2}).number;
  const uint32_t bob = Ask(kBob, 0, {1}).number;
  subscribers_.ForgetSilent(1000);
  EXPECT_FALSE(Ask(kAnn, ann).reset);
  subscribers_.ForgetSilent(1000 + Subscribers::kSilentSeconds - 1);
  EXPECT_EQ(subscribers_.held(), 3u);
  subscribers_.ForgetSilent(900);
  EXPECT_EQ(subscribers_.clients(), 2u) << "a clock that goes back";
  subscribers_.ForgetSilent(1000 + Subscribers::kSilentSeconds);
  EXPECT_EQ(subscribers_.held(), 2u) << "of the one that has asked since";
  EXPECT_FALSE(Ask(kAnn, ann + 2).reset);
  EXPECT_TRUE(Ask(kBob, bob).reset);
}

TEST_F(SubscribersTest, UnacknowledgedNameIsRepeated) {
  const uint32_t ack = Ask(kAnn, 0, {1, 2}).number;
  Push(kBob, 1, kBound + 1);
  EXPECT_EQ(Ask(kAnn, ack).named, Names({1}));
  Push(kBob, 2, kBound + 1);
  EXPECT_EQ(Ask(kAnn, ack).named, Names({1, 2})) << "the first one again";
  const Answer third = Ask(kAnn, ack);
  EXPECT_EQ(third.named, Names({1, 2}));
  EXPECT_EQ(Ask(kAnn, third.number).named, Names());
  EXPECT_EQ(subscribers_.held(), 0u);
}

// The client fetches a row before it knows that the row was named: the answer has the current row.
TEST_F(SubscribersTest, RowFetchedWhileNamedStaysSubscribed) {
  const uint32_t ack = Ask(kAnn, 0, {1}).number;
  Push(kBob, 1, kBound + 1);
  ASSERT_EQ(Ask(kAnn, ack).named, Names({1}));
  const Answer brought = Ask(kAnn, ack, {1});
  EXPECT_EQ(brought.named, Names()) << "the answer has the row anyway";
  Push(kBob, 1, kBound);
  const Answer within = Ask(kAnn, brought.number);
  EXPECT_EQ(within.named, Names());
  EXPECT_EQ(subscribers_.held(), 1u);
  Push(kBob, 1, 1);
  EXPECT_EQ(Ask(kAnn, within.number).named, Names({1}));
}

TEST_F(SubscribersTest, RowMovedBeforeAcknowledgementIsNamed) {
  const uint32_t ack = Ask(kAnn, 0, {1}).number;
  Push(kBob, 1, kBound + 1);
  const Answer brought = Ask(kAnn, ack, {1});
  Push(kBob, 1, kBound + 1);
  EXPECT_EQ(Ask(kAnn, brought.number).named, Names({1}));
}

TEST_F(SubscribersTest, OwnPushesRaiseTheBase) {
  uint32_t ack = Ask(kAnn, 0, {1}).number;
  Push(kAnn, 1, 100);
  Push(kBob, 1, kBound);
  Answer answer = Ask(kAnn, ack);
  EXPECT_EQ(answer.named, Names());
  Push(kBob, 1, 1);
  answer = Ask(kAnn, answer.number, {1});
  Push(kAnn, 1, 100);  // between the answer with the row and its acknowledgement
  Push(kBob, 1, kBound);
  EXPECT_EQ(Ask(kAnn, answer.number).named, Names());
}

TEST_F(SubscribersTest, DroppedRowIsNotNamed) {
  const Answer first = Ask(kAnn, 0, {1, 2});
  const Answer second = Ask(kAnn, first.number, {}, {1, 5});
  EXPECT_EQ(subscribers_.held(), 1u);
  Push(kBob, 1, 100);
  Push(kBob, 2, 100);
  EXPECT_EQ(Ask(kAnn, second.number, {}, {2}).named, Names()) << "let go while it was to be named";
  EXPECT_EQ(subscribers_.held(), 0u);
}

// The client fetches a row twice at once, evicts the first copy, and says so before the second has come.
TEST_F(SubscribersTest, DropDoesNotReachRowInFlight) {
  const uint32_t ack = Ask(kAnn, 0, {9}).number;
  const uint32_t first = Ask(kAnn, ack, {1}).number;
  const uint32_t second = Ask(kAnn, ack, {1}).number;
  Ask(kAnn, first, {}, {1});
  Push(kBob, 1, 100);
  EXPECT_EQ(Ask(kAnn, second).named, Names({1}));
}

TEST_F(SubscribersTest, RowEvictedWithItsPushIsNotNamed) {
  const uint32_t ack = Ask(kAnn, 0, {1, 2, 3}).number;
  Ask(kBob, 0, {1});
  Left(kAnn, ack, {1, 5});
  Left(kAnn, ack, {});
  EXPECT_EQ(subscribers_.held(), 3u);
  for (Key key : {1, 2, 3}) Push(kBob, key, 100);
  Left(kAnn, ack, {2});
  EXPECT_EQ(Ask(kAnn, ack).named, Names({3})) << "2 left while it was to be named";
}

// A push that reports the eviction was made while another answer with the row was in flight.
TEST_F(SubscribersTest, LeavingDoesNotReachRowInFlight) {
  const uint32_t ack = Ask(kAnn, 0, {9}).number;
  const uint32_t first = Ask(kAnn, ack, {1}).number;
  const uint32_t second = Ask(kAnn, ack, {1}).number;
  Left(kAnn, first, {1});
  Push(kBob, 1, 100);
  EXPECT_EQ(Ask(kAnn, second).named, Names({1}));
}

TEST_F(SubscribersTest, LeavingAsOfAnotherLifeIsIgnored) {
  const uint32_t ack = Ask(kAnn, 0, {1}).number;
  Left(kAnn, ack + 1000, {1});
  Left(kAnn, 0, {1});
  Left(kBob, ack, {1});
  EXPECT_EQ(subscribers_.held(), 1u);
}

// The client has the row at an old clock; an answer with a newer one is lost.
TEST_F(SubscribersTest, LostFetchDoesNotRaiseTheBase) {
  const uint32_t ack = Ask(kAnn, 0, {1}).number;
  Push(kBob, 1, kBound);
  Ask(kAnn, ack, {1});
  Push(kBob, 1, 1);
  EXPECT_EQ(Ask(kAnn, ack).named, Names({1}));
}

TEST_F(SubscribersTest, LostFetchIsNoName) {
  const uint32_t ack = Ask(kAnn, 0, {1}).number;
  Push(kBob, 1, 100);
  EXPECT_EQ(Ask(kAnn, ack, {1}).named, Names()) << "the answer has the row anyway";
  EXPECT_EQ(Ask(kAnn, ack).named, Names({1}));
}

TEST_F(SubscribersTest, UnknownAcknowledgementResets) {
  const uint32_t ack = Ask(kAnn, 0, {1}).number;
  EXPECT_FALSE(Ask(kAnn, ack).reset);
  EXPECT_TRUE(Ask(kAnn, 0).reset);
  EXPECT_EQ(subscribers_.held(), 0u);
  EXPECT_TRUE(Ask(kAnn, ack).reset) << "of before the reset";
  EXPECT_TRUE(Ask(kAnn, ack + 1000).reset);
  EXPECT_TRUE(Ask(kBob, 0).reset);
  EXPECT_EQ(subscribers_.resets(), 5u);
}

TEST_F(SubscribersTest, NumbersAreNeverUsedTwice) {
  std::set<uint32_t> numbers;
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(numbers.insert(Ask(i % 2 == 0 ? kAnn : kBob, 0).number).second);
    if (i % 5 == 0) subscribers_.Clear();
  }
}

TEST_F(SubscribersTest, AnotherBoundOrEpochResets) {
  uint32_t ack = Ask(kAnn, 0, {1}).number;
  bound_ = 2;
  Answer answer = Ask(kAnn, ack, {1});
  EXPECT_TRUE(answer.reset);
  epoch_ = 2;
  answer = Ask(kAnn, answer.number);
  EXPECT_TRUE(answer.reset);
  EXPECT_EQ(subscribers_.held(), 0u);
}

TEST_F(SubscribersTest, RequestOfClosedConnectionIsIgnored) {
  const uint32_t old = ++request_;
  const uint32_t ack = Ask(kAnn, 0, {1, 2}).number;
  const Answer ghost = AskAs(kAnn, old, ack, {3}, {1});
  EXPECT_EQ(ghost.number, 0u);
  EXPECT_TRUE(ghost.reset);
  EXPECT_EQ(subscribers_.held(), 2u);
  EXPECT_FALSE(Ask(kAnn, ack).reset);
  EXPECT_EQ(AskAs(kAnn, request_, ack).number, 0u) << "a copy";
  EXPECT_FALSE(Ask(kAnn, ack).reset);
}

TEST_F(SubscribersTest, RequestNumbersMayWrap) {
  request_ = UINT32_MAX - 1;
  uint32_t ack = 0;
  for (int i = 0; i < 5; ++i) {
    const Answer answer = Ask(kAnn, ack, {i});
    EXPECT_EQ(answer.reset, i == 0);
    ack = answer.number;
  }
}

TEST_F(SubscribersTest, RemovedRowIsNamed) {
  g_ = {{1, 5}, {2, 0}};
  const uint32_t ack = Ask(kAnn, 0, {1, 2}).number;
  g_[1] = 0;
  subscribers_.Removed(kTable, 1);
  subscribers_.Removed(kTable, 3);
  const Answer answer = Ask(kAnn, ack);
  EXPECT_EQ(answer.named, Names({1}));
  const Answer back = Ask(kAnn, answer.number, {1});
  Push(kBob, 1, kBound);
  EXPECT_EQ(Ask(kAnn, back.number).named, Names());
}

TEST_F(SubscribersTest, LimitForgetsLeastRecentClient) {
  subscribers_.set_limit(4);
  const uint32_t ann = Ask(kAnn, 0, {1, 2}).number;
  const uint32_t bob = Ask(kBob, 0, {1, 2}).number;
  EXPECT_EQ(subscribers_.held(), 4u);
  const Answer more = Ask(kBob, bob, {3});
  EXPECT_FALSE(more.reset);
  EXPECT_EQ(subscribers_.held(), 3u);
  EXPECT_EQ(subscribers_.clients(), 1u);
  const Answer back = Ask(kAnn, ann, {1});
  EXPECT_TRUE(back.reset);
  EXPECT_EQ(subscribers_.held(), 4u);
}

TEST_F(SubscribersTest, ClientBeyondTheLimitIsReset) {
  subscribers_.set_limit(4);
  Answer answer = Ask(kAnn, 0, {1, 2, 3});
  answer = Ask(kAnn, answer.number, {4, 5});
  EXPECT_TRUE(answer.reset);
  EXPECT_EQ(subscribers_.held(), 2u);
  const Answer other = Ask(kBob, 0, {1});
  answer = Ask(kAnn, answer.number, {1, 2, 3, 4, 5});
  EXPECT_TRUE(answer.reset);
  EXPECT_EQ(answer.number, 0u) << "that many are never held";
  EXPECT_FALSE(Ask(kBob, other.number).reset) << "other clients keep theirs";
  EXPECT_EQ(subscribers_.held(), 1u);
}

// Defect: a partition notifies of young rows by the bound of old ones.
TEST_F(SubscribersTest, NotifiesPastTheBoundOfARowsAge) {
  bound_ = Bound(3, 10);
  g_ = {{1, 0}, {2, 100}};
  const uint32_t first = Ask(kAnn, 0, {1, 2}).number;
  Push(kBob, 1, 2);
  Push(kBob, 2, 2);
  EXPECT_EQ(Ask(kAnn, first).named, Names({1}));
  Push(kBob, 2, 2);
  EXPECT_EQ(Ask(kAnn, first + 1).named, Names({2}));
}

TEST_F(SubscribersTest, APushThatFindsNoRowMovesNothing) {
  Push(kBob, 1, 2);
  const uint32_t first = Ask(kAnn, 0, {1}).number;
  subscribers_.Pushed(kBob, kTable, {1}, {0}, [](size_t) { return Clock{0}; });
  EXPECT_EQ(Ask(kAnn, first).named, Names());
}

TEST_F(SubscribersTest, MemoryIsCounted) {
  const size_t before = subscribers_.bytes();
  std::vector<Key> keys(1000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(i);
  const size_t held = AllocatedBytes();
  Ask(kAnn, 0, keys);
  EXPECT_GE(subscribers_.bytes(), before + keys.size() * 24);
  EXPECT_NEAR(static_cast<double>(subscribers_.bytes() - before),
              static_cast<double>(AllocatedBytes() - held), 600.0);
  EXPECT_LT(subscribers_.bytes() - before, keys.size() * 60);
  subscribers_.Clear();
  EXPECT_EQ(subscribers_.bytes(), 0u);
}

// A push is never refused for lack of memory to note it: the affected client is forgotten.
TEST_F(SubscribersTest, OutOfMemoryForgets) {
  std::vector<Key> keys(100);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(i);
  const uint32_t ack = Ask(kAnn, 0, keys).number;
  const Vector<Key> pushed = {5};
  const Vector<uint32_t> ticks = {100};
  SetAllocLimit(AllocatedBytes());
  subscribers_.Pushed(kBob, kTable, pushed, ticks, [&](size_t) { return 100; });
  SetAllocLimit(SIZE_MAX);
  EXPECT_EQ(subscribers_.clients(), 0u);
  EXPECT_TRUE(Ask(kAnn, ack).reset);
}

}  // namespace
}  // namespace het::testing
