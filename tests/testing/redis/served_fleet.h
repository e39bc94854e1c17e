// A parameter server, processes that write rows there, a follower, a publisher, and processes that serve:
// each can be killed, stopped and started again by the test.
//
//   writers ──► servers ──► follower ──► live files ──► readers, which check what they read
//                  └──► publisher ──► versions ──┘
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <thread>

#include "tests/testing/redis/redis_shards.h"
#include "tests/testing/redis/shared_memory.h"
#include "tests/testing/temp_folder.h"

namespace het::testing {

constexpr uint32_t kServedPartitions = 6;

struct ServedRows;  // what writers did, and when

class ServedFleet {
 public:
  static constexpr uint32_t kWriters = 2;

  explicit ServedFleet(RedisShards* servers, uint64_t seed = 1);
  ~ServedFleet();

  // The key of a partition at the servers.
  std::string PartitionKeyOf(uint32_t partition) const;

  // Starts a process: "writer0", "writer1", "follower", "publisher", "reader".
  void Start(const std::string& name);
  void StartAll();
  void Kill(const std::string& name, int signal = 9);
  void Restart(const std::string& name) {
    Kill(name);
    Start(name);
  }
  void Signal(const std::string& name, int signal) { EXPECT_EQ(kill(pids_.at(name), signal), 0) << name; }

  // Waits until the condition holds, or five minutes have passed, which is a failure.
  bool Await(const char* what, const std::function<bool()>& done);
  // Waits until readers have seen all that was acked before this call, and a version of after it.
  bool AwaitServed();
  // Writers rest, each between two acked events, until Resume.
  void Pause();
  void Resume();
  // Ends all processes, and expects no violation.
  void Finish();

 private:
  // The address as workers take it.
  std::string Text() const;
  void Write(uint32_t writer);
  void Follow();
  void Publish();
  void Read();

  const ServerAddress address_;
  const uint64_t seed_;
  TempFolder folder_;
  Shared<ServedRows> rows_;
  std::map<std::string, pid_t> pids_;
};

}  // namespace het::testing
