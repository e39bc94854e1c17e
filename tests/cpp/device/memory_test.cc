// Tables and memory on a device: what is refused, what happens when there is no more memory, and what is done
// to rows from outside of steps (HetDevTake, HetDevForget).
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <cstdint>

#include "het_tf/core/base/hash.h"
#include "tests/cpp/testing/device/device_world.h"

namespace het::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DeviceMemoryTest : public DeviceWorld {
 protected:
  void ExpectRefused(const HetDevTableConfig& config, const std::vector<const char*>& texts) {
    HetDevTable* table = nullptr;
    EXPECT_EQ(HetDevCreateTable(context_, &config, &table), HET_DEV_INVALID);
    EXPECT_EQ(table, nullptr);
    for (const char* text : texts) EXPECT_THAT(HetDevError(), HasSubstr(text));
    uint64_t bytes = 0;
    EXPECT_EQ(HetDevTableBytes(&config, &bytes), HET_DEV_INVALID);
  }

  std::vector<Update> Take(uint64_t max_rows) {
    HetDevExport taken;
    EXPECT_EQ(HetDevTake(context_, tables_[0], max_rows, nullptr, &taken), HET_DEV_OK) << HetDevError();
    return Copied(taken);
  }
  uint64_t Forget(int what, const uint8_t* partitions) {
    uint64_t discarded = 99;
    EXPECT_EQ(HetDevForget(context_, tables_[0], what, partitions, nullptr, &discarded), HET_DEV_OK);
    return discarded;
  }
  uint64_t ForgetKeys(int what, const Keys& keys) {
    uint64_t discarded = 99;
    EXPECT_EQ(HetDevForgetKeys(context_, tables_[0], what, keys.data(), keys.size(), nullptr, &discarded),
              HET_DEV_OK);
    return discarded;
  }
};

TEST_F(DeviceMemoryTest, DescribesTheDevice) {
  EXPECT_EQ(HetDevAbiVersion(), HET_DEV_ABI_VERSION);
  HetDevInfo info;
  ASSERT_EQ(HetDevDescribe(0, &info), HET_DEV_OK);
  EXPECT_STREQ(info.executor, "host");
  EXPECT_GT(info.free_bytes, 0u);
  EXPECT_EQ(HetDevDescribe(3, &info), HET_DEV_NO_DEVICE);
  EXPECT_EQ(info.abi_version, HET_DEV_ABI_VERSION) << "filled in all the same";
  EXPECT_STREQ(info.executor, "host");
  EXPECT_THAT(HetDevError(), HasSubstr("device 3"));
}

TEST_F(DeviceMemoryTest, WrongTables) {
  const HetDevTableConfig right = SgdTable("ads", 10, 4);
  HetDevTableConfig config = right;
  config.capacity = 0;
  ExpectRefused(config, {"'ads'", "capacity is 0"});
  config.capacity = UINT64_MAX;
  ExpectRefused(config, {"'ads'", "18446744073709551615"});
  config.capacity = uint64_t{1} << 32;  // lists of rows number them in 32 bits
  ExpectRefused(config, {"'ads'", "4294967296", "at most 4294967264 rows"});
  config = right;
  config.row_floats = 5;
  ExpectRefused(config, {"'ads'", "row_floats", "5"});
  config = right;
  config.dim = 0;
  ExpectRefused(config, {"'ads'", "dim"});
  config = right;
  config.policy = 7;
  ExpectRefused(config, {"'ads'", "policy 7", "HET_DEV_LFU"});
  config = right;
  config.optimizer = 77;
  ExpectRefused(config, {"'ads'", "77"});
  config = right;
  config.partitions = 0;
  ExpectRefused(config, {"'ads'", "partitions 0"});
}

TEST_F(DeviceMemoryTest, TablesThatDoNotFitSayHowMuchTheyNeed) {
  HetDevTableConfig config = SgdTable("ads", uint64_t{1} << 31, 4);
  uint64_t bytes = 0;
  ASSERT_EQ(HetDevTableBytes(&config, &bytes), HET_DEV_OK) << HetDevError();
  EXPECT_EQ(bytes, (uint64_t{1} << 31) * (1 + 32 + 16 + 16));
  HetDevInfo info;
  ASSERT_EQ(HetDevDescribe(0, &info), HET_DEV_OK);
  HetDevTable* table = nullptr;
  EXPECT_EQ(HetDevCreateTable(context_, &config, &table), HET_DEV_OUT_OF_MEMORY);
  EXPECT_EQ(table, nullptr);
  EXPECT_THAT(HetDevError(), AllOf(HasSubstr("'ads'"), HasSubstr(std::to_string(bytes)),
                                   HasSubstr(std::to_string(info.free_bytes) + " are free")));
}

