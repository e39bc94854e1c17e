// A library for LD_PRELOAD: the time of day differs from the machine's by the seconds that the test's
// process, or one that it forked, gave SetClock; the file that the environment's HET_TEST_CLOCK names has
// them. Other clocks are as they are.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace {

int64_t* offset = nullptr;

__attribute__((constructor)) void MapOffset() {
  const char* const path = std::getenv("HET_TEST_CLOCK");
  const int file = path == nullptr ? -1 : open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof *offset) != 0) std::abort();
  void* const memory = mmap(nullptr, sizeof *offset, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) std::abort();
  offset = static_cast<int64_t*>(memory);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) void SetClock(int64_t seconds) {
  __atomic_store_n(offset, seconds, __ATOMIC_RELAXED);
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  const bool of_day = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
  if (result == 0 && of_day && offset != nullptr) now->tv_sec += __atomic_load_n(offset, __ATOMIC_RELAXED);
  return result;
}

__attribute__((visibility("default"))) int gettimeofday(timeval* now, void*) noexcept {
  timespec time;
  if (clock_gettime(CLOCK_REALTIME, &time) != 0) return -1;
  *now = {time.tv_sec, time.tv_nsec / 1000};
  return 0;
}

__attribute__((visibility("default"))) time_t time(time_t* now) noexcept {
  timespec time;
  if (clock_gettime(CLOCK_REALTIME, &time) != 0) return -1;
  if (now != nullptr) *now = time.tv_sec;
  return time.tv_sec;
}

}  // extern "C"
