// A worker with a table at a server: an engine as the kernels use it, and one table whose rows count.
//
// The table "t" starts at zero and learns with SGD(1) from gradients of -1: a row's values are the number of
// its steps.
#pragma once

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "het_tf/ext/ps/client/remote_engine.h"
#include "tests/testing/process.h"
#include "tests/testing/redis/redis_server.h"
#include "tests/testing/table_specs.h"

namespace het::testing {

// A worker's notices to its user.
class Notices {
 public:
  std::vector<std::string> NoticesWith(const std::string& part) const;

 protected:
  // Of a client that has no listener.
  ClientConfig Listening(ClientConfig config);

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> texts_;
};

class RemoteWorker : public Notices, public Process {
 public:
  static TableSpec Spec() { return NewSpec("t", kDim, "sgd", {"zeros", 0, 0}); }

  // Throws the status of a server that cannot be used.
  RemoteWorker(const ServerAddress& address, const ClientConfig& config, const CacheConfig& cache);
  // `bound` is the bound of reads and of writes.
  RemoteWorker(const ServerAddress& address, const ClientConfig& config, int64_t bound = 0,
               size_t capacity = 1000);

  // One step, which must succeed.
  void Train(const std::vector<int64_t>& ids);
  // Sends all updates.
  void Flush();
  uint64_t Counter(const std::string& name);
};

}  // namespace het::testing
