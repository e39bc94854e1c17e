// The conversation with one partition, played without a partition, a cache or a clock.
#include "het_tf/core/client/session.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "het_tf/core/client/row_sink.h"
#include "tests/testing/table_specs.h"

namespace het {
namespace {

constexpr uint64_t kIncarnation = 70;

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    schema_ = testing::NewSchema("t", 2, "row_wise_adagrad");
    config_.forgotten_after = 1000;
    config_.new_id = [this] { return ClientId{1, ++newest_id_}; };
  }
  void Keep() { config_.keep_applied = true; }

  void Push(uint32_t ticks = 1) {
    TablePush* const push = session_.log().Append(++number_)->Add(schema_, RowFormat::kFloat32, 1);
    push->keys.push_back(7);
    push->ticks.push_back(ticks);
    for (size_t i = 0; i < schema_->optimizer().wire_floats(); ++i) Writer(&push->rows).Fixed(1.0f);
  }
  PartitionReadPtr Ask() {
    auto read = std::make_shared<PartitionRead>();
    read->op = &op_;
    session_.Ask(read);
    return read;
  }
  // Sends the next request, if one may go out, and returns what it says.
  std::optional<OutRequest> Send(uint64_t connection = 1, bool subscribes = false) {
    Session::Outgoing next;
    if (!session_.Next(now_, &next)) return std::nullopt;
    OutRequest request;
    session_.FillIn(next, &request);
    request.request_id = ++request_id_;
    if (subscribes) request.tables.emplace_back().subscribe = true;
    session_.Sent(next, request, request.request_id, now_, connection);
    return request;
  }
  static Reply Answer(FrameStatus status, uint64_t last_seq, uint64_t incarnation = kIncarnation) {
    Reply reply;
    reply.status = status;
    reply.last_seq = last_seq;
    reply.inc = incarnation;
    return reply;
  }
  // About the table.
  Reply AnswerOfTable(FrameStatus status, uint64_t epoch = 0) const {
    Reply reply = Answer(status, 0);
    reply.tables.resize(1);
    reply.tables[0].table = schema_->id();
    reply.tables[0].epoch = epoch;
    return reply;
  }
  Verdict Hear(const OutRequest& request, const Reply& reply) {
    const Session::Outstanding* const found = session_.Find(request.request_id);
    EXPECT_NE(found, nullptr);
    return session_.OnReply(session_.Take(found), reply, now_);
  }
  // Pushes so many frames, which are applied.
  void Applied(int frames) {
    for (int i = 0; i < frames; ++i) Push();
    for (int i = 0; i < frames; ++i) {
      const auto request = Send();
      ASSERT_TRUE(request);
      EXPECT_TRUE(Hear(*request, Answer(FrameStatus::kOk, request->seq)).progress);
    }
  }

  Session::Config config_;
  uint64_t newest_id_ = 1;
  Session session_{3, ClientId{1, 1}, &config_};
  ReadOp op_;
  Schema schema_;
  uint64_t number_ = 0;
  uint32_t request_id_ = 0;
  double now_ = 1;
};

TEST_F(SessionTest, AnOrdinaryAnswer) {
  Push();
  Ask();
  const auto request = Send(4);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->inc, 0u);
  const Verdict verdict = Hear(*request, Answer(FrameStatus::kOk, 1));
  EXPECT_EQ(verdict.answer, Verdict::kRows);
  EXPECT_TRUE(verdict.progress);
  EXPECT_FALSE(verdict.new_incarnation);
  EXPECT_EQ(session_.incarnation(), kIncarnation);
  EXPECT_TRUE(session_.log().frames().empty()) << "applied is durable here";
  uint64_t connection = 0;
  EXPECT_EQ(session_.Written(&connection), 1u);
  EXPECT_EQ(connection, 4u);
  Ask();
  EXPECT_EQ(Send()->inc, kIncarnation);
}

TEST_F(SessionTest, PausesDouble) {
  std::vector<double> pauses;
  for (int i = 0; i < 9; ++i) {
    static_cast<void>(session_.OnFailure("no", false, now_, 0.999999));
    pauses.push_back(session_.backoff().not_before() - now_);
  }
  EXPECT_NEAR(pauses[0], config_.backoff.first, 1e-6);
  EXPECT_NEAR(pauses[3], 8 * config_.backoff.first, 1e-6);
  EXPECT_NEAR(pauses[8], config_.backoff.most, 1e-6);
  EXPECT_EQ(session_.backoff().since(), now_);
}

