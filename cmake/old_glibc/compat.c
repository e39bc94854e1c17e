// Functions that are newer than glibc 2.28 and that our code, libstdc++ and libhiredis use. Linked into each
// library of a portable wheel and hidden, so that each has its own (link_with_old_glibc.py).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#define HIDDEN __attribute__((visibility("hidden")))

// 2.32. "False" is always true enough: it only spares libstdc++ atomic operations.
HIDDEN char __libc_single_threaded = 0;

// 2.36, for std::random_device.
HIDDEN uint32_t arc4random(void) {
  uint32_t value;
  for (;;) {
    if (getrandom(&value, sizeof(value), 0) == sizeof(value)) return value;
    if (errno != EINTR) abort();
  }
}

// 2.33; functions of libc's static part before, over these.
int __fxstat(int version, int fd, struct stat* out);
int __xstat(int version, const char* path, struct stat* out);
int __lxstat(int version, const char* path, struct stat* out);
int __fxstatat(int version, int directory, const char* path, struct stat* out, int flags);
enum { kStatVersion = 1 };
HIDDEN int fstat(int fd, struct stat* out) { return __fxstat(kStatVersion, fd, out); }
HIDDEN int stat(const char* path, struct stat* out) { return __xstat(kStatVersion, path, out); }
HIDDEN int lstat(const char* path, struct stat* out) { return __lxstat(kStatVersion, path, out); }
HIDDEN int fstatat(int directory, const char* path, struct stat* out, int flags) {
  return __fxstatat(kStatVersion, directory, path, out, flags);
}
// The same functions on 64-bit Linux, by the names that code with large files uses: libstdc++'s <fstream>.
struct stat64;
HIDDEN int fstat64(int fd, struct stat64* out) { return fstat(fd, (struct stat*)out); }
HIDDEN int stat64(const char* path, struct stat64* out) { return stat(path, (struct stat*)out); }
HIDDEN int lstat64(const char* path, struct stat64* out) { return lstat(path, (struct stat*)out); }
HIDDEN int fstatat64(int directory, const char* path, struct stat64* out, int flags) {
  return fstatat(directory, path, (struct stat*)out, flags);
}

// 2.30, for waits until a time of the steady clock. Where glibc has it, that one.
typedef int (*ClockWait)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);

static int64_t Nanoseconds(const struct timespec* at) { return at->tv_sec * INT64_C(1000000000) + at->tv_nsec; }

static int64_t Now(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return Nanoseconds(&now);
}

HIDDEN int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                  const struct timespec* deadline) {
  const ClockWait wait = (ClockWait)dlsym(RTLD_DEFAULT, "pthread_cond_clockwait");
  if (wait != NULL) return wait(condition, mutex, clock, deadline);
  for (;;) {
    const int64_t left = Nanoseconds(deadline) - Now(clock);
    const int64_t until = Now(CLOCK_REALTIME) + (left > 0 ? left : 0);
    const struct timespec at = {until / 1000000000, until % 1000000000};
    const int result = pthread_cond_timedwait(condition, mutex, &at);
    if (result != ETIMEDOUT || Now(clock) >= Nanoseconds(deadline)) return result;  // else the date was changed
  }
}
