// Ctrl-C while calls wait: held back by scopes, passed on once, and due only for waits that stand still.
#include "het_tf/core/base/interrupt.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "het_tf/core/base/steady_seconds.h"

namespace het {
namespace {

std::atomic<int> caught{0};

using By = Interrupts::By;

void Await(const std::function<bool()>& holds) {
  while (!holds()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

class InterruptsTest : public ::testing::Test {
 protected:
  InterruptsTest() {
    caught = 0;
    before_ = signal(SIGINT, [](int) { ++caught; });
  }
  ~InterruptsTest() override { signal(SIGINT, before_); }
  // A signal ends an op's wait.
  static void EndAnOp() {
    const Interrupts scope(By::kOp);
    raise(SIGINT);
    Await([] { return Interrupts::Due(0); });
  }

 private:
  void (*before_)(int);
};

TEST_F(InterruptsTest, AScopeHoldsASignalBackUntilItsEnd) {
  for (const By by : {By::kFunction, By::kOp}) {
    caught = 0;
    {
      const Interrupts scope(by);
      raise(SIGINT);
      raise(SIGINT);
      EXPECT_EQ(caught, 0);
    }
    EXPECT_EQ(caught, 1) << "the handler from before gets one signal";
    raise(SIGINT);
    EXPECT_EQ(caught, 2) << "and is there again";
  }
}

TEST_F(InterruptsTest, OnlyAWaitThatStandsStillIsEnded) {
  const Interrupts scope(By::kFunction);
  EXPECT_FALSE(Interrupts::Due(0)) << "no signal";
  raise(SIGINT);
  EXPECT_FALSE(Interrupts::Due(0)) << "it may end by itself";
  Await([] { return Interrupts::Due(0); });
  EXPECT_FALSE(Interrupts::Due(SteadySeconds())) << "it moves on";
}

TEST_F(InterruptsTest, AThreadWithoutAScopeIsNotConcerned) {
  const Interrupts scope(By::kFunction);
  raise(SIGINT);
  Await([] { return Interrupts::Due(0); });
  std::thread([] { EXPECT_FALSE(Interrupts::Due(0)); }).join();
}

// Defect: another thread, which has the scope in which the signal came, ends; the call that began meanwhile
// waits on, and Python gets the signal only after it.
TEST_F(InterruptsTest, AScopeThatOpensWhileASignalIsHeldBack) {
  std::atomic<bool> open{false}, ends{false};
  std::thread other([&] {
    const Interrupts scope(By::kOp);
    open = true;
    Await([&] { return ends.load(); });
  });
  Await([&] { return open.load(); });
  raise(SIGINT);
  {
    const Interrupts scope(By::kFunction);
    ends = true;
    other.join();
    std::this_thread::sleep_for(std::chrono::duration<double>(2 * Interrupts::kStillSeconds));
    EXPECT_TRUE(Interrupts::Due(0));
  }
  EXPECT_EQ(caught, 1);
}

TEST_F(InterruptsTest, ACallThatNeverWaitsLeavesTheSignal) {
  const Interrupts scope(By::kOp, /*may_wait=*/false);
  raise(SIGINT);
  EXPECT_EQ(caught, 1);
  EXPECT_FALSE(Interrupts::Due(0));
}

// Would catch a flag that stays: the call after an interrupted one would end, too.
TEST_F(InterruptsTest, AnotherScopeBeginsAnew) {
  {
    const Interrupts scope(By::kFunction);
    const Interrupts within(By::kOp);
    raise(SIGINT);
    Await([] { return Interrupts::Due(0); });
  }
  const Interrupts scope(By::kFunction);
  std::this_thread::sleep_for(std::chrono::duration<double>(2 * Interrupts::kStillSeconds));
  EXPECT_FALSE(Interrupts::Due(0));
}

// TensorFlow's exception passes the signal on; the time limit must not do it again, nor with a later signal.
TEST_F(InterruptsTest, AnEndedOpWaitsForItsException) {
  EndAnOp();
  EXPECT_EQ(caught, 0);
  EXPECT_TRUE(Interrupts::PassOn());
  EXPECT_FALSE(Interrupts::PassOn());
  EXPECT_EQ(caught, 1);
  const Interrupts scope(By::kFunction);
  raise(SIGINT);
  std::this_thread::sleep_for(std::chrono::duration<double>(2 * Interrupts::kHoldSeconds));
  EXPECT_EQ(caught, 1) << "the second one is held back by its own scope";
}

TEST_F(InterruptsTest, ASignalIsNotLostWithoutAnException) {
  EndAnOp();
  Await([] { return caught == 1; });
}

TEST_F(InterruptsTest, AHandlerOfLaterStays) {
  static std::atomic<int> later{0};
  {
    const Interrupts scope(By::kFunction);
    signal(SIGINT, [](int) { ++later; });
  }
  raise(SIGINT);
  EXPECT_EQ(later, 1);
}

TEST_F(InterruptsTest, AnIgnoredSignalStaysIgnored) {
  signal(SIGINT, SIG_IGN);
  const Interrupts scope(By::kFunction);
  raise(SIGINT);
  std::this_thread::sleep_for(std::chrono::duration<double>(2 * Interrupts::kStillSeconds));
  EXPECT_FALSE(Interrupts::Due(0));
}

TEST_F(InterruptsTest, ACallOfAnInterruptedProgram) {
  const Interrupts scope(By::kFunction);
  Interrupts::Now();
  Await([] { return Interrupts::Due(0); });
}

}  // namespace
}  // namespace het
