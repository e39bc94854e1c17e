// What the calls of a step spend their time on: entries (kind, thread, begin, end), written while the log is
// on. het_tf.callbacks.StepTrace draws them under the ops that TensorFlow's profiler has measured.
//
//   lookup ───────────────────────────────────────────────   Steps::Lookup
//     plan ──  lock ·····  send ──  wait ───── answers ── copy ──
//   update ───────────────────────────────────────────────   Steps::Apply, SumGradients
//     sum ───  lock  tick ──── push ── send ──  wait ───── answers ──
//
// 1. What counts. `wait` is the time in which a thread sleeps until the store answers, or reads what comes:
//    server and wire together, since a frame carries no times. Everything else is computed here; what has no
//    entry of its own is the cache's, or in a table without one the table's.
// 2. Who owns what. An Engine owns one log; its backends and its client (by ClientConfig::trace) write to
//    it through TraceScope. Whoever calls Begin takes the entries with End. Entries of a call have its
//    thread and lie between its begin and its end.
// 3. Cost. Off: one load and one branch, which always goes the same way; no clock is read and nothing is
//    kept. On: two readings of the clock and a lock an entry.
// 4. Memory. Begin takes room for kMost entries, about 2 MB; those that come later are counted, not kept.
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
  kLock,     // another call of this process has the client; no entry where it is free
  kWait,     // for the store
  kAnswers,  // rows of answers go to the cache
  kCopy,     // rows go from the cache to the model
  kSum,      // gradients are summed by key
  kTick,     // the optimizer runs
  kPush,     // updates that are due go into a frame, rounded as the table's wire format says
  kSend,     // frames are encoded and handed to their connection
};
const char* TraceKindName(TraceKind kind);

class TraceLog {
 public:
  static constexpr size_t kMost = 1 << 16;

  struct Entry {
    TraceKind kind;
    uint64_t thread;
    int64_t begin, end;  // of Now()
  };
  struct Entries {
    Vector<Entry> kept;  // by their ends
    uint64_t left_out = 0;
  };

  // Empties the log and turns it on. Throws std::bad_alloc; then it is as before.
  void Begin();
  // Turns it off and returns what has ended in between.
  Entries End();

  bool on() const { return on_.load(std::memory_order_relaxed); }
  void Add(TraceKind kind, int64_t begin, int64_t end);

  // Nanoseconds since 1970, by the clock of TensorFlow's profiler.
  static int64_t Now();

 private:
  std::atomic<bool> on_{false};
  std::mutex mutex_;
  Entries entries_;
};

// Adds an entry from here to the end of the scope, if the log is on at both ends. `log` may be null.
class TraceScope {
 public:
  TraceScope(TraceLog* log, TraceKind kind) : log_(log != nullptr && log->on() ? log : nullptr), kind_(kind) {
    if (log_ != nullptr) begin_ = TraceLog::Now();
  }
  ~TraceScope() {
    if (log_ != nullptr) log_->Add(kind_, begin_, TraceLog::Now());
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  TraceLog* const log_;
  const TraceKind kind_;
  int64_t begin_ = 0;
};

}  // namespace het
