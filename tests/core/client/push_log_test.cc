#include "het_tf/core/client/push_log.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/testing/table_specs.h"

namespace het {
namespace {

Schema MakeSchema(const std::string& name) { return testing::NewSchema(name, 2, "row_wise_adagrad"); }

class PushLogTest : public ::testing::Test {
 protected:
  // A frame in which each key gets `ticks` ticks that add `value` to both of its floats.
  PushFrame* Push(const Schema& schema, const std::vector<Key>& keys, uint32_t ticks = 1, float value = 1) {
    PushFrame* const frame = log_.Append(++number_);
    TablePush* const push = frame->Add(schema, RowFormat::kFloat32, keys.size());
    for (Key key : keys) {
      push->keys.push_back(key);
      push->ticks.push_back(ticks);
      for (size_t i = 0; i < schema->optimizer().wire_floats(); ++i) Writer(&push->rows).Fixed(value);
    }
    return frame;
  }
  float Merged(Key key, uint64_t seq, uint64_t* ticks) {
    std::vector<float> row(t_->row_floats());
    *ticks = log_.MergeOnto(t_->id(), key, seq, row.data());
    EXPECT_EQ(row[0], row[1]);
    return row[0];
  }
  std::vector<uint64_t> Seqs() const {
    std::vector<uint64_t> seqs;
    for (const PushFrame& frame : log_.frames()) seqs.push_back(frame.seq);
    return seqs;
  }

  PushLog log_;
  uint64_t number_ = 0;
  Schema t_ = MakeSchema("t");
  Schema u_ = MakeSchema("u");
};

TEST_F(PushLogTest, AcknowledgeGoesForwardAndNotPastTheLastFrame) {
  for (int i = 0; i < 3; ++i) Push(t_, {1});
  EXPECT_TRUE(log_.Acknowledge(2));
  EXPECT_FALSE(log_.Acknowledge(1)) << "a late answer";
  EXPECT_EQ(log_.applied(), 2u);
  EXPECT_TRUE(log_.Acknowledge(99));
  EXPECT_EQ(log_.applied(), 3u);
  EXPECT_FALSE(log_.unapplied());
}

TEST_F(PushLogTest, KeptBytesAreThoseOfAppliedFrames) {
  const size_t one = Push(t_, {1, 2})->bytes();
  Push(t_, {1, 2});
  Push(t_, {1, 2});
  EXPECT_EQ(log_.kept_bytes(), 0u);
  log_.Acknowledge(2);
  EXPECT_EQ(log_.kept_bytes(), 2 * one);
  EXPECT_TRUE(log_.keeps());
  log_.ForgetThrough(1);
  EXPECT_EQ(log_.kept_bytes(), one);
  EXPECT_EQ(log_.durable(), 1u);
  EXPECT_EQ(Seqs(), (std::vector<uint64_t>{2, 3}));
  log_.Rewind(1);
  EXPECT_EQ(log_.kept_bytes(), 0u);
  EXPECT_EQ(log_.After(log_.applied())->seq, 2u);
  log_.Acknowledge(3);
  log_.RemoveTable(t_->id());
  EXPECT_EQ(log_.kept_bytes(), 2 * sizeof(PushFrame));
  log_.ForgetThrough(3);
  EXPECT_EQ(log_.kept_bytes(), 0u);
  EXPECT_FALSE(log_.keeps());
}

TEST_F(PushLogTest, RenumberBeginsAtOneAndAppliesNothing) {
  for (int i = 0; i < 4; ++i) Push(t_, {1});
  log_.Acknowledge(3);
  log_.ForgetThrough(2);
  log_.Renumber();
  EXPECT_EQ(Seqs(), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(log_.frames().front().number, 3u) << "the age of a frame stays";
  EXPECT_EQ(log_.applied(), 0u);
  EXPECT_EQ(log_.durable(), 0u);
  EXPECT_EQ(log_.kept_bytes(), 0u);
  EXPECT_EQ(Push(t_, {1})->seq, 3u);
}

TEST_F(PushLogTest, MergeOntoAddsWhatTheRowLacks) {
  Push(t_, {1, 5}, 1, 1);
  Push(u_, {5}, 7, 100);
  Push(t_, {9, 5, 3}, 2, 10);
  uint64_t ticks = 0;
  EXPECT_EQ(Merged(5, 0, &ticks), 11);
  EXPECT_EQ(ticks, 3u);
  EXPECT_EQ(Merged(5, 1, &ticks), 10);
  EXPECT_EQ(ticks, 2u);
  EXPECT_EQ(Merged(5, 3, &ticks), 0);
  EXPECT_EQ(Merged(4, 0, &ticks), 0) << "a key that was not pushed";
  log_.Acknowledge(1);
  EXPECT_EQ(Merged(5, 0, &ticks), 11) << "a kept frame may be later than an old answer";
}

}  // namespace
}  // namespace het
