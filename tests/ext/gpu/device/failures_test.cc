// A device that fails, on the host executor: launches, page-locked memory that ends, and others' errors.
#include <gmock/gmock.h>

#include <string>

#include "tests/ext/gpu/device/library_fixture.h"

namespace het::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class DeviceFailuresTest : public LibraryFixture {
 protected:
  // Calls with the keys 1 and 2; the first ones are those of a step.
  static constexpr size_t kOfAStep = 5;
  const std::vector<std::pair<const char*, std::function<int()>>> calls_ = {
      {"lookup", [&] { return TryLookup(); }},
      {"install", [&] { return TryInstall({keys_}, 9); }},
      {"gather", [&] { return HetDevGather(context_, call_, &batch_, stream_); }},
      {"sum", [&] { return TrySum(); }},
      {"tick", [&] { return HetDevTick(context_, call_, &batch_, stream_, &due_); }},
      {"take", [&] { return HetDevTake(context_, use_.table, 10, stream_, &due_); }},
      {"forget", [&] { return HetDevForget(context_, use_.table, HET_DEV_DROP, nullptr, stream_, &n_); }},
      {"forget keys", [&] { return TryForget(HET_DEV_DROP, {1}); }},
      {"state", [&] { return HetDevState(context_, use_.table, stream_, &state_); }},
  };
  void ExpectEqual(const HetDevRowState& before, const HetDevRowState& after) {
    EXPECT_EQ(after.found, before.found);
    EXPECT_EQ(after.ticks, before.ticks);
    EXPECT_EQ(after.base, before.base);
  }

 private:
  const Keys keys_ = {1, 2};
  HetDevExport due_;
  HetDevTableState state_;
  uint64_t n_ = 0;
};

// Each call with its n-th launch failing, for every n: HET_DEV_FAILED names the kernel, and no row has
// changed.
TEST_F(DeviceFailuresTest, LaunchesThatFailNameTheirKernelAndChangeNoRow) {
  SetBatch({1, 2});
  for (size_t of_step = 0; of_step < kOfAStep; ++of_step) {
    const auto& [name, call] = calls_[of_step];
    SCOPED_TRACE(name);
    const HetDevRowState before = Inspect(1);
    if (std::string(name) == "tick") Sum();  // Inspect was another call
    for (uint64_t n = 1;; ++n) {
      HetDevHostFailLaunch(n);
      const int code = call();
      HetDevHostFailLaunch(0);
      if (code == HET_DEV_OK) {
        EXPECT_GT(n, 1u) << "nothing was launched";
        break;
      }
      EXPECT_EQ(code, HET_DEV_FAILED);
      EXPECT_THAT(HetDevError(), AllOf(HasSubstr("launching kernel '"), HasSubstr("HetDevHostFailLaunch")));
      ExpectEqual(before, Inspect(1));
      if (std::string(name) == "tick") Sum();
    }
  }
  EXPECT_EQ(Inspect(1).ticks, 1u);
}

// A kernel of somebody else has failed: every call says that it was so before, and changes no row.
TEST_F(DeviceFailuresTest, ADeviceThatSomebodyElseHasBroken) {
  Bring({1, 2});
  Lookup();
  Sum();
  const HetDevRowState before = Inspect(1);
  for (const auto& [name, call] : calls_) {
    SCOPED_TRACE(name);
    Sum();
    HetDevHostBreak(1);
    EXPECT_EQ(call(), HET_DEV_FAILED);
    HetDevHostBreak(0);
    EXPECT_THAT(HetDevError(), AllOf(HasSubstr("had failed before this call began, in other work"),
                                     HasSubstr("HetDevHostBreak: an illegal memory access")));
  }
  ExpectEqual(before, Inspect(1));
  Sum();
  EXPECT_EQ(Tick(call_), HET_DEV_OK) << HetDevError();
  HetDevHostBreak(1);
  EXPECT_EQ(TryLookup(), HET_DEV_FAILED);
  HetDevHostBreak(0);
  EXPECT_THAT(HetDevError(), HasSubstr("at or before kernel 'ticks', or in other work"))
      << "it may still run";
}

TEST_F(DeviceFailuresTest, PageLockedMemoryThatEndsChangesNoRow) {
  void* staged = nullptr;
  HetDevFailAllocation(context_, 1);
  EXPECT_EQ(HetDevStage(context_, 1000, &staged), HET_DEV_OUT_OF_HOST_MEMORY);
  EXPECT_THAT(HetDevError(), HasSubstr("page-locked host memory for 1250 bytes"));
  EXPECT_EQ(HetDevStage(context_, 1000, &staged), HET_DEV_OK) << HetDevError();
  const Keys many = Range(0, 200000);
  bool host = false, device = false;
  int code = HET_DEV_INVALID;
  for (uint64_t n = 1; code != HET_DEV_OK; ++n) {
    TearDown();
    SetUp();
    SetBatch(many);
    HetDevFailAllocation(context_, n);
    code = TryLookup();
    HetDevFailAllocation(context_, 0);
    EXPECT_THAT(code, AnyOf(int{HET_DEV_OK}, int{HET_DEV_OUT_OF_MEMORY}, int{HET_DEV_OUT_OF_HOST_MEMORY}));
    device |= code == HET_DEV_OUT_OF_MEMORY;
    host |= code == HET_DEV_OUT_OF_HOST_MEMORY;
    EXPECT_EQ(RowsHere(), 0u);
    EXPECT_EQ(Lookup().size(), many.size());
  }
  EXPECT_TRUE(host);
  EXPECT_TRUE(device);
}

}  // namespace
}  // namespace het::testing
