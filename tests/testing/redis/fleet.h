// Processes that work with servers while the test kills, stops and starts both. They say in shared memory
// what they have done, against which reads are checked, and which errors they have found.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/types.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>

#include "het_tf/ext/ps/client/redis_store.h"
#include "tests/testing/redis/remote_worker.h"

namespace het::testing {

// An object in memory that this process and those that it forks share.
template <typename T>
struct Unmap {
  void operator()(T* shared) const { munmap(shared, sizeof(T)); }
};
template <typename T>
using Shared = std::unique_ptr<T, Unmap<T>>;

template <typename T>
Shared<T> NewShared() {
  void* memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return Shared<T>(new (memory) T());
}

// What all processes of a fleet share; each fleet adds its own.
struct FleetState {
  std::atomic<bool> stop{false};  // processes end
  std::atomic<uint32_t> errors{0};
  std::atomic<bool> has_text{false};
  char first_error[512] = {};

  void Error(const std::string& what);
};

class Fleet {
 public:
  static constexpr uint32_t kPartitions = 6;  // few, so that nearly every step pushes to each
  static constexpr uint32_t kDim = RemoteWorker::kDim;

  // Makes the namespace, and the table of RemoteWorker.
  explicit Fleet(const ServerAddress& address);
  // Kills the processes that are left.
  virtual ~Fleet();

  const ServerAddress& address() const { return address_; }
  const TableSchema& schema() const { return *schema_; }
  het::RedisStore& store() { return *store_; }
  // The key of a partition at the servers.
  const std::string& PartitionKey(uint32_t partition) const { return store_->keys()[partition]; }

  // Starts a process, which calls Run(name).
  void Start(const std::string& name);
  bool Runs(const std::string& name) const { return pids_.count(name) != 0; }
  void Signal(const std::string& name, int signal) const;
  // kill -9.
  void Kill(const std::string& name);
  // Waits until it holds. Returns false if there is an error, or if it does not hold after five minutes,
  // which is a failure.
  bool Await(const char* what, const std::function<bool()>& holds);
  // Ends all processes, and expects that no process found an error.
  void Finish();

 protected:
  virtual FleetState& state() = 0;
  virtual void Run(const std::string& name) = 0;

 private:
  const ServerAddress address_;
  const Schema schema_;
  std::unique_ptr<het::RedisStore> store_;  // has no threads, which a fork would lose
  std::map<std::string, pid_t> pids_;
};

}  // namespace het::testing
