// A worker with a table at a server: an engine as the kernels use it, and one table whose rows count.
//
// The table "t" starts at zero and learns with SGD(1) from gradients of -1: a row's values are the number of
// its steps. dim = 2.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "het_tf/ext/ps/client/remote_engine.h"

namespace het::testing {

// A worker's notices to its user.
class Notices {
 public:
  std::function<void(const std::string&)> Listener();
  std::vector<std::string> With(const std::string& part) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> texts_;
};

class RemoteWorker {
 public:
  static constexpr size_t kDim = 2;

  // `bound` is the bound of reads and of writes.
  RemoteWorker(const std::string& address, ClientConfig config, int64_t bound = 0, size_t capacity = 1000);

  bool ok() const { return engine_ != nullptr; }
  Engine& engine() { return *engine_; }

  // One step: adds 1 to each id's row.
  Status Step(const std::vector<int64_t>& ids);
  void Train(const std::vector<int64_t>& ids);
  // Announces a step with these ids.
  void Plan(const std::vector<int64_t>& ids);
  // Returns an inference's value; -1 after an error.
  float Value(int64_t id);
  uint64_t Counter(const std::string& name);

  Notices notices;

 private:
  BatchCall Batch(const std::vector<int64_t>& ids);
  Status Lookup(const std::vector<int64_t>& ids, std::vector<float>* out, uint64_t* token);

  std::shared_ptr<Engine> engine_;
  TablePtr table_;
  FeatureIds feature_;
};

// Waits at most five minutes until the condition holds.
template <typename Condition>
bool Eventually(Condition condition) {
  for (int i = 0; i < 30000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace het::testing
