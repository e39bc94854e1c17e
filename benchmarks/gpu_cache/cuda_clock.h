// Times of work on a device, and its own copy bandwidth. On a GPU by events and copies of the driver
// (libcuda.so.1, looked up at run time, so that this builds without CUDA); else by the wall clock.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace het::bench {

inline double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Time {
  double device = 0;  // seconds between two events on the stream; without a GPU as wall
  double wall = 0;
};

class Clock {
 public:
  // Ends the program with a line when there should be a driver and is none.
  explicit Clock(bool cuda) : cuda_(cuda) {
    if (!cuda) return;
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == nullptr) Die("libcuda.so.1 cannot be loaded");
    const auto load = [&](auto* function, const char* name) {
      *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(driver, name));
      if (*function == nullptr) Die(name);
    };
    int (*init)(unsigned) = nullptr;
    int (*get_device)(int*, int) = nullptr;
    int (*retain)(void**, int) = nullptr;
    int (*set_current)(void*) = nullptr;
    int (*create_event)(void**, unsigned) = nullptr;
    load(&init, "cuInit");
    load(&get_device, "cuDeviceGet");
    load(&retain, "cuDevicePrimaryCtxRetain");
    load(&set_current, "cuCtxSetCurrent");
    load(&create_event, "cuEventCreate");
    load(&record_, "cuEventRecord");
    load(&wait_, "cuEventSynchronize");
    load(&elapsed_, "cuEventElapsedTime");
    load(&allocate_, "cuMemAlloc_v2");
    load(&free_, "cuMemFree_v2");
    load(&copy_, "cuMemcpyDtoDAsync_v2");
    int device = 0;
    void* context = nullptr;
    Must(init(0), "cuInit");
    Must(get_device(&device, 0), "cuDeviceGet");
    Must(retain(&context, device), "cuDevicePrimaryCtxRetain");
    Must(set_current(context), "cuCtxSetCurrent");
    Must(create_event(&begin_, 0), "cuEventCreate");
    Must(create_event(&end_, 0), "cuEventCreate");
  }

  // What is put on the null stream by `work`, until it is done.
  template <typename Work>
  Time Measure(Work work) {
    Time time;
    const double begin = Seconds();
    if (cuda_) Must(record_(begin_, nullptr), "cuEventRecord");
    work();
    if (cuda_) {
      float milliseconds = 0;
      Must(record_(end_, nullptr), "cuEventRecord");
      Must(wait_(end_), "cuEventSynchronize");
      time.wall = Seconds() - begin;
      Must(elapsed_(&milliseconds, begin_, end_), "cuEventElapsedTime");
      time.device = milliseconds * 1e-3;
    } else {
      time.wall = time.device = Seconds() - begin;
    }
    return time;
  }

  // Bytes a second that a copy within the device reads and writes, both counted; the best of some, of a
  // buffer of so many bytes.
  double CopyBandwidth(size_t bytes) {
    std::vector<double> rates;
    if (cuda_) {
      uint64_t from = 0, to = 0;
      Must(allocate_(&from, bytes), "cuMemAlloc");
      Must(allocate_(&to, bytes), "cuMemAlloc");
      for (int i = 0; i < 12; ++i) {
        const Time time = Measure([&] { Must(copy_(to, from, bytes, nullptr), "cuMemcpyDtoDAsync"); });
        rates.push_back(2 * static_cast<double>(bytes) / time.device);
      }
      free_(from);
      free_(to);
    } else {
      std::vector<char> from(bytes, 1), to(bytes, 2);
      for (int i = 0; i < 6; ++i) {
        const Time time = Measure([&] { std::memcpy(to.data(), from.data(), bytes); });
        rates.push_back(2 * static_cast<double>(bytes) / time.wall);
      }
    }
    return *std::max_element(rates.begin(), rates.end());
  }

 private:
  [[noreturn]] static void Die(const char* what) {
    std::fprintf(stderr, "cuda_cache: the CUDA driver fails at %s\n", what);
    std::exit(2);
  }
  static void Must(int code, const char* what) {
    if (code == 0) return;
    std::fprintf(stderr, "cuda_cache: %s answers %d\n", what, code);
    std::exit(2);
  }

  bool cuda_;
  void *begin_ = nullptr, *end_ = nullptr;
  int (*record_)(void*, void*) = nullptr;
  int (*wait_)(void*) = nullptr;
  int (*elapsed_)(float*, void*, void*) = nullptr;
  int (*allocate_)(uint64_t*, size_t) = nullptr;
  int (*free_)(uint64_t) = nullptr;
  int (*copy_)(uint64_t, uint64_t, size_t, void*) = nullptr;
};

}  // namespace het::bench
