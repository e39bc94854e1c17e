// What the library keeps of a step from its lookup to its gradient, by token; and the stamps of lookups.
//
// Stamps number the training lookups. Rows with the stamp of a kept step, or a later one, are no victims. The
// engine's StepStore says which steps are kept, and releases the others: they still work, and their rows may
// have to be fetched again.
#pragma once

#include <deque>
#include <vector>

#include "het_tf/core/device/library.h"

namespace het {

class DeviceCalls {
 public:
  static constexpr uint64_t kLastStamp = 0xfffffffe;

  // A step that is running. Its call returns to the spare ones unless it is kept.
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

  // Of a new lookup; not training: the stamp of the last one that was.
  Status Begin(const DeviceLibrary& library, HetDevContext* context, bool training, Step* step);
  void Keep(uint64_t token, Step step);
  // Of the token's gradient. Where others have changed what is on the device since its lookup, its call has
  // forgotten everything: rows of its own may be older than the table's by now.
  Status Resume(const DeviceLibrary& library, HetDevContext* context, uint64_t token, Step* step);
  // The token will not come. Unknown ones are fine.
  void Release(uint64_t token);

  // HetDevUse::pinned_from while this step runs.
  uint64_t PinnedFrom(const Step& step) const;
  // Rows came, went or were ticked, by this step.
  void Changed() { ++version_; }
  bool stamps_used_up() const { return stamp_ >= kLastStamp; }
  // All stamps begin again: no row with an older one may be left. Kept steps are forgotten.
  void StartStampsAgain();
  void set_stamp(uint64_t stamp) { stamp_ = stamp; }  // for tests

  // The context is about to end; or (null) it is not this process's.
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
  std::vector<HetDevCall*> spare_;  // to be reset before they are used; has room for every call
  size_t calls_ = 0;
};

}  // namespace het
