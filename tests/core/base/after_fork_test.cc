// A forked child: refused if its parent has an engine, otherwise free.
#include "het_tf/core/base/after_fork.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "het_tf/core/engine/engine.h"

namespace het {
namespace {

// The result of check() in a child.
template <typename Check>
bool InChild(const Check& check) {
  const pid_t child = fork();
  if (child == 0) _exit(check() ? 0 : 1);
  int how = 0;
  EXPECT_EQ(waitpid(child, &how, 0), child);
  return WIFEXITED(how) && WEXITSTATUS(how) == 0;
}

// In a process of its own, since other tests of this program have engines.
TEST(AfterForkDeathTest, ChildOfAParentWithoutEnginesMayUseHetTf) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(_exit(InChild([] { return GetEngine("the child's").ok(); }) ? 0 : 1),
              ::testing::ExitedWithCode(0), "");
}

TEST(AfterFork, ChildOfAParentWithAnEngineIsRefused) {
  const auto engine = GetEngine("parents");
  ASSERT_TRUE(engine.ok());
  EXPECT_TRUE(InChild([] {
    const Status status = GetEngine("parents").status();
    return status.code() == Code::kFailedPrecondition &&
           status.message().find("Start children with spawn") != std::string::npos &&
           !SetEngineFactory(nullptr).ok() && FindEngine("parents") == nullptr;
  }));
  EXPECT_TRUE(InChild([] {
    ResetEngine("parents");  // the parent's: the child has none of its threads
    SetEngineThreads(2);
    return true;
  }));
  EXPECT_EQ(GetEngine("parents").value(), engine.value()) << "the parent still works";
  ResetEngine("parents");
}

// A data-loading process never calls het_tf, whatever its parent's threads do.
TEST(AfterFork, AChildThatDoesNotCallGoesOn) {
  const auto engine = GetEngine("parents");
  ASSERT_TRUE(engine.ok());
  EXPECT_TRUE(InChild([] { return true; }));
}

}  // namespace
}  // namespace het