TEST_F(DeviceMemoryTest, CapacityIsRoundedUpToBuckets) {
  AddTable(SgdTable("t", 33, 3));
  uint64_t bytes = 0;
  ASSERT_EQ(HetDevTableBytes(&configs_[0], &bytes), HET_DEV_OK);
  EXPECT_EQ(State().capacity, 64u);
  EXPECT_EQ(State().bytes, bytes);
  HetDevTableConfig lean = configs_[0];
  lean.keep_updates = 0;
  uint64_t lean_bytes = 0;
  ASSERT_EQ(HetDevTableBytes(&lean, &lean_bytes), HET_DEV_OK);
  EXPECT_EQ(bytes - lean_bytes, 64u * 4 * sizeof(float));
}

// Memory of the device is no memory of the host's.
TEST_F(DeviceMemoryTest, HostCannotReadDeviceMemory) {
  void* memory = nullptr;
  ASSERT_EQ(HetDevMalloc(context_, 8, &memory), HET_DEV_OK);
  EXPECT_EXIT(
      *static_cast<volatile char*>(memory) = 1, [](int) { return true; }, "");
  const int64_t value = 42;
  int64_t back = 0;
  EXPECT_EQ(HetDevCopyIn(context_, memory, &value, 8, nullptr), HET_DEV_OK);
  EXPECT_EQ(HetDevCopyOut(context_, &back, memory, 8, nullptr), HET_DEV_OK);
  EXPECT_EQ(back, 42);
  HetDevFree(context_, memory);
}

// Whichever allocation fails: the call says so, the table is as it was, and the next try succeeds.
TEST_F(DeviceMemoryTest, NoMemoryLeavesTheTableAsItWas) {
  int failures = 0;
  for (uint64_t n = 1; n < 30; ++n) {
    for (HetDevTable* table : tables_) HetDevDestroyTable(context_, table);
    HetDevDestroyCall(context_, call_);
    features_.clear(), ids_.clear(), rows_.clear();
    HetDevDestroyContext(context_);
    tables_.clear(), configs_.clear(), uses_.clear();
    stamp_ = 0;
    SetUp();
    AddTable(SgdTable("t", 32, 64));
    Keys keys;
    for (int64_t key = 0; key < 32; ++key) keys.push_back(key);
    Train(keys, 0.5f);
    const HetDevTableState before = State();
    const Row row = Inspect(3);
    NewStep();
    keys.clear();
    for (int64_t key = 1000; key < 4000; ++key) keys.push_back(key);
    SetBatch({{keys}});

    HetDevFailAllocation(context_, n);
    Wanted wanted;
    std::vector<Update> victims;
    int code = TryLookup(1, &wanted);
    if (code == HET_DEV_OK) code = TryInstall({{0, keys, 1, true}}, &victims);
    HetDevFailAllocation(context_, 0);
    if (code == HET_DEV_OK) {
      EXPECT_GE(failures, 4) << "fewer allocations than there should be";
      return;
    }
    ++failures;
    ASSERT_EQ(code, HET_DEV_OUT_OF_MEMORY);
    EXPECT_THAT(HetDevError(), HasSubstr("bytes of device memory"));
    EXPECT_EQ(State().rows, before.rows);
    EXPECT_EQ(State().dirty, before.dirty);
    EXPECT_EQ(State().inserts, before.inserts);
    EXPECT_EQ(State().evictions, before.evictions);
    EXPECT_EQ(Inspect(3).row, row.row);
    EXPECT_EQ(Inspect(3).update, row.update);
    EXPECT_FALSE(Has(1000));
    EXPECT_EQ(Lookup().bases.size(), 3000u) << "no row of the call either";
    victims = Install({{0, keys, 1, true}});
    EXPECT_EQ(victims.size(), 32u);
    Gather();
    EXPECT_EQ(RowsOf(0)[0], StoredRow(1000, 1, 64)[0]);
  }
  FAIL() << "allocations without end";
}

TEST_F(DeviceMemoryTest, TakesUpdatesInOrderOfKeys) {
  AddTable(SgdTable("t", 256, 2));
  EXPECT_THAT(Take(10), IsEmpty());
  Train({5, 1, -7, 9}, 0.5f);
  Train({9, 5}, 1);
  Step({77});
  std::vector<Update> taken = Take(3);
  ASSERT_EQ(taken.size(), 3u);
  EXPECT_EQ(taken[0], (Update{0, 1, 1, {-0.5f, -0.5f}}));
  EXPECT_EQ(taken[1], (Update{0, 5, 2, {-1.5f, -1.5f}}));
  EXPECT_EQ(taken[2], (Update{0, 9, 2, {-1.5f, -1.5f}}));
  EXPECT_EQ(State().dirty, 1u);
  EXPECT_EQ(Inspect(5).state.base, 2) << "what was given away is in the row";
  EXPECT_EQ(Inspect(5).state.ticks, 0u);
  taken = Take(100);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0], (Update{0, -7, 1, {-0.5f, -0.5f}}));
  EXPECT_THAT(Take(100), IsEmpty());
  EXPECT_EQ(State().rows, 5u) << "rows stay";
}

