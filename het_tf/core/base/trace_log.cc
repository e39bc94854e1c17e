#include "het_tf/core/base/trace_log.h"

namespace het {

const char* TraceKindName(TraceKind kind) {
  static constexpr const char* kNames[] = {"lookup", "update", "plan", "lock", "wait", "answers",
                                           "copy",   "sum",    "tick", "push", "send"};
  return kNames[static_cast<size_t>(kind)];
}

void TraceLog::Add(TraceKind kind, int64_t nanoseconds) {
  const auto length = static_cast<uint64_t>(nanoseconds);
  size_t bucket = 0;
  for (uint64_t most = 1000; bucket < Total::kBuckets && length > most; most *= 4) ++bucket;
  Total& total = totals_[static_cast<size_t>(kind)];
  total.counts[bucket].fetch_add(1, std::memory_order_relaxed);
  total.nanoseconds.fetch_add(length, std::memory_order_relaxed);
}

}  // namespace het
