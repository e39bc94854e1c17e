#include "het_tf/core/base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/testing/random.h"

namespace het::testing {
namespace {

TEST(ThreadPool, EveryTaskOnce) {
  for (size_t threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (uint64_t i = 0; i < Scaled(200); ++i) {
      const size_t tasks = i % 37;
      std::vector<int> calls(tasks, 0);
      pool.For(tasks, [&](size_t task) { ++calls[task]; });
      EXPECT_EQ(calls, std::vector<int>(tasks, 1));
    }
  }
}

TEST(ThreadPool, TheCallerSeesWhatTasksWrote) {
  ThreadPool pool(4);
  std::vector<uint64_t> squares(10000);
  pool.For(100, [&](size_t task) {
    for (size_t i = task * 100; i < (task + 1) * 100; ++i) squares[i] = i * i;
  });
  for (size_t i = 0; i < squares.size(); ++i) ASSERT_EQ(squares[i], i * i);
}

TEST(ThreadPool, NestedLoopsAndConcurrentCallers) {
  ThreadPool pool(3);
  std::atomic<int> inner{0};
  auto nested = [&] {
    for (int round = 0; round < 50; ++round) {
      pool.For(5, [&](size_t) { pool.For(4, [&](size_t) { ++inner; }); });
    }
  };
  std::thread other(nested);
  nested();
  other.join();
  EXPECT_EQ(inner, 2 * 50 * 5 * 4);
}

TEST(ThreadPool, StartsAndStopsUnused) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
}

}  // namespace
}  // namespace het::testing
