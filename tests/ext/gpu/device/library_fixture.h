// A device library with one table and one call, for tests of its C functions.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "het_tf/ext/gpu/cc/abi.h"
#include "tests/ext/gpu/device/host/streams.h"
#include "tests/testing/keys.h"

namespace het::testing {

using Keys = std::vector<int64_t>;

// Device memory with a copy of `host`.
template <typename T>
class DeviceArray {
 public:
  DeviceArray(HetDevContext* context, const std::vector<T>& host) : context_(context), host_(host) {
    EXPECT_EQ(HetDevMalloc(context, std::max<size_t>(1, bytes()), &memory_), HET_DEV_OK) << HetDevError();
    EXPECT_EQ(HetDevCopyIn(context, memory_, host.data(), bytes(), nullptr), HET_DEV_OK) << HetDevError();
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { HetDevFree(context_, memory_); }

  T* get() const { return static_cast<T*>(memory_); }
  std::vector<T> Read() {
    EXPECT_EQ(HetDevCopyOut(context_, host_.data(), memory_, bytes(), nullptr), HET_DEV_OK) << HetDevError();
    return host_;
  }

 private:
  size_t bytes() const { return host_.size() * sizeof(T); }
  HetDevContext* context_;
  std::vector<T> host_;
  void* memory_ = nullptr;
};

inline HetDevTableConfig SgdTable(uint64_t capacity, uint32_t dim) {
  HetDevTableConfig config = {};
  config.name = "ads";
  config.capacity = capacity;
  config.dim = config.row_floats = dim;
  config.policy = HET_DEV_LRU;
  config.optimizer = HET_DEV_SGD;
  config.keep_updates = 1;
  config.hash_seed = 7;
  config.partitions = 16;
  return config;
}

// One table with two floats a row, and one call, with one feature. All calls are put on `stream_`.
class LibraryFixture : public ::testing::Test {
 protected:
  static constexpr uint32_t kDim = 2;

  void SetUp() override {
    ASSERT_EQ(HetDevCreateContext(0, &context_), HET_DEV_OK) << HetDevError();
    call_ = NewCall();
    MakeTable(64);
    use_.push_bound = INT64_MAX;
    use_.learning_rate = 1;
    use_.stamp = use_.pinned_from = 1;
  }
  void TearDown() override {
    rows_.reset();
    gradients_.reset();
    for (HetDevCall* call : calls_) HetDevDestroyCall(context_, call);
    calls_.clear();
    HetDevDestroyTable(context_, std::exchange(use_.table, nullptr));
    HetDevDestroyContext(context_);
  }
  HetDevCall* NewCall() {
    HetDevCall* call = nullptr;
    EXPECT_EQ(HetDevCreateCall(context_, &call), HET_DEV_OK) << HetDevError();
    calls_.push_back(call);
    return call;
  }
  // In the place of the table that there is.
  void MakeTable(uint64_t capacity) {
    const HetDevTableConfig config = SgdTable(capacity, kDim);
    HetDevDestroyTable(context_, use_.table);
    ASSERT_EQ(HetDevCreateTable(context_, &config, &use_.table), HET_DEV_OK) << HetDevError();
  }

