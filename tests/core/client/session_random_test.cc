#include <algorithm>
#include <vector>

#include "tests/core/client/session_fixture.h"
#include "tests/testing/random.h"

namespace het {
namespace {

class SessionRandomTest : public SessionFixture {};

// Whatever is answered, in whatever order: frames keep their numbers, each read is at one place or
// was given back, and a partition that answers in earnest at last gets everything.
TEST_F(SessionRandomTest, AnyRepliesInAnyOrder) {
  testing::Random random(1);
  for (int round = 0; round < 300; ++round) {
    config_.keep_applied = random.Chance(0.5);
    Session session(3, ClientId{1, 1}, &config_);
    std::vector<OutRequest> on_way;
    size_t reads = 0, answered = 0;
    auto again = [&](PartitionReadPtr read) {
      if (read != nullptr) session.Ask(std::move(read));
    };
    auto settle = [&](const Session::Outstanding& request, const Verdict& verdict) {
      for (const PartitionReadPtr& read : verdict.unanswered) again(read);
      if (verdict.answer == Verdict::kAskAgain) again(request.read);
      const bool ends = verdict.answer == Verdict::kRows || verdict.answer == Verdict::kRefused;
      answered += request.read != nullptr && ends;
    };
    auto send = [&] {
      Session::Outgoing next;
      if (!session.Next(now_, &next)) return false;
      OutRequest request;
      session.FillIn(next, &request);
      request.request_id = ++request_id_;
      EXPECT_LE(request.seq, request.after_seq);
      EXPECT_LT(request.after_seq, session.log().next_seq());
      session.Sent(next, request, request.request_id, now_, 1);
      on_way.push_back(request);
      return true;
    };
    for (int step = 0; step < 60 && session.fatal().ok(); ++step) {
      now_ += 0.3;
      const uint64_t what = random.Below(6);
      if (what == 0) session.log().Append(++number_);
      if (what == 1) {
        auto read = std::make_shared<PartitionRead>();
        read->op = &op_;
        session.Ask(read);
        ++reads;
      }
      if (what == 2 || what == 3) send();
      if (what == 4 && random.Chance(0.3)) {
        for (PartitionReadPtr& read : session.OnFailure("closed", random.Chance(0.5), now_, 0.5)) again(read);
      }
      if (what == 5 && !on_way.empty()) {
        const size_t i = random.Below(on_way.size());
        const Session::Outstanding* const found = session.Find(on_way[i].request_id);
        on_way.erase(on_way.begin() + static_cast<ptrdiff_t>(i));
        if (found == nullptr) continue;
        const auto status = static_cast<FrameStatus>(random.Chance(0.5) ? 0 : random.Below(4));
        const Reply reply = Answer(status, random.Below(session.log().next_seq() + 2), 70 + random.Below(3));
        const Session::Outstanding request = session.Take(found);
        settle(request, session.OnReply(request, reply, now_));
      }
      uint64_t seq = 0;
      for (const PushFrame& frame : session.log().frames()) {
        ASSERT_TRUE(seq == 0 || frame.seq == seq + 1);
        seq = frame.seq;
      }
      ASSERT_LT(session.log().applied(), session.log().next_seq());
      ASSERT_LE(session.log().durable(), session.log().applied());
    }
    // An earnest partition: it has what was applied, and applies the next.
    for (PartitionReadPtr& read : session.OnFailure("closed", true, now_, 0.5)) again(read);
    uint64_t last_seq = session.log().applied();
    const ClientId known = session.client();
    for (int tries = 0; tries < 1000 && session.busy(); ++tries) {
      now_ += 2;
      while (send()) {
      }
      ASSERT_FALSE(session.outstanding().empty());
      const Session::Outstanding request = session.Take(&session.outstanding().front());
      ASSERT_TRUE(session.client() == known);
      const OutRequest said = *std::find_if(on_way.begin(), on_way.end(), [&](const OutRequest& each) {
        return each.request_id == request.request_id;
      });
      if (said.seq == last_seq + 1) ++last_seq;
      const bool gap = said.after_seq > last_seq || said.seq > last_seq;
      const uint64_t incarnation = session.incarnation() == 0 ? kIncarnation : session.incarnation();
      settle(request,
             session.OnReply(
                 request, Answer(gap ? FrameStatus::kGap : FrameStatus::kOk, last_seq, incarnation), now_));
    }
    ASSERT_FALSE(session.busy()) << round;
    ASSERT_EQ(answered, reads) << round;
  }
}

}  // namespace
}  // namespace het
