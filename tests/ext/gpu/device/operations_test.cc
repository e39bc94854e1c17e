// What the calls of a step put on streams: kernels, copies and fills, as the host executor counts them; and
// which rows HetDevSum sums and HetDevTick ticks.
#include <gmock/gmock.h>

#include <cmath>

#include "het_tf/core/wire/layout.h"
#include "tests/ext/gpu/device/library_fixture.h"

namespace het::testing {
namespace {

using ::testing::IsEmpty;

class DeviceOperationsTest : public LibraryFixture {};

// Kernels, copies and fills of a step of 26 features, all hits and nothing due; a sort is 10 of them. On a
// GPU each costs 2.75 us, whatever it does.
TEST_F(DeviceOperationsTest, OperationsOfAStep) {
  MakeTable(1 << 17);
  SetBatch(Range(0, 26 * 128));
  Split(std::vector<size_t>(26, 128));
  Keys wanted = Lookup();
  const std::vector<int64_t> bases(wanted.size(), 5);
  const std::vector<uint8_t> admit(wanted.size(), 1);
  const std::vector<float> rows(wanted.size() * kDim, 1.0f);
  const auto install = [&](size_t n) {
    const HetDevAnswer answer = {0, n, wanted.data(), bases.data(), admit.data(), rows.data(), nullptr};
    EXPECT_EQ(HetDevInstall(context_, call_, &batch_, &answer, 1, stream_, &victims_), HET_DEV_OK);
  };
  install(10);  // makes a list of numbers
  EXPECT_EQ(CountOperations([&] { install(100); }), 7u);
  EXPECT_EQ(CountOperations([&] { install(wanted.size()); }), 14u);
  EXPECT_EQ(CountOperations([&] { HetDevGather(context_, call_, &batch_, stream_); }), 1u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(CountOperations([&] { EXPECT_THAT(Lookup(), IsEmpty()); }), 2u);
    EXPECT_EQ(CountOperations([&] { Sum(); }), 11u);
    EXPECT_EQ(CountOperations([&] { EXPECT_EQ(Tick(call_), HET_DEV_OK); }), 1u);
  }
  HetDevResetCall(context_, call_);
  EXPECT_EQ(CountOperations([&] { Sum(); }), 14u) << "without a lookup it has to find the rows";
}

// Partitions are copied to the device only if some have answered and some have not.
TEST_F(DeviceOperationsTest, OperationsOfSubscriptions) {
  Bring({1, 2, 3});
  const Keys keys = {1, 2, 3};
  std::vector<uint8_t> trusted(16, 1);
  const std::vector<uint8_t> subscribed(3, 1);
  const HetDevAnswer confirmed = {0, 3, keys.data(), nullptr, nullptr, nullptr, subscribed.data()};
  EXPECT_EQ(
      CountOperations([&] { HetDevInstall(context_, call_, &batch_, &confirmed, 1, stream_, &victims_); }),
      2u);
  use_.check = 1;
  use_.trusted = trusted.data();
  EXPECT_EQ(CountOperations([&] { EXPECT_THAT(Lookup(), IsEmpty()); }), 2u);
  EXPECT_EQ(CountOperations([&] { TryForget(HET_DEV_MOVED, {1, 2}); }), 2u);
  EXPECT_EQ(CountOperations([&] { EXPECT_EQ(Lookup().size(), 2u); }), 5u) << "the lookup, and three lists";
  trusted[Layout(16, 7).OfKey(0, 3)] = 0;
  EXPECT_EQ(CountOperations([&] { EXPECT_EQ(Lookup().size(), 3u); }), 6u);
}

// HetDevSum uses the rows that its lookup has found, as long as they are still there: else it looks again,
// which is two more operations, and wants those that have left.
TEST_F(DeviceOperationsTest, ASumLooksAgainWhenRowsMayHaveMoved) {
  const Keys keys = {1, 2, 3};
  Bring(keys);
  ASSERT_EQ(HetDevGather(context_, call_, &batch_, stream_), HET_DEV_OK) << HetDevError();
  const uint64_t kept = CountOperations([&] { Sum(); });
  const auto after = [&](const std::function<void()>& between) {
    Lookup();
    between();
    const uint64_t n = CountOperations([&] { ASSERT_EQ(TrySum(), HET_DEV_OK); });
    Keys wanted(wanted_.keys, wanted_.keys + wanted_.n);
    std::sort(wanted.begin(), wanted.end());
    return std::pair(n - kept, wanted);
  };
  EXPECT_EQ(after([] {}), std::pair(uint64_t{0}, Keys()));
  EXPECT_EQ(after([&] { TryForget(HET_DEV_DROP_CLEAN, {}); }), std::pair(uint64_t{0}, Keys())) << "no key";
  EXPECT_EQ(after([&] { TryLookup(); }), std::pair(uint64_t{0}, Keys())) << "the same step again";
  EXPECT_EQ(after([&] { HetDevLookup(context_, call_, &batch_, 0, stream_, &wanted_); }).first, 2u)
      << "a lookup without training does not pin";
  uint64_t discarded = 0;
  const auto forget_clean = [&] {
    HetDevForget(context_, use_.table, HET_DEV_DROP_CLEAN, nullptr, stream_, &discarded);
  };
  EXPECT_EQ(after(forget_clean).second, keys);
  Install(keys);
  EXPECT_EQ(after([&] { TryForget(HET_DEV_DROP, {2}); }).second, Keys{2}) << "three copies of a row";
  Install({2});
  EXPECT_EQ(after([&] { TryForget(HET_DEV_INVALIDATE, {1}); }).second, Keys{1});
  Install({1});
  // Another step, which no longer pins this one's rows, fills the table.
  EXPECT_EQ(after([&] {
              HetDevCall* const own = std::exchange(call_, NewCall());
              use_.stamp = use_.pinned_from = 7;
              TryInstall({Range(1000, 900)});
              use_.stamp = use_.pinned_from = 1;
              call_ = own;
            }).second.size(),
            3u);
}

// A row that a lookup did not find, and that another, older step has brought in since, does not have the
// stamp of the later step. Installs that pin only that one may evict it.
TEST_F(DeviceOperationsTest, ARowOfAnOlderStepIsNotKept) {
  HetDevCall* older = NewCall();
  SetBatch({1});
  use_.stamp = use_.pinned_from = 5;
  EXPECT_EQ(Lookup(), Keys{1});
  std::swap(call_, older);
  use_.stamp = use_.pinned_from = 4;
  Install({1});
  std::swap(call_, older);
  use_.stamp = use_.pinned_from = 5;
  ASSERT_EQ(HetDevGather(context_, call_, &batch_, stream_), HET_DEV_OK) << HetDevError();
  const uint64_t n = CountOperations([&] { Sum(); });
  HetDevResetCall(context_, call_);
  EXPECT_EQ(CountOperations([&] { Sum(); }), n + 1) << "it looked again as before, and copied the ids";
}

// --- features whose gradient is all zero: they give no tick, which is known when all gradients have been
// read

using Gradients = std::vector<float>;

// Two features of one table, one after the other in memory.
class DeviceSumsTest : public LibraryFixture {
 protected:
  void SetFeatures(const Keys& first, const Keys& second) {
    Keys ids = first;
    ids.insert(ids.end(), second.begin(), second.end());
    SetBatch(ids);
    Split({first.size(), second.size()});
    Install(Lookup());
    ASSERT_EQ(HetDevGather(context_, call_, &batch_, stream_), HET_DEV_OK) << HetDevError();
  }
  // Of each id, in the order of SetFeatures.
  void SetGradients(const Gradients& of_ids) {
    Gradients floats;
    for (const float of_id : of_ids) floats.insert(floats.end(), kDim, of_id);
    ASSERT_EQ(
        HetDevCopyIn(context_, gradients_->get(), floats.data(), floats.size() * sizeof(float), stream_),
        HET_DEV_OK);
  }
  HetDevSummed SumAll(const uint8_t* active = nullptr) {
    operations_ = CountOperations([&] { EXPECT_EQ(TrySum(active), HET_DEV_OK) << HetDevError(); });
    EXPECT_EQ(wanted_.n, 0u);
    return summed_;
  }
  // The ticks and the first float of a row.
  std::pair<uint32_t, float> RowOf(int64_t key) {
    std::vector<float> row;
    const uint32_t ticks = Inspect(key, &row).ticks;
    return {ticks, row[0]};
  }

