// Work on streams, on the host executor: its streams work late and in any legal order (host/streams.h).

#include <gmock/gmock.h>

#include "tests/ext/gpu/device/library_fixture.h"

namespace het::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class DeviceStreamsTest : public LibraryFixture {
 protected:
  void TakeStream(int number) {
    static char names[3];
    stream_ = &names[number % 3];
  }
};

// HetDevTick does not wait, so the next call, on another stream, must come after it.
TEST_F(DeviceStreamsTest, ACallComesAfterTheTickOnAnotherStream) {
  Bring({1, 2});
  for (uint32_t n = 1; n <= 40; ++n) {
    TakeStream(static_cast<int>(n));
    Sum();
    EXPECT_EQ(Tick(call_), HET_DEV_OK) << HetDevError();
    TakeStream(static_cast<int>(n) + 1);
    std::vector<float> row;
    EXPECT_EQ(Inspect(1, &row).ticks, n);
    EXPECT_EQ(row[0], 1.0f - static_cast<float>(n));
  }
}

// The next call's work waits for the tick, on the device: the host waits once, for its own result.
TEST_F(DeviceStreamsTest, TheHostDoesNotWaitForTheCallBefore) {
  Bring({1, 2});
  Sum();
  TakeStream(1);
  const uint64_t all = HetDevHostAllWaits(), of_one = HetDevHostWaits(stream_);
  EXPECT_EQ(Tick(call_), HET_DEV_OK) << HetDevError();
  EXPECT_EQ(HetDevHostAllWaits(), all);
  TakeStream(2);
  Lookup();
  EXPECT_EQ(HetDevHostAllWaits(), all + 1);
  TakeStream(1);
  EXPECT_EQ(HetDevHostWaits(stream_), of_one);
}

// Updates that leave with a tick come later, and the host waits only for them.
TEST_F(DeviceStreamsTest, ATickWaitsForNothing) {
  use_.push_bound = 0;
  Bring({1, 2});
  TakeStream(1);
  for (uint32_t n = 1; n <= 10; ++n) {
    Sum();
    const uint64_t all = HetDevHostAllWaits();
    HetDevExport due = {};
    ASSERT_EQ(HetDevTick(context_, call_, &batch_, stream_, &due), HET_DEV_OK) << HetDevError();
    EXPECT_EQ(HetDevHostAllWaits(), all);
    ASSERT_EQ(HetDevCollect(context_), HET_DEV_OK) << HetDevError();
    EXPECT_EQ(HetDevHostAllWaits(), all + 1);
    ASSERT_EQ(due.n, 1u);
    ASSERT_EQ(due.of->n, 2u);
    EXPECT_EQ(due.of->keys[1], 2);
    EXPECT_EQ(due.of->clocks[1], 5 + n);
    EXPECT_EQ(due.of->updates[0], -1.0f);
    ASSERT_EQ(HetDevCollect(context_), HET_DEV_OK) << HetDevError();
    EXPECT_EQ(HetDevHostAllWaits(), all + 1);
  }
}

// A tick of 65 features reads them from page-locked memory, which the next call
// must not write meanwhile.
TEST_F(DeviceStreamsTest, ACallLeavesThePageLockedMemoryOfATick) {
  MakeTable(4096);
  SetBatch(Range(1, 65));
  Split(std::vector<size_t>(65, 1));
  Install(Lookup());
  for (uint64_t turn = 0; turn < 20; ++turn) {
    HetDevHostSeed(turn);
    Sum();
    EXPECT_EQ(Tick(call_), HET_DEV_OK) << HetDevError();
    EXPECT_EQ(TryForget(HET_DEV_DROP, Keys(20000, 7777)), HET_DEV_OK);
    std::vector<float> row;
    EXPECT_EQ(Inspect(1, &row).ticks, turn + 1);
    EXPECT_EQ(row[0], -static_cast<float>(turn)) << "in turn " << turn;
  }
}

// TensorFlow has queued its model on the stream. A lookup comes behind the tick before, and not behind the
// model, whether or not rows of lookups before it are still to be copied there.
TEST_F(DeviceStreamsTest, ALookupDoesNotWaitForTheModel) {
  Bring({1, 2});
  Sum();
  TakeStream(1);
  EXPECT_EQ(Tick(call_), HET_DEV_OK) << HetDevError();
  SetBatch({1, 2, 3});
  for (int turn = 0; turn < 8; ++turn) Lookup();  // memory is there
  for (int turn = 0; turn < 3; ++turn) {
    const uint64_t all = HetDevHostAllWaits(), of_stream = HetDevHostWaits(stream_);
    EXPECT_EQ(Lookup(), Keys{3});
    EXPECT_EQ(HetDevHostWaits(stream_), of_stream);
    EXPECT_EQ(HetDevHostAllWaits(), all + 2) << "for counts, and for the list of wanted rows";
    if (turn == 0) HetDevHostHold(stream_, 1);
    call_ = NewCall();
  }
  HetDevHostHold(stream_, 0);
  ASSERT_EQ(HetDevSynchronize(context_, stream_), HET_DEV_OK) << HetDevError();
  EXPECT_THAT(rows_->Read(), ElementsAre(0, 0.5, 1, 1.5, -999, -999));
}

