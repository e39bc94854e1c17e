// The phases of a step's calls: how long each took, always, and while the log is on entries (kind, thread,
// begin, end). het_tf.callbacks.StepTrace draws these under the ops of TensorFlow's profiler; the totals are
// in the report of a worker.
//
//   lookup ───────────────────────────────────────────────   Steps::Lookup
//     plan ──  lock ·····  send ──  wait ───── answers ── copy ──
//   update ───────────────────────────────────────────────   Steps::Apply, SumGradients
//     sum ───  lock  tick ──── push ── send ──  wait ───── answers ──
//
// 1. Phases. `wait` is the time in which a thread sleeps until the store answers, or reads the answer:
//    server and network together, since frames carry no times. The rest is computed here; time without an
//    entry belongs to the cache, or in a table without a cache to the table.
// 2. Ownership. An Engine owns one log; its backends and its client (by ClientConfig::trace) write to it
//    through TraceScope. The caller of Begin takes the entries with End. Entries of a call have its thread
//    and lie between its begin and its end.
// 3. Cost. Two clock readings and two atomic additions a phase; while the log is on, a lock, too.
// 4. Memory. Begin reserves kMost entries, about 2 MB; later ones are counted, not kept.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "het_tf/core/base/alloc.h"

namespace het {

enum class TraceKind : uint8_t {
  kLookup,
  kUpdate,
  kPlan,     // ids are sorted by partition, duplicates found
  kLock,     // waits for a client that another call of this process uses; no entry if it is free
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
  static constexpr size_t kMost = 1 << 16;

  struct Entry {
    TraceKind kind;
    uint64_t thread;
    int64_t begin, end;  // from Now()
  };
  struct Entries {
    Vector<Entry> kept;  // in order of their ends
    uint64_t left_out = 0;
  };

  // Clears the log and turns it on. If it throws std::bad_alloc the log is unchanged.
  void Begin();
  // Turns it off and returns the entries that ended meanwhile.
  Entries End();

  // All phases of a kind since the log was made, by their length.
  struct Total {
    static constexpr size_t kBuckets = 12;
    // Bucket i: phases of at most 4^i microseconds, and more than those of the bucket before; the last one:
    // all longer ones.
    std::atomic<uint64_t> counts[kBuckets + 1] = {};
    std::atomic<uint64_t> nanoseconds{0};
  };
  const Total& total(TraceKind kind) const { return totals_[static_cast<size_t>(kind)]; }

  bool on() const { return on_.load(std::memory_order_relaxed); }
  // Adds a phase to the totals, and with `keep` to the log.
  void Add(TraceKind kind, int64_t begin, int64_t end, bool keep);

  // Nanoseconds since 1970, on the clock of TensorFlow's profiler.
  static int64_t Now();

 private:
  std::atomic<bool> on_{false};
  std::mutex mutex_;
  Entries entries_;
  Total totals_[kTraceKinds];
};

// Adds this scope to the totals, and to the log, if that is on at both ends. `log` may be null.
class TraceScope {
 public:
  TraceScope(TraceLog* log, TraceKind kind) : log_(log), kind_(kind) {
    if (log_ == nullptr) return;
    keep_ = log_->on();
    begin_ = TraceLog::Now();
  }
  ~TraceScope() {
    if (log_ != nullptr) log_->Add(kind_, begin_, TraceLog::Now(), keep_);
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  TraceLog* const log_;
  const TraceKind kind_;
  bool keep_ = false;
  int64_t begin_ = 0;
};

}  // namespace het