TEST_F(SessionTest, AGapIsRewound) {
  Push();
  Push();
  Send();
  const auto second = Send();
  EXPECT_EQ(Hear(*second, Answer(FrameStatus::kGap, 0)).answer, Verdict::kAskAgain);
  EXPECT_FALSE(Send()) << "the first is still on its way";
  static_cast<void>(session_.Take(&session_.outstanding().front()));
  EXPECT_EQ(Send()->seq, 1u);
}

// --- incarnations

TEST_F(SessionTest, ANewIncarnationThatHasEverything) {
  Applied(2);
  const PartitionReadPtr first = Ask();
  const auto a = Send();
  const PartitionReadPtr second = Ask();
  const auto b = Send();
  const Verdict verdict = Hear(*a, Answer(FrameStatus::kOk, 2, 71));
  EXPECT_TRUE(verdict.new_incarnation);
  EXPECT_EQ(verdict.answer, Verdict::kAskAgain) << "its rows answer a question about old bases";
  EXPECT_EQ(verdict.unanswered, std::vector<PartitionReadPtr>({second}));
  EXPECT_EQ(verdict.lost + verdict.repaired, 0u);
  EXPECT_FALSE(verdict.new_identity);
  EXPECT_EQ(Hear(*b, Answer(FrameStatus::kOk, 2, 71)).answer, Verdict::kNothing);
}

TEST_F(SessionTest, WhatAnEarlierIncarnationAnswersIsLate) {
  Applied(1);
  Ask();
  const auto a = Send();
  Ask();
  const auto b = Send();
  Hear(*a, Answer(FrameStatus::kOk, 1, 71));
  const Verdict late = Hear(*b, Answer(FrameStatus::kOk, 1, kIncarnation));
  EXPECT_FALSE(late.new_incarnation);
  EXPECT_EQ(session_.incarnation(), 71u);
  // Asked when nothing else was on its way, it is the partition's state.
  Ask();
  const auto c = Send();
  EXPECT_TRUE(Hear(*c, Answer(FrameStatus::kOk, 1, kIncarnation)).new_incarnation);
  EXPECT_EQ(session_.incarnation(), kIncarnation);
}

TEST_F(SessionTest, LostPushesThatAreKeptAreSentAgain) {
  Keep();
  Applied(3);
  Ask();
  const Verdict verdict = Hear(*Send(), Answer(FrameStatus::kGap, 1, 71));
  EXPECT_EQ(verdict.lost, 0u);
  EXPECT_EQ(verdict.repaired, 2u);
  EXPECT_FALSE(verdict.new_identity);
  EXPECT_EQ(Send()->seq, 2u);
  EXPECT_EQ(Send()->seq, 3u);
}

TEST_F(SessionTest, AnswersToTheOldIdentityAcknowledgeNothing) {
  Keep();
  Applied(3);
  session_.log().ForgetThrough(3);
  Ask();
  const auto a = Send();
  Push();
  const auto b = Send();
  EXPECT_TRUE(Hear(*a, Answer(FrameStatus::kGap, 0, 71)).new_identity);
  const Verdict verdict = Hear(*b, Answer(FrameStatus::kOk, 4, 71));
  EXPECT_FALSE(verdict.progress);
  EXPECT_EQ(session_.log().applied(), 0u);
}

// Would find pushes that are sent again because an answer is older than what others have acknowledged.
TEST_F(SessionTest, AGapIsALossOnlyWhenNothingElseWasOnItsWay) {
  Keep();
  Applied(2);
  for (const uint64_t repaired : {0, 1}) {
    Ask();
    const Verdict verdict = Hear(*Send(), Answer(FrameStatus::kGap, 1));
    EXPECT_EQ(verdict.repaired, repaired);
    EXPECT_FALSE(verdict.new_identity);
  }
  EXPECT_EQ(Send()->seq, 2u);
}

TEST_F(SessionTest, APartitionThatForgotASilentClientHasLostNothing) {
  Keep();
  Applied(2);
  now_ += config_.forgotten_after;
  Ask();
  const Verdict verdict = Hear(*Send(), Answer(FrameStatus::kGap, 0, 71));
  EXPECT_EQ(verdict.lost + verdict.repaired, 0u);
  EXPECT_TRUE(verdict.new_identity);
  EXPECT_TRUE(session_.log().frames().empty());
}