  void SetBatch(const Keys& ids) {
    ids_ = ids;
    rows_ = std::make_unique<DeviceArray<float>>(context_, std::vector<float>(ids.size() * kDim, -999.0f));
    gradients_ = std::make_unique<DeviceArray<float>>(context_, std::vector<float>(ids.size() * kDim, 1.0f));
    feature_ = {};
    feature_.n = ids.size();
    feature_.ids = ids_.data();
    feature_.rows = rows_->get();
    feature_.gradients = gradients_->get();
  }
  // Makes features of the ids, so many each, one after the other in memory.
  void Split(const std::vector<size_t>& sizes) {
    features_.clear();
    size_t begin = 0;
    for (const size_t n : sizes) {
      HetDevFeature& feature = features_.emplace_back(feature_);
      feature.n = n;
      feature.ids += begin;
      feature.rows += begin * kDim;
      feature.gradients += begin * kDim;
      begin += n;
    }
    batch_ = {&use_, 1, features_.data(), static_cast<uint32_t>(sizes.size())};
  }
  int TryLookup() { return HetDevLookup(context_, call_, &batch_, 1, stream_, &wanted_); }
  Keys Lookup() {
    EXPECT_EQ(TryLookup(), HET_DEV_OK) << HetDevError();
    return Keys(wanted_.keys, wanted_.keys + wanted_.n);
  }
  // Row of key k: {k, k + 0.5}.
  int TryInstall(const std::vector<Keys>& answers, int64_t base = 5, bool admit = true) {
    std::vector<HetDevAnswer> given;
    std::vector<std::vector<float>> rows;
    constexpr size_t kMostRows = 1000;
    const std::vector<int64_t> bases(kMostRows, base);
    const std::vector<uint8_t> admits(kMostRows, admit);
    for (const Keys& keys : answers) {
      rows.emplace_back();
      for (const int64_t key : keys) {
        for (const float x : {0.0f, 0.5f}) rows.back().push_back(static_cast<float>(key) + x);
      }
      given.push_back(
          {0, keys.size(), keys.data(), bases.data(), admits.data(), rows.back().data(), nullptr});
    }
    return HetDevInstall(context_, call_, &batch_, given.data(), static_cast<uint32_t>(given.size()), stream_,
                         &victims_);
  }
  void Install(const Keys& keys, bool admit = true) {
    EXPECT_EQ(TryInstall({keys}, 5, admit), HET_DEV_OK) << HetDevError();
  }
  // A batch of these keys, whose rows are in the table.
  void Bring(const Keys& keys) {
    SetBatch(keys);
    Lookup();
    Install(keys);
  }
  int TrySum(const uint8_t* active = nullptr) {
    return HetDevSum(context_, call_, &batch_, 1, active, stream_, &wanted_, &summed_);
  }
  void Sum() {
    EXPECT_EQ(TrySum(), HET_DEV_OK) << HetDevError();
    EXPECT_EQ(wanted_.n, 0u);
  }
  int TryForget(int what, const Keys& keys) {
    uint64_t discarded = 0;
    return HetDevForgetKeys(context_, use_.table, what, keys.data(), keys.size(), stream_, &discarded);
  }
  int Tick(HetDevCall* call) {
    HetDevExport due = {};
    const int code = HetDevTick(context_, call, &batch_, stream_, &due);
    EXPECT_EQ(due.n, 0u);
    return code;
  }
  HetDevRowState Inspect(int64_t key, std::vector<float>* row = nullptr) {
    HetDevRowState state = {};
    std::vector<float> floats(kDim);
    EXPECT_EQ(HetDevInspect(context_, use_.table, key, stream_, &state, floats.data(), nullptr), HET_DEV_OK)
        << HetDevError();
    if (row != nullptr) *row = floats;
    return state;
  }
  // Of the streams.
  static uint64_t CountOperations(const std::function<void()>& call) {
    const uint64_t before = HetDevHostOperations();
    call();
    return HetDevHostOperations() - before;
  }
  uint64_t RowsHere() {
    HetDevTableState state;
    EXPECT_EQ(HetDevState(context_, use_.table, stream_, &state), HET_DEV_OK) << HetDevError();
    return state.rows;
  }

  HetDevStream stream_ = nullptr;
  HetDevContext* context_ = nullptr;
  HetDevCall* call_ = nullptr;
  std::vector<HetDevCall*> calls_;  // all, also call_
  HetDevUse use_ = {};
  HetDevFeature feature_ = {};  // all ids
  std::vector<HetDevFeature> features_;
  HetDevBatch batch_ = {&use_, 1, &feature_, 1};
  HetDevWanted wanted_ = {};
  HetDevExport victims_ = {};
  HetDevSummed summed_ = {};  // of the last sum
  Keys ids_;
  std::unique_ptr<DeviceArray<float>> rows_, gradients_;
};

}  // namespace het::testing
