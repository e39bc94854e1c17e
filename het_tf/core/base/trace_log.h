// The phases of a step's calls: how often each came, and how long it took. The sums are in the report of a
// worker, and `het ps exporter` shows them.
//
//   lookup ───────────────────────────────────────────────   Steps::Lookup
//     plan ──  lock ·····  send ──  wait ───── answers ── copy ──
//   update ───────────────────────────────────────────────   Steps::Apply, SumGradients
//     sum ───  lock  tick ──── push ── send ──  wait ───── answers ──
//
// 1. Phases. `wait` is the time in which a thread sleeps until the store answers, or reads the answer:
//    server and network together, since frames carry no times. The rest is computed here; time outside
//    of a phase belongs to the cache, or in a table without a cache to the table.
// 2. Ownership. An Engine owns one log; its backends and its client (by ClientConfig::trace) write to it
//    through TraceScope.
// 3. Cost. Two clock readings and two atomic additions a phase.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace het {

enum class TraceKind : uint8_t {
  kLookup,
  kUpdate,
  kPlan,     // ids are sorted by partition, duplicates found
  kLock,     // waits for a client that another call of this process uses; none if it is free
  kWait,     // waits for the store
  kAnswers,  // copies rows of answers to the cache
  kCopy,     // copies rows from the cache to the model
  kSum,      // gradients are summed by key
  kTick,     // the optimizer runs
  kPush,     // puts due updates into a frame, rounded to the table's wire format
  kSend,     // frames are encoded and handed to their connection
};
constexpr size_t kTraceKinds = static_cast<size_t>(TraceKind::kSend) + 1;
const char* TraceKindName(TraceKind kind);

class TraceLog {
 public:
  // All phases of a kind since the log was made, by their length.
  struct Total {
    static constexpr size_t kBuckets = 12;
    // Bucket i: phases of at most 4^i microseconds, and more than those of the bucket before; the last one:
    // all longer ones.
    std::atomic<uint64_t> counts[kBuckets + 1] = {};
    std::atomic<uint64_t> nanoseconds{0};
  };
  const Total& total(TraceKind kind) const { return totals_[static_cast<size_t>(kind)]; }

  void Add(TraceKind kind, int64_t nanoseconds);

 private:
  Total totals_[kTraceKinds];
};

// Adds the time of this scope. `log` may be null.
class TraceScope {
 public:
  TraceScope(TraceLog* log, TraceKind kind) : log_(log), kind_(kind) {
    if (log_ != nullptr) begin_ = Clock::now();
  }
  ~TraceScope() {
    if (log_ == nullptr) return;
    const auto time = Clock::now() - begin_;
    log_->Add(kind_, std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  TraceLog* const log_;
  const TraceKind kind_;
  Clock::time_point begin_;
};

}  // namespace het
