// A device whose library is libhet_cuda_host.so, in a few lines: tables, and steps of which tests say what
// they are about alone. What goes wrong in here fails the test.
#ifndef HET_TESTS_CPP_TESTING_DEVICE_WORLD_H_
#define HET_TESTS_CPP_TESTING_DEVICE_WORLD_H_

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "het_tf/core/device/abi.h"

namespace het::testing {

using Keys = std::vector<int64_t>;

#define HET_DEV_OK_OR_FAIL(call) ASSERT_EQ(call, HET_DEV_OK) << HetDevError()

// Memory of the device.
class DeviceArray {
 public:
  DeviceArray(HetDevContext* context, const void* host, size_t bytes);
  DeviceArray(DeviceArray&& other) noexcept;
  DeviceArray& operator=(DeviceArray&&) = delete;
  ~DeviceArray() { HetDevFree(context_, memory_); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(memory_);
  }
  template <typename T>
  std::vector<T> Read() const {
    std::vector<T> host(bytes_ / sizeof(T));
    EXPECT_EQ(HetDevCopyOut(context_, host.data(), memory_, bytes_, nullptr), HET_DEV_OK) << HetDevError();
    return host;
  }

 private:
  void Create(const void* host);
  HetDevContext* context_;
  void* memory_ = nullptr;
  size_t bytes_;
};

HetDevTableConfig SgdTable(const char* name, uint64_t capacity, uint32_t dim);

// What came out of a call, copied.
struct Wanted {
  std::map<std::pair<uint32_t, int64_t>, int64_t> bases;  // (use, key)
  std::vector<uint64_t> reads, hits;

  Keys keys(uint32_t use = 0) const;
};

struct Update {
  uint32_t use;
  int64_t key;
  uint32_t ticks;
  std::vector<float> update;
  bool operator==(const Update& other) const;
};

class DeviceWorld : public ::testing::Test {
 protected:
  struct Feature {
    Keys ids;
    uint32_t use = 0;
    bool has_padding = false;
    int64_t padding_id = 0;
  };

  ~DeviceWorld() override;
  void SetUp() override;
  void TearDown() override;

  // The tables of the batches to come, one a use.
  void AddTable(const HetDevTableConfig& config);

  // The batch of the calls to come.
  void SetBatch(const std::vector<Feature>& features);

  // A new step: everything used before it may leave the cache.
  void NewStep();

  int TryLookup(int training, Wanted* result);
  Wanted Lookup(int training = 1);

  // What the store holds of a key: so that a row tells which key and clock it is of.
  static std::vector<float> StoredRow(int64_t key, int64_t base, uint32_t row_floats);

  // Rows of the store for a use.
  struct Answer {
    uint32_t use = 0;
    Keys keys;
    int64_t base = 0;
    bool admit = true;
  };
  int TryInstall(const std::vector<Answer>& answers, std::vector<Update>* victims);
  std::vector<Update> Install(const std::vector<Answer>& answers);

  void Gather() { EXPECT_EQ(HetDevGather(context_, call_, &batch_, nullptr), HET_DEV_OK) << HetDevError(); }

  // One step over these keys of a table: all of them are here afterwards, or with the call.
  std::vector<Update> Step(const Keys& keys, int64_t base = 0, uint32_t use = 0);

  // A whole step: each key gets one tick with this gradient. What was due.
  std::vector<Update> Train(const Keys& keys, float gradient, std::vector<Update>* victims = nullptr,
                            uint32_t use = 0);

  std::vector<Update> Copied(const HetDevExport& exported) const;

  // Rows that a feature got.
  std::vector<float> RowsOf(size_t feature) const { return rows_[feature].Read<float>(); }

  struct Row {
    HetDevRowState state;
    std::vector<float> row, update;
  };
  Row Inspect(int64_t key, uint32_t use = 0) const;
  bool Has(int64_t key, uint32_t use = 0) const { return Inspect(key, use).state.found != 0; }

  HetDevTableState State(uint32_t use = 0) const;

  HetDevContext* context_ = nullptr;
  HetDevCall* call_ = nullptr;
  std::vector<HetDevTable*> tables_;
  std::vector<HetDevTableConfig> configs_;
  std::vector<HetDevUse> uses_;
  std::vector<HetDevFeature> features_;
  std::vector<DeviceArray> ids_, rows_;
  HetDevBatch batch_ = {};
  uint64_t stamp_ = 0;
};

}  // namespace het::testing

#endif  // HET_TESTS_CPP_TESTING_DEVICE_WORLD_H_
