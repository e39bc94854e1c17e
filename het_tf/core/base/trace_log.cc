#include "het_tf/core/base/trace_log.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

namespace het {

const char* TraceKindName(TraceKind kind) {
  static constexpr const char* kNames[] = {"lookup", "update", "plan", "lock", "wait", "answers",
                                           "copy",   "sum",    "tick", "push", "send"};
  return kNames[static_cast<size_t>(kind)];
}

void TraceLog::Begin() {
  Entries empty;
  empty.kept.reserve(kMost);
  const std::lock_guard<std::mutex> lock(mutex_);
  std::swap(entries_, empty);
  on_.store(true, std::memory_order_relaxed);
}

TraceLog::Entries TraceLog::End() {
  const std::lock_guard<std::mutex> lock(mutex_);
  on_.store(false, std::memory_order_relaxed);
  return std::exchange(entries_, {});
}

void TraceLog::Add(TraceKind kind, int64_t begin, int64_t end, bool keep) {
  const uint64_t length =
      static_cast<uint64_t>(std::max<int64_t>(end - begin, 0));  // a clock may be set back
  size_t bucket = 0;
  for (uint64_t most = 1000; bucket < Total::kBuckets && length > most; most *= 4) ++bucket;
  Total& total = totals_[static_cast<size_t>(kind)];
  total.counts[bucket].fetch_add(1, std::memory_order_relaxed);
  total.nanoseconds.fetch_add(length, std::memory_order_relaxed);
  if (!keep) return;
  const uint64_t thread = std::hash<std::thread::id>()(std::this_thread::get_id());
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!on()) return;
  if (entries_.kept.size() < kMost) {
    entries_.kept.push_back({kind, thread, begin, end});
  } else {
    ++entries_.left_out;
  }
}

int64_t TraceLog::Now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

}  // namespace het