// --- tables

TEST_F(SessionTest, AnEpochIsLearntFirstAndChangesLater) {
  Push(5);
  EXPECT_TRUE(Hear(*Send(), AnswerOfTable(FrameStatus::kEpoch, 11)).reloaded.empty());
  EXPECT_EQ(session_.epochs()[schema_->id()], 11u);
  const Verdict verdict = Hear(*Send(), AnswerOfTable(FrameStatus::kEpoch, 12));
  ASSERT_EQ(verdict.reloaded.size(), 1u);
  EXPECT_EQ(verdict.reloaded[0].dropped_ticks, 5u);
  EXPECT_EQ(Send()->seq, 1u) << "empty, but there is no gap";
}

// Defect: applied updates are reported as discarded.
TEST_F(SessionTest, AReloadDiscardsOnlyWhatWasNotApplied) {
  Ask();
  Hear(*Send(), AnswerOfTable(FrameStatus::kEpoch, 11));
  Push(5);
  Push(3);
  Reply epoch = AnswerOfTable(FrameStatus::kEpoch, 12);
  epoch.last_seq = 1;
  EXPECT_EQ(Hear(*Send(), epoch).reloaded.at(0).dropped_ticks, 3u);
}

TEST_F(SessionTest, ATableThatIsGone) {
  Push(5);
  Ask();
  const Verdict verdict = Hear(*Send(), AnswerOfTable(FrameStatus::kNoTable));
  EXPECT_EQ(verdict.answer, Verdict::kRefused);
  EXPECT_TRUE(verdict.pushes_refused);
  ASSERT_EQ(verdict.gone.size(), 1u);
  EXPECT_EQ(verdict.gone[0].dropped_ticks, 5u);
  EXPECT_TRUE(session_.fatal().ok());
  EXPECT_EQ(Send()->seq, 1u);
}

// --- refusals

TEST_F(SessionTest, AWrongPartitionIsRefusedForGood) {
  Ask();
  Reply wrong = Answer(FrameStatus::kWrongPartition, 0);
  wrong.message = "another hash";
  EXPECT_EQ(Hear(*Send(), wrong).answer, Verdict::kRefused);
  EXPECT_NE(session_.fatal().message().find("partition 3 refuses this client: another hash"),
            std::string::npos);
  Ask();
  EXPECT_FALSE(Send());
}

TEST_F(SessionTest, APartElsewhereGoesAloneUntilARefusalSaysWhere) {
  Ask();
  EXPECT_EQ(Hear(*Send(), Answer(FrameStatus::kElsewhere, 0)).answer, Verdict::kAskAgain);
  EXPECT_TRUE(session_.goes_alone());
  static_cast<void>(session_.OnFailure("it moves", false, now_, 0));
  now_ = session_.backoff().not_before();
  Ask();
  Hear(*Send(), Answer(FrameStatus::kOk, 0));
  EXPECT_FALSE(session_.goes_alone());
}

TEST_F(SessionTest, AStoreWithoutMemoryIsAFailureAndAcknowledges) {
  Push();
  Push();
  const auto first = Send();
  const Verdict verdict = Hear(*first, Answer(FrameStatus::kOutOfMemory, 1));
  EXPECT_EQ(verdict.failure, kStoreOutOfMemory);
  EXPECT_EQ(verdict.answer, Verdict::kAskAgain);
  EXPECT_EQ(session_.log().applied(), 1u);
}

TEST_F(SessionTest, RowsFromBeforeKeptPushesCanBeBroughtUpToDate) {
  Keep();
  Applied(1);
  Ask();
  const auto old = Send();
  Push();
  const auto push = Send();
  Hear(*push, Answer(FrameStatus::kOk, 2));
  EXPECT_EQ(Hear(*old, Answer(FrameStatus::kOk, 1)).answer, Verdict::kRows);
}

TEST_F(SessionTest, NotificationsOlderThanThoseTakenInAreAskedForAgain) {
  for (const bool reset : {false, true}) {
    session_.SetNotified(5);
    Ask();
    Reply reply = Answer(FrameStatus::kOk, 0);
    reply.notified = 5;
    reply.subscription_reset = reset;
    EXPECT_EQ(Hear(*Send(1, /*subscribes=*/true), reply).answer, reset ? Verdict::kRows : Verdict::kAskAgain);
  }
}

}  // namespace
}  // namespace het
