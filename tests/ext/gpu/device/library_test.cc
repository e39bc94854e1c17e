// A device library as its callers see it: its description, its errors and their texts, and cases that random
// schedules do not reach. The computations: engine/device_schedules_test.cc.
#include <gmock/gmock.h>

#include <string>

#include "het_tf/ext/gpu/cc/abi.h"
#include "tests/ext/gpu/device/library_fixture.h"

namespace het::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DeviceLibraryTest : public LibraryFixture {};

TEST_F(DeviceLibraryTest, DescribesTheDevice) {
  EXPECT_EQ(HetDevAbiVersion(), HET_DEV_ABI_VERSION);
  HetDevInfo info;
  ASSERT_EQ(HetDevDescribe(0, &info), HET_DEV_OK);
  EXPECT_STREQ(info.executor, "host");
  EXPECT_GT(info.free_bytes, 0u);
  EXPECT_EQ(HetDevDescribe(3, &info), HET_DEV_NO_DEVICE);
  EXPECT_EQ(info.abi_version, HET_DEV_ABI_VERSION) << "filled in despite the error";
  EXPECT_STREQ(info.executor, "host");
  EXPECT_THAT(HetDevError(), HasSubstr("device 3"));
}

TEST_F(DeviceLibraryTest, RefusedCapacities) {
  const struct {
    uint64_t capacity;
    std::vector<const char*> says;
  } cases[] = {
      {0, {"capacity is 0"}},
      {UINT64_MAX, {"18446744073709551615"}},
      // Row numbers in lists have 32 bits.
      {uint64_t{1} << 32, {"4294967296", "at most 4294967264 rows"}},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.says[0]);
    HetDevTableConfig config = SgdTable(one.capacity, 4);
    HetDevTable* table = nullptr;
    EXPECT_EQ(HetDevCreateTable(context_, &config, &table), HET_DEV_INVALID);
    EXPECT_EQ(table, nullptr);
    EXPECT_THAT(HetDevError(), HasSubstr("'ads'"));
    for (const char* text : one.says) EXPECT_THAT(HetDevError(), HasSubstr(text));
    uint64_t bytes = 0;
    EXPECT_EQ(HetDevTableBytes(&config, &bytes), HET_DEV_INVALID);
  }
}

TEST_F(DeviceLibraryTest, OversizedTablesReportTheMemoryNeeded) {
  HetDevTableConfig config = SgdTable(uint64_t{1} << 31, 4);
  uint64_t bytes = 0, lean = 0;
  ASSERT_EQ(HetDevTableBytes(&config, &bytes), HET_DEV_OK) << HetDevError();
  EXPECT_EQ(bytes, (uint64_t{1} << 31) * (1 + 32 + 16 + 16));
  HetDevInfo info;
  ASSERT_EQ(HetDevDescribe(0, &info), HET_DEV_OK);
  HetDevTable* table = nullptr;
  EXPECT_EQ(HetDevCreateTable(context_, &config, &table), HET_DEV_OUT_OF_MEMORY);
  EXPECT_EQ(table, nullptr);
  EXPECT_THAT(HetDevError(), AllOf(HasSubstr("'ads'"), HasSubstr(std::to_string(bytes)),
                                   HasSubstr(std::to_string(info.free_bytes) + " are free")));
  config.keep_updates = 0;
  ASSERT_EQ(HetDevTableBytes(&config, &lean), HET_DEV_OK);
  EXPECT_EQ(bytes - lean, (uint64_t{1} << 31) * 16) << "no room for updates";
}

// A digest, a slot, and a record of whole sectors of 32 bytes; small records share one.
TEST_F(DeviceLibraryTest, BytesOfARow) {
  const struct {
    uint32_t dim;
    int optimizer;
    uint64_t lean, whole;  // bytes of the record without and with updates
  } cases[] = {{1, HET_DEV_SGD, 4, 8},
               {1, HET_DEV_ROW_WISE_ADAGRAD, 8, 16},
               {16, HET_DEV_ROW_WISE_ADAGRAD, 96, 160},
               {64, HET_DEV_ROW_WISE_ADAGRAD, 288, 544}};
  for (const auto& one : cases) {
    HetDevTableConfig config = SgdTable(32, one.dim);
    config.optimizer = one.optimizer;
    config.row_floats += one.optimizer == HET_DEV_ROW_WISE_ADAGRAD ? 1 : 0;
    config.params[1] = config.params[2] = 1;
    for (const int keep_updates : {0, 1}) {
      config.keep_updates = keep_updates;
      uint64_t bytes = 0;
      ASSERT_EQ(HetDevTableBytes(&config, &bytes), HET_DEV_OK) << HetDevError();
      const uint64_t digests = 256;  // of 32 rows, rounded up as every section
      EXPECT_EQ(bytes, digests + 32 * 32 + (32 * (keep_updates ? one.whole : one.lean) + 255) / 256 * 256)
          << "dim " << one.dim;
    }
  }
}

// The host cannot access device memory.
TEST_F(DeviceLibraryTest, HostCannotReadDeviceMemory) {
  DeviceArray<int64_t> memory(context_, {42});
  EXPECT_EXIT(
      *reinterpret_cast<volatile char*>(memory.get()) = 1, [](int) { return true; }, "");
  EXPECT_THAT(memory.Read(), ElementsAre(42));
}

