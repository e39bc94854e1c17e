// Sums of gradients on a device, for tests of HetDevSum and HetDevTick.
#ifndef HET_TESTS_CPP_TESTING_DEVICE_SUMS_H_
#define HET_TESTS_CPP_TESTING_DEVICE_SUMS_H_

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "tests/cpp/testing/device/device_world.h"
#include "tests/cpp/testing/random.h"

namespace het::testing {

// Tables of zeros whose learning rate is -1: after a tick a row, and its update, is the sum of its key.
class DeviceSums : public DeviceWorld {
 protected:
  void TearDown() override;

  using Sums = std::map<std::pair<uint32_t, int64_t>, std::vector<float>>;  // by (use, key)

  void MakeTables(const std::vector<uint32_t>& dims, uint64_t capacity = 4096, int keep_updates = 1);

  // gradients[f]: of feature f, on the device. Begins at 4 * shift bytes past a multiple of 16.
  void SetGradients(const std::vector<std::vector<float>>& gradients, size_t shift = 0);

  // Installs zeros for all that is missing.
  void InstallZeros(const std::vector<std::pair<uint32_t, int64_t>>& wanted, bool admit);

  struct Result {
    std::vector<std::pair<uint32_t, int64_t>> wanted;
    uint64_t uniques = 0, due = 0;
    std::vector<bool> active;
    std::vector<uint64_t> ticks;
    bool non_finite = false;
    uint32_t bad_use = 0;
    int64_t bad_key = 0;
  };
  int TrySum(float scale, const uint8_t* active, Result* result);
  Result Sum(float scale = 1, const uint8_t* active = nullptr);
  // Sums; what is wanted is installed first.
  Result SumAll(float scale = 1, const uint8_t* active = nullptr, bool admit = true);
  std::vector<Update> Tick();

  // The rule of abi.h, written down plainly.
  Sums Expected(const std::vector<Feature>& features, const std::vector<std::vector<float>>& gradients,
                float scale, const std::vector<bool>& active) const;
  void ExpectSums(const Sums& sums);

  std::vector<float> RandomGradients(const Feature& feature);

  Random random_{5};
  std::vector<DeviceArray> gradients_;
};

}  // namespace het::testing

#endif  // HET_TESTS_CPP_TESTING_DEVICE_SUMS_H_
