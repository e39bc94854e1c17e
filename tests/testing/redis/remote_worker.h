// A worker with a table at a server: an engine as the kernels use it, and one table whose rows count.
//
// The table "t" starts at zero and learns with SGD(1) from gradients of -1: a row's values are the number of
// its steps.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "het_tf/ext/ps/client/remote_engine.h"
#include "tests/testing/process.h"
#include "tests/testing/redis/redis_server.h"

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
  static constexpr size_t kDim = Process::kDim;

  // `bound` is the bound of reads and of writes.
  RemoteWorker(const std::string& address, ClientConfig config, int64_t bound = 0, size_t capacity = 1000);

  bool ok() const { return process_ != nullptr; }
  Engine& engine() { return process_->engine(); }

  // One step: adds 1 to each id's row.
  Status Step(const std::vector<int64_t>& ids) { return process_->Count(ids); }
  void Train(const std::vector<int64_t>& ids);
  // Announces a step with these ids. May run during another thread's step.
  void Plan(const std::vector<int64_t>& ids) { process_->Plan(ids); }
  // Returns an inference's value; -1 after an error.
  float Value(int64_t id) { return process_->Value(id); }
  uint64_t Counter(const std::string& name);

  Notices notices;

 private:
  std::unique_ptr<Process> process_;
};

}  // namespace het::testing