// A lookup on another stream comes after the last one has halved the frequencies, which both change.
TEST_F(DeviceStreamsTest, ALookupComesAfterWhatHasChangedRows) {
  const auto frequency = [&](uint64_t seed, bool wait) {
    TearDown();
    SetUp();
    HetDevHostSeed(seed);
    Bring(Range(1, 40));
    for (int turn = 0; turn < 40; ++turn) {
      TakeStream(turn);
      EXPECT_THAT(Lookup(), IsEmpty());
      if (wait) HetDevSynchronize(context_, stream_);
    }
    return Inspect(1).frequency;
  };
  const uint32_t wanted = frequency(0, true);
  EXPECT_LT(wanted, 20u);
  for (uint64_t seed = 0; seed < 20; ++seed) EXPECT_EQ(frequency(seed, false), wanted);
}

// Rows of two lookups, on two streams, are copied before a call changes them on a third.
TEST_F(DeviceStreamsTest, ACallComesAfterTheRowsOfTwoLookups) {
  Bring({1, 2});
  TakeStream(1);
  HetDevHostHold(stream_, 1);
  Lookup();
  call_ = NewCall();
  TakeStream(2);
  Lookup();
  EXPECT_DEATH(Install({1, 2}), "waits for work that is held back");
  TakeStream(1);
  HetDevHostHold(stream_, 0);
}

// A lookup while rows of the one before are still to be copied: from the places that its call has kept, which
// the same call would write, and by features in scratch memory: 65 do not fit into a kernel's parameters.
TEST_F(DeviceStreamsTest, ALookupLeavesTheRowsOfTheOneBefore) {
  const Keys keys = Range(1, 130);
  MakeTable(4096);
  Bring(keys);
  HetDevCall* other = NewCall();
  for (uint64_t turn = 0; turn < 20; ++turn) {
    HetDevHostSeed(turn);
    const uint32_t features = turn % 2 == 0 ? 1 : 65;
    const auto look = [&](int stream) {
      TakeStream(stream);
      Split(std::vector<size_t>(features, keys.size() / features));
      EXPECT_THAT(Lookup(), IsEmpty());
    };
    SetBatch(keys);
    const auto rows = std::exchange(rows_, nullptr);
    feature_.rows = rows->get();
    const DeviceArray<float> others(context_, std::vector<float>(keys.size() * kDim));
    look(1);
    ids_ = Keys(keys.rbegin(), keys.rend());
    feature_.ids = ids_.data();
    feature_.rows = others.get();
    if (features > 1) std::swap(call_, other);
    look(2);
    const std::vector<float> read = rows->Read();
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(read[i * kDim], static_cast<float>(keys[i])) << "in turn " << turn;
    }
  }
}

// A call that fails after it has waited once leaves work behind, which the next call, on another stream, must
// not meet: HetDevInstall reads its plan and then needs memory for victims.
TEST_F(DeviceStreamsTest, ACallComesAfterTheWorkOfOneThatFailed) {
  const Keys old = Range(1, 24), others = Range(10001, 640), many = Range(100001, 20000);
  int failed = 0;
  for (uint64_t turn = 0; turn < 30; ++turn) {
    TearDown();
    SetUp();
    HetDevHostSeed(turn);
    SetBatch(many);
    Lookup();  // takes all memory that it needs later
    SetBatch(old);
    Lookup();
    EXPECT_EQ(TryInstall({old}), HET_DEV_OK) << HetDevError();
    Sum();
    EXPECT_EQ(Tick(call_), HET_DEV_OK) << HetDevError();
    HetDevResetCall(context_, call_);
    use_.stamp = use_.pinned_from = 2;
    SetBatch(others);
    Lookup();
    TakeStream(0);
    HetDevFailAllocation(context_, 1 + turn % 3);
    failed += TryInstall({others}) != HET_DEV_OK;
    HetDevFailAllocation(context_, 0);
    TakeStream(1);
    feature_.n = many.size();  // its scratch memory is where the install's was
    feature_.ids = many.data();
    feature_.rows = nullptr;
    Keys wanted = Lookup();
    std::sort(wanted.begin(), wanted.end());
    EXPECT_EQ(wanted, many) << "in turn " << turn;
    EXPECT_EQ(std::count(wanted_.use, wanted_.use + wanted_.n, 0u), 20000) << "in turn " << turn;
  }
  EXPECT_EQ(failed, 20) << "the call's rows, and their floats";
}

}  // namespace
}  // namespace het::testing
