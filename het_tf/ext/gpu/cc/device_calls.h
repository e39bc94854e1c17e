// The library's state of each step from its lookup to its gradient, by token; and the stamps of lookups.
//
// Stamps number the training lookups. Rows with the stamp of a kept step, or a later one, are not evicted.
// The engine's StepStore decides which steps are kept, and releases the others: they still work, but their
// rows may have to be fetched again.
#pragma once

#include <deque>
#include <vector>

#include "het_tf/ext/gpu/cc/library.h"

namespace het {

class DeviceCalls {
 public:
  static constexpr uint64_t kLastStamp = 0xfffffffe;

  // A running step. Its destructor returns its call to the spare ones, unless Keep took the step.
  class Step {
   public:
    Step() = default;
    Step(DeviceCalls* calls, HetDevCall* call) : calls_(calls), call_(call) {}
    Step(Step&& other) noexcept { *this = std::move(other); }
    Step& operator=(Step&& other) noexcept;
    ~Step();

    HetDevCall* call() const { return call_; }
    uint64_t stamp = 0;

   private:
    friend class DeviceCalls;
    DeviceCalls* calls_ = nullptr;
    HetDevCall* call_ = nullptr;
  };

  // Starts a lookup. Without training it reuses the stamp of the last training lookup.
  Status Begin(const DeviceLibrary& library, HetDevContext* context, bool training, Step* step);
  void Keep(uint64_t token, Step step);
  // Resumes the step of `token`. If other steps changed the device since, its call is reset: the rows in it
  // may be older than the table's.
  Status Resume(const DeviceLibrary& library, HetDevContext* context, uint64_t token, Step* step);
  // Drops the step of a token that will not be resumed. Unknown tokens are ignored.
  void Release(uint64_t token);

  // HetDevUse::pinned_from while this step runs.
  uint64_t PinnedFrom(const Step& step) const;
  // Call when this step installed, evicted or ticked rows.
  void Changed() { ++version_; }
  bool stamps_used_up() const { return stamp_ >= kLastStamp; }
  // Restarts the stamps and drops kept steps. No row with an older stamp may be left.
  void StartStampsAgain();
  void set_stamp(uint64_t stamp) { stamp_ = stamp; }  // for tests

  // Drops all calls before the context ends. Null: the context belongs to the parent process.
  void Clear(const DeviceLibrary* library, HetDevContext* context);

 private:
  struct Kept {
    uint64_t token;
    uint64_t version;
    Step step;
  };
  Status Take(const DeviceLibrary& library, HetDevContext* context, Step* step);

  uint64_t stamp_ = 0;
  uint64_t version_ = 0;
  std::deque<Kept> kept_;           // in order of stamps
  std::vector<HetDevCall*> spare_;  // must be reset before use; has room for every call
  size_t calls_ = 0;
};

}  // namespace het