TEST_F(DeviceMemoryTest, EqualCallsAllocateNothing) {
  AddTable(SgdTable("t", 32, 4));
  for (const int64_t ids : {10000, 20000, 50000}) {
    Keys keys;
    for (int64_t key = 0; key < ids; ++key) keys.push_back(key);
    SetBatch({{keys}});
    Wanted wanted;
    for (int i = 0; i < 2; ++i) ASSERT_EQ(TryLookup(1, &wanted), HET_DEV_OK) << HetDevError();
    HetDevFailAllocation(context_, 1);
    EXPECT_EQ(TryLookup(1, &wanted), HET_DEV_OK) << ids << " ids: " << HetDevError();
    HetDevFailAllocation(context_, 0);
  }
}

TEST_F(DeviceMemoryTest, TakeWithoutMemoryLeavesUpdates) {
  AddTable(SgdTable("t", 4096, 128));
  for (int64_t from = 0; from < 3000; from += 100) {  // steps that need less memory than HetDevTake
    Keys keys;
    for (int64_t key = from; key < from + 100; ++key) keys.push_back(key);
    Train(keys, 0.5f);
  }
  const uint64_t dirty = State().dirty;
  HetDevFailAllocation(context_, 1);
  HetDevExport taken;
  EXPECT_EQ(HetDevTake(context_, tables_[0], 10000, nullptr, &taken), HET_DEV_OUT_OF_MEMORY);
  EXPECT_EQ(State().dirty, dirty);
  EXPECT_EQ(Inspect(7).state.ticks, 1u);
  EXPECT_EQ(Take(10000).size(), dirty);
}

TEST_F(DeviceMemoryTest, ForgetsPartitions) {
  AddTable(SgdTable("t", 1024, 2));
  Keys keys;
  for (int64_t key = -50; key < 50; ++key) keys.push_back(key);
  Train(keys, 1);
  Train({4, 5}, 1);
  Step({200});
  const auto partition = [&](int64_t key) {
    return PartitionOf(HashKey(key, configs_[0].hash_seed), configs_[0].partitions);
  };
  std::vector<uint8_t> partitions(configs_[0].partitions, 0);
  partitions[partition(4)] = 1;
  uint64_t in_it = 0;
  for (const int64_t key : keys) in_it += partition(key) == partition(4) ? 1 : 0;
  const uint64_t ticks = in_it + 1 + (partition(5) == partition(4) ? 1 : 0);

  EXPECT_EQ(Forget(HET_DEV_INVALIDATE, partitions.data()), 0u);
  const uint64_t of_200 = partition(200) == partition(4) ? 1 : 0;
  EXPECT_EQ(State().invalid, in_it + of_200);
  EXPECT_EQ(Inspect(4).state.invalid, 1);
  EXPECT_EQ(Inspect(4).state.ticks, 2u) << "its update stays";
  EXPECT_EQ(Forget(HET_DEV_DROP, partitions.data()), ticks);
  EXPECT_FALSE(Has(4));
  EXPECT_EQ(State().rows, 101 - in_it - of_200);
  EXPECT_EQ(State().evictions, 0u);
  EXPECT_EQ(Forget(HET_DEV_DROP_CLEAN, nullptr), 0u);
  EXPECT_FALSE(Has(200));
  EXPECT_EQ(State().rows, 100 - in_it);
  EXPECT_EQ(Forget(HET_DEV_DROP, nullptr), 102 - ticks);
  EXPECT_EQ(State().rows, 0u);
  Step({4});
  EXPECT_EQ(Inspect(4).state.ticks, 0u) << "nothing of the row before it";
}

TEST_F(DeviceMemoryTest, ForgetsKeys) {
  AddTable(SgdTable("t", 64, 2));
  Train({1, 2}, 1);
  Train({1}, 1);
  Step({3});
  EXPECT_EQ(ForgetKeys(HET_DEV_DROP_CLEAN, {1, 3}), 0u);
  EXPECT_TRUE(Has(1));
  EXPECT_FALSE(Has(3));
  EXPECT_EQ(ForgetKeys(HET_DEV_DROP, {1, 1, 99, 1}), 2u) << "each row once";
  EXPECT_FALSE(Has(1));
  EXPECT_EQ(ForgetKeys(HET_DEV_DROP, {}), 0u);
  EXPECT_EQ(State().rows, 1u);
  uint64_t discarded = 0;
  EXPECT_EQ(HetDevForget(context_, tables_[0], 8, nullptr, nullptr, &discarded), HET_DEV_INVALID);
  EXPECT_THAT(HetDevError(), HasSubstr("what 8"));
}

TEST_F(DeviceMemoryTest, StageGrows) {
  void* small = nullptr;
  void* large = nullptr;
  ASSERT_EQ(HetDevStage(context_, 100, &small), HET_DEV_OK);
  std::fill_n(static_cast<char*>(small), 100, 'a');
  ASSERT_EQ(HetDevStage(context_, 100000, &large), HET_DEV_OK);
  std::fill_n(static_cast<char*>(large), 100000, 'b');
}

}  // namespace
}  // namespace het::testing
