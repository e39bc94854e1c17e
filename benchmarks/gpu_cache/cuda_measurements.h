// What cuda_cache's cases measure by, and where their lines go: a table on the screen, and JSON.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/gpu_cache/cuda_clock.h"
#include "benchmarks/gpu_cache/cuda_library.h"
#include "benchmarks/gpu_cache/cuda_table.h"

namespace het::bench {

struct Sizes {
  uint64_t rows = 0;  // of a table; 0: what memory allows, at most 2^24
  uint64_t batch = 0;
  int repeats = 20;
  std::string only;  // the part to measure; empty: all
};

struct Line {
  std::string what;
  uint32_t dim;
  double load;
  double value;
  const char* unit;  // "G rows/s" or "us"
  double goal;       // 0: there is none
  double bytes;      // of a row, at the least; 0: not counted
  double share;      // of the copy bandwidth; 0: not counted
  double wall_us;
};

class Measurements {
 public:
  Measurements(const Library& library, const Sizes& sizes)
      : library_(library), sizes_(sizes), cuda_(std::string(library.info.executor) == "cuda"), clock_(cuda_) {
    if (sizes_.batch == 0) sizes_.batch = cuda_ ? 1 << 20 : 1 << 12;
    Must(library, library.CreateContext(0, &context_), "CreateContext");
  }
  ~Measurements() { library_.DestroyContext(context_); }
  Measurements(const Measurements&) = delete;
  Measurements& operator=(const Measurements&) = delete;

  void WriteJson(const std::string& path) const {
    std::FILE* file = std::fopen(path.c_str(), "w");
    if (file == nullptr) {
      std::fprintf(stderr, "cuda_cache: cannot write %s\n", path.c_str());
      std::exit(1);
    }
    std::fprintf(
        file,
        "{\"device\": \"%s\", \"executor\": \"%s\", \"built\": \"%s\", \"driver\": %d, \"batch\": %llu,\n",
        library_.info.name, library_.info.executor, library_.info.built, library_.info.driver_version,
        static_cast<unsigned long long>(sizes_.batch));
    std::fprintf(
        file,
        " \"copy_bytes_per_s\": %.6g, \"to_device_bytes_per_s\": %.6g, \"from_device_bytes_per_s\": %.6g,\n",
        bandwidth_, to_device_, from_device_);
    std::fprintf(file, " \"lines\": [");
    for (size_t i = 0; i < lines_.size(); ++i) {
      const Line& line = lines_[i];
      std::fprintf(file,
                   "%s\n  {\"what\": \"%s\", \"dim\": %u, \"load\": %.2f, \"value\": %.6g, \"unit\": \"%s\", "
                   "\"goal\": %g, "
                   "\"bytes\": %g, \"share\": %.4g, \"wall_us\": %.6g}",
                   i == 0 ? "" : ",", line.what.c_str(), line.dim, line.load, line.value, line.unit,
                   line.goal, line.bytes, line.share, line.wall_us);
    }
    std::fprintf(file, "\n ]}\n");
    std::fclose(file);
  }

 protected:
  // Measures copies, and prints the table's head.
  void Begin() {
    size_t copied = size_t{4} << 30;
    while (cuda_ && copied * 3 > library_.info.free_bytes) copied /= 2;
    if (!cuda_) copied = size_t{64} << 20;
    bandwidth_ = clock_.CopyBandwidth(copied);
    MeasureLink();
    std::printf("%s, executor %s, built by %s\n", library_.info.name, library_.info.executor,
                library_.info.built);
    std::printf("copy within the device %.0f GB/s (read and written), to it %.1f GB/s, from it %.1f GB/s\n\n",
                bandwidth_ * 1e-9, to_device_ * 1e-9, from_device_ * 1e-9);
    if (!cuda_) std::printf("The host plays the device: the figures below mean nothing.\n\n");
    std::printf("%-40s %4s %5s %10s %-9s %6s %6s %8s %6s %10s\n", "", "dim", "load", "measured", "", "goal",
                "of it", "bytes", "share", "wall, us");
  }

  bool Measured(const char* part) const { return sizes_.only.empty() || sizes_.only == part; }

