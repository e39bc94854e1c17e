#include "tests/testing/redis/test_clock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tests/testing/temp_folder.h"

namespace het::testing {
namespace {

constexpr char kFile[] = "HET_TEST_CLOCK";

int OpenFile() {
  const int file = open(std::getenv(kFile), O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(int64_t)) != 0) std::abort();
  return file;
}

}  // namespace

bool TestClock::CanBeSet() { return std::getenv(kFile) != nullptr; }

void TestClock::RunAgain(const char* test) {
  const TempFolder folder;
  const std::string filter = std::string("--gtest_filter=") + test;
  const char* const asan = std::getenv("ASAN_OPTIONS");
  const std::string options = std::string(asan == nullptr ? "" : asan) + ":verify_asan_link_order=0";
  const pid_t pid = fork();
  if (pid == 0) {
    setenv(kFile, (folder.path() + "/clock").c_str(), 1);
    setenv("LD_PRELOAD", HET_TEST_CLOCK_LIBRARY, 1);
    setenv("ASAN_OPTIONS", options.c_str(), 1);
    close(OpenFile());
    execl("/proc/self/exe", "test", filter.c_str(), "--gtest_brief=1", nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << test << " ended with " << status;
}

TestClock::TestClock() {
  const int file = OpenFile();
  void* const memory = mmap(nullptr, sizeof *offset_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) std::abort();
  offset_ = static_cast<int64_t*>(memory);
}

TestClock::~TestClock() { munmap(offset_, sizeof *offset_); }

void TestClock::Set(int64_t seconds) { __atomic_store_n(offset_, seconds, __ATOMIC_RELAXED); }

}  // namespace het::testing