// Lookup numbers repeat: first after six, so that a test sees it. A row that was not used for a whole round
// is counted like any other.
TEST_F(DeviceLibraryTest, VisitsAreClearedWhenLookupNumbersRepeat) {
  SetBatch({0, 1, 2, 3, 4, 5, 6});
  Lookup();
  Install({0, 1, 2});
  Install({3, 4, 5, 6}, false);  // the call keeps them
  use_.check = 1;
  for (const int64_t rows : {6, 7}) {
    for (int64_t i = 0; i < 3 * rows; ++i) {
      SetBatch({i % rows});
      EXPECT_THAT(Lookup(), ElementsAre(i % rows)) << "in lookup " << i;
      EXPECT_EQ(wanted_.hits[0], 1u) << "in lookup " << i;
    }
  }
}

TEST_F(DeviceLibraryTest, EqualCallsAllocateNothing) {
  for (const size_t ids : {10000, 20000, 50000}) {
    SetBatch(Range(0, ids));
    for (int i = 0; i < 2; ++i) EXPECT_EQ(Lookup().size(), ids);
    HetDevFailAllocation(context_, 1);
    EXPECT_EQ(TryLookup(), HET_DEV_OK) << ids << " ids: " << HetDevError();
    HetDevFailAllocation(context_, 0);
  }
}

TEST_F(DeviceLibraryTest, RefusedBatches) {
  const HetDevUse twice[] = {use_, use_};
  const struct {
    std::function<void()> change;
    const char* says;
  } cases[] = {
      {[&] { feature_.use = 3; }, "use 3"},
      {[&] { feature_.ids = nullptr; }, "no ids"},
      {[&] { feature_.ids = reinterpret_cast<const int64_t*>(rows_->get()); },
       "feature 0: its ids are in the memory of a device"},
      {[&] { feature_.n = uint64_t{1} << 32; }, "4294967296 ids"},
      {[&] { batch_.n_features = (1 << 20) + 1; }, "1048577 features; a call takes at most 1048576"},
      {[&] { use_.stamp = uint64_t{1} << 32; }, "stamp 4294967296"},
      {[&] { use_.push_bound = -1; }, "push_bound -1"},
      {[&] {
         batch_ = {twice, 2, &feature_, 1};
       },
       "has a use already"},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.says);
    SetBatch({1, 2});
    const HetDevUse use = use_;
    one.change();
    EXPECT_EQ(TryLookup(), HET_DEV_INVALID);
    EXPECT_THAT(HetDevError(), HasSubstr(one.says));
    use_ = use;
    batch_ = {&use_, 1, &feature_, 1};
  }
  SetBatch({1, 2});
  Lookup();
}

TEST_F(DeviceLibraryTest, RefusedAnswers) {
  SetBatch({1, 2});
  Lookup();
  EXPECT_EQ(TryInstall({{2, 1}, {5, 2}}), HET_DEV_INVALID);
  EXPECT_THAT(HetDevError(), HasSubstr("key 2 of table 'ads' has more than one row"));
  EXPECT_EQ(TryInstall({{2}}, -1), HET_DEV_INVALID);
  EXPECT_THAT(HetDevError(), HasSubstr("base -1"));
  EXPECT_EQ(RowsHere(), 0u) << "nothing was installed";
}

TEST_F(DeviceLibraryTest, GatherNamesTheIdWithoutARow) {
  SetBatch({1, 2, 3});
  Lookup();
  Install({1, 3});
  EXPECT_EQ(HetDevGather(context_, call_, &batch_, nullptr), HET_DEV_INVALID);
  EXPECT_THAT(HetDevError(), AllOf(HasSubstr("'ads'"), HasSubstr("feature 0"), HasSubstr("id number 1")));
  SetBatch({1});
  EXPECT_EQ(HetDevGather(context_, call_, &batch_, nullptr), HET_DEV_INVALID) << "another batch";
  EXPECT_THAT(HetDevError(), HasSubstr("HetDevLookup"));
}

TEST_F(DeviceLibraryTest, SumNeedsGradients) {
  SetBatch({1});
  feature_.gradients = nullptr;
  EXPECT_EQ(TrySum(), HET_DEV_INVALID);
  EXPECT_THAT(HetDevError(), HasSubstr("feature 0 has no gradients"));
}

TEST_F(DeviceLibraryTest, TickFollowsItsSum) {
  SetBatch({1, 2});
  const auto refused = [&](HetDevCall* call, const char* says) {
    EXPECT_EQ(Tick(call), HET_DEV_INVALID);
    EXPECT_THAT(HetDevError(), HasSubstr(says));
  };
  refused(call_, "sum again");
  ASSERT_EQ(TrySum(), HET_DEV_OK);
  refused(call_, "wanted no rows");
  Install({1, 2});
  Sum();
  EXPECT_EQ(Tick(call_), HET_DEV_OK) << HetDevError();
  refused(call_, "sum again");  // once
  Sum();
  Lookup();
  refused(call_, "sum again");  // another call came in between
  Sum();
  HetDevResetCall(context_, call_);
  refused(call_, "sum again");
  Sum();
  EXPECT_EQ(Tick(NewCall()), HET_DEV_INVALID);
  Sum();
  feature_.n = 1;
  refused(call_, "same batch");
}

TEST_F(DeviceLibraryTest, ForgetKnowsWhat) {
  uint64_t discarded = 0;
  EXPECT_EQ(HetDevForget(context_, use_.table, 8, nullptr, nullptr, &discarded), HET_DEV_INVALID);
  EXPECT_THAT(HetDevError(), HasSubstr("what 8"));
}

}  // namespace
}  // namespace het::testing