  uint64_t operations_ = 0;
};

// Key 2 is in both features, and gets a tick by the other one.
TEST_F(DeviceSumsTest, RowsOfAFeatureWithoutGradientGetNoTick) {
  SetFeatures({1, 2}, {2, 3});
  SetGradients({1, 1, 1, 1});
  EXPECT_EQ(SumAll().uniques, 3u);
  const uint64_t usual = operations_;
  SetGradients({1, 1, 0, -0.0f});
  const HetDevSummed summed = SumAll();
  EXPECT_EQ(summed.uniques, 2u);
  EXPECT_EQ(summed.ticks[0], 2u);
  EXPECT_EQ(summed.active[0], 1);
  EXPECT_EQ(summed.active[1], 0);
  EXPECT_EQ(operations_, usual + 1) << "the sums once more";
  EXPECT_EQ(Tick(call_), HET_DEV_OK) << HetDevError();
  EXPECT_EQ(RowOf(1), std::pair(1u, 0.0f));
  EXPECT_EQ(RowOf(2), std::pair(1u, 1.0f));
  EXPECT_EQ(RowOf(3), std::pair(0u, 3.0f));
}

// Given features count even if their gradient is zero, and what others have is not read.
TEST_F(DeviceSumsTest, GivenFeaturesCount) {
  SetFeatures({1, 2}, {2, 3});
  SetGradients({0, 0, 1, NAN});
  const uint8_t active[] = {1, 0};
  features_[1].gradients = nullptr;
  const HetDevSummed summed = SumAll(active);
  EXPECT_EQ(summed.uniques, 2u);
  EXPECT_EQ(summed.non_finite, 0);
  EXPECT_EQ(Tick(call_), HET_DEV_OK) << HetDevError();
  EXPECT_EQ(RowOf(2), std::pair(1u, 2.0f));
  EXPECT_EQ(RowOf(3), std::pair(0u, 3.0f));
}

}  // namespace
}  // namespace het::testing