  uint64_t Rows(uint32_t dim, bool keep_updates) const {
    if (sizes_.rows != 0) return sizes_.rows;
    if (!cuda_) return 1 << 14;
    HetDevInfo info = {};
    Must(library_, library_.Describe(0, &info), "Describe");
    uint64_t rows = uint64_t{1} << 24;
    for (; rows > sizes_.batch * 2; rows /= 2) {
      const HetDevTableConfig config = Table::Config(dim, rows, keep_updates);
      uint64_t bytes = 0;
      Must(library_, library_.TableBytes(&config, &bytes), "TableBytes");
      if (bytes < info.free_bytes / 2) break;
    }
    return rows;
  }

  // Copies through page-locked memory, as rows take them.
  void MeasureLink() {
    const size_t bytes = cuda_ ? size_t{256} << 20 : size_t{1} << 20;
    void* staged = nullptr;
    Must(library_, library_.Stage(context_, bytes, &staged), "Stage");
    std::memset(staged, 1, bytes);
    Buffer there(library_, context_, bytes);
    std::vector<double> in, out;
    for (int i = 0; i < 8; ++i) {
      in.push_back(clock_
                       .Measure([&] {
                         Must(library_, library_.CopyIn(context_, there.as<void>(), staged, bytes, nullptr),
                              "CopyIn");
                       })
                       .wall);
      out.push_back(clock_
                        .Measure([&] {
                          Must(library_, library_.CopyOut(context_, staged, there.as<void>(), bytes, nullptr),
                               "CopyOut");
                        })
                        .wall);
    }
    to_device_ = static_cast<double>(bytes) / Median(in);
    from_device_ = static_cast<double>(bytes) / Median(out);
  }

  Time Repeat(const std::function<void(int)>& prepare, const std::function<void(int)>& work) {
    std::vector<double> device, wall;
    for (int i = -2; i < sizes_.repeats; ++i) {  // two to warm up
      const int turn = i + 2;
      prepare(turn);
      Must(library_, library_.Synchronize(context_, nullptr), "Synchronize");
      const Time time = clock_.Measure([&] { work(turn); });
      if (i < 0) continue;
      device.push_back(time.device);
      wall.push_back(time.wall);
    }
    return {Median(device), Median(wall)};
  }

  void Add(const Line& line) {
    lines_.push_back(line);
    char goal[16] = "-", of_it[16] = "-", bytes[16] = "-", share[16] = "-";
    if (line.goal > 0) {
      std::snprintf(goal, sizeof goal, "%.3g", line.goal);
      const double reached = line.unit[0] == 'u' ? line.goal / line.value : line.value / line.goal;
      std::snprintf(of_it, sizeof of_it, "%.0f %%", 100 * reached);
    }
    if (line.bytes > 0) std::snprintf(bytes, sizeof bytes, "%.0f", line.bytes);
    if (line.share > 0) std::snprintf(share, sizeof share, "%.0f %%", 100 * line.share);
    std::printf("%-40s %4u %5.2f %10.3f %-9s %6s %6s %8s %6s %10.1f\n", line.what.c_str(), line.dim,
                line.load, line.value, line.unit, goal, of_it, bytes, share, line.wall_us);
    std::fflush(stdout);
  }

  void AddRate(const std::string& what, uint32_t dim, double load, uint64_t rows, const Time& time,
               double goal, double bytes) {
    const double rate = static_cast<double>(rows) / time.device;
    Add({what, dim, load, rate * 1e-9, "G rows/s", goal, bytes, rate * bytes / bandwidth_, time.wall * 1e6});
  }

  void AddStep(const std::string& what, uint32_t dim, const Time& time, double goal) {
    Add({what, dim, 0.75, time.device * 1e6, "us", goal, 0, 0, time.wall * 1e6});
  }

  const Library& library_;
  Sizes sizes_;
  bool cuda_;
  Clock clock_;
  HetDevContext* context_ = nullptr;
  double bandwidth_ = 0, to_device_ = 0, from_device_ = 0;
  std::vector<Line> lines_;
};

}  // namespace het::bench
