// Engine::Prefetch and a real server: nobody waits, and answers are taken in between calls.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/cpp/testing/random.h"
#include "tests/cpp/testing/redis/redis_server.h"
#include "tests/cpp/testing/redis/remote_worker.h"

namespace het::testing {
namespace {

class RedisPrefetchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = RedisServer::Missing(); !missing.empty()) GTEST_SKIP() << missing;
  }
  static std::string AddressOf(const RedisServer& server) { return "unix://" + server.dir() + "/socket"; }
  static void Prefetch(RemoteWorker* worker, const std::vector<int64_t>& ids) {
    const Status status = worker->Prefetch(ids);
    EXPECT_TRUE(status.ok()) << status.message();
  }
};

// Stats takes in no answers, so the thread did.
TEST_F(RedisPrefetchTest, PrefetchedRowsArriveInTheBackground) {
  RedisServer server;
  RemoteWorker worker(AddressOf(server), ClientConfig(), 0);
  ASSERT_TRUE(worker.ok());
  Prefetch(&worker, {1, 2, 3, 3});
  EXPECT_TRUE(Eventually([&] { return worker.Counter("prefetched") == 3; }));
  worker.Train({1, 2, 3, 3});
  EXPECT_EQ(worker.Counter("hits"), 3u);
  EXPECT_EQ(worker.Counter("miss_pull"), 3u);
  EXPECT_EQ(worker.Counter("prefetch_late"), 0u);
  EXPECT_EQ(worker.Value(3), 2);
}

// A step waits for the server, with the client in its hands. A prefetch does not wait for the step, and is
// started when the step is done.
TEST_F(RedisPrefetchTest, PrefetchDoesNotWaitForBlockedStep) {
  RedisServer server;
  RemoteWorker worker(AddressOf(server), ClientConfig(), 0);
  ASSERT_TRUE(worker.ok());
  worker.Train({1});
  ASSERT_TRUE(server.Command({"CLIENT", "PAUSE", "60000", "WRITE"}).ok());
  std::atomic<bool> done{false};
  std::thread trainer([&] {
    worker.Train({1});
    done.store(true);
  });
  // Its push is on its way, or will be.
  for (int64_t id = 100; id < 110; ++id) {
    Prefetch(&worker, {id});
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_FALSE(done.load());
  ASSERT_TRUE(server.Command({"CLIENT", "UNPAUSE"}).ok());
  trainer.join();
  EXPECT_TRUE(Eventually([&] { return worker.Counter("prefetched") == 10; }));
  EXPECT_EQ(worker.Value(1), 2);
}

TEST_F(RedisPrefetchTest, ThreadsThatTrainReadAndPrefetch) {
  RedisServer server;
  RemoteWorker worker(AddressOf(server), ClientConfig(), 0, 20);
  ASSERT_TRUE(worker.ok());
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = t; !stop.load(); ++i) {
        Prefetch(&worker, {i % 50, 77, i % 7});
        std::this_thread::sleep_for(std::chrono::microseconds(300));
      }
    });
  }
  threads.emplace_back([&] {
    while (!stop.load()) EXPECT_TRUE(worker.engine().Flush().ok());
  });
  const int64_t rounds = static_cast<int64_t>(50 * Scaled(6));
  for (int64_t i = 0; i < rounds; ++i) worker.Train({i % 50, 77, 100 + i % 7});
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(worker.Value(77), rounds);
  EXPECT_EQ(worker.Value(49), rounds / 50);
}

// A server that is gone: prefetches say nothing, the lookup does, and with the server back all goes on.
TEST_F(RedisPrefetchTest, PrefetchErrorIsReportedByLookup) {
  RedisServer server(RedisServer::Arguments{"--appendonly", "yes", "--appendfsync", "always"});
  ClientConfig config;
  config.request_timeout = 1;
  config.deadline = 3;
  RemoteWorker worker(AddressOf(server), config, 0);
  ASSERT_TRUE(worker.ok());
  worker.Train({1});
  server.Kill();
  Prefetch(&worker, {5, 6});
  const Status status = worker.Step({5, 6});
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.message();
  ASSERT_TRUE(server.Restart());
  worker.Train({5, 6});
  EXPECT_EQ(worker.Value(5), 1);
  EXPECT_EQ(worker.Value(1), 1);
}

}  // namespace
}  // namespace het::testing
