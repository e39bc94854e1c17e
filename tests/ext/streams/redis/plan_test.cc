// Window::Plan and a real server: lookups begin between calls, no call waits, and lookups report the errors.

#include <atomic>

#include "tests/testing/redis/remote_worker.h"

namespace het::testing {
namespace {

using RedisPlanTest = NeedsRedis<>;

// The next lookup begins after the previous one has ended, without a thread of the caller.
TEST_F(RedisPlanTest, OneLookupBeginsAfterTheOther) {
  RedisServer server;
  RemoteWorker worker(server.address(), ClientConfig(), 3);
  for (int64_t id = 0; id < 6; ++id) worker.Plan({10 * id, 10 * id + 1});
  for (uint64_t step = 1; step <= 5; ++step) {
    EXPECT_TRUE(Eventually([&] { return worker.Counter("miss_pull") == 2 * step; }));
    const auto id = static_cast<int64_t>(step) - 1;
    worker.Train({10 * id, 10 * id + 1});
  }
}

// A step waits for the server, and holds the client: a plan does not wait for the step.
TEST_F(RedisPlanTest, PlanDoesNotWaitForABlockedStep) {
  RedisServer server;
  RemoteWorker worker(server.address(), ClientConfig(), 3);
  worker.Train({1});
  ASSERT_TRUE(server.Command({"CLIENT", "PAUSE", "60000", "WRITE"}).ok());
  std::atomic<bool> done{false};
  std::thread trainer([&] {
    for (int i = 0; i < 9; ++i) worker.Train({1});
    done.store(true);
  });
  for (int64_t id = 100; id < 110; ++id) worker.Plan({id});
  EXPECT_FALSE(done.load());
  ASSERT_TRUE(server.Command({"CLIENT", "UNPAUSE"}).ok());
  trainer.join();
  EXPECT_TRUE(Eventually([&] { return worker.Counter("miss_pull") == 2; }));
  EXPECT_EQ(worker.Value(1), 10);
}

// The server is down: plans succeed, the lookup fails, and all works when the server is back.
TEST_F(RedisPlanTest, AnErrorIsReportedByTheLookup) {
  RedisServer server(RedisServer::Logged());
  ClientConfig config;
  config.request_timeout = 1;
  config.deadline = 3;
  RemoteWorker worker(server.address(), config, 3);
  worker.Train({1});
  server.Kill();
  worker.Plan({5, 6});
  EXPECT_TRUE(Fails(worker.Count({5, 6}), Code::kDeadlineExceeded));
  ASSERT_TRUE(server.Restart());
  worker.Train({5, 6});
  worker.Flush();
  EXPECT_EQ(worker.Value(5), 1);
  EXPECT_EQ(worker.Value(1), 1);
}

}  // namespace
}  // namespace het::testing
