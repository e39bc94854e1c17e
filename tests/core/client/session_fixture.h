// A conversation with one partition, whose answers the test makes up.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "het_tf/core/client/row_sink.h"
#include "het_tf/core/client/session.h"
#include "tests/testing/table_specs.h"

namespace het {

inline constexpr uint64_t kIncarnation = 70;

class SessionFixture : public ::testing::Test {
 protected:
  SessionFixture() {
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
  std::optional<OutRequest> Send(uint64_t connection = 1) {
    Session::Outgoing next;
    if (!session_.Next(now_, &next)) return std::nullopt;
    OutRequest request;
    session_.FillIn(next, &request);
    request.request_id = ++request_id_;
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

}  // namespace het
