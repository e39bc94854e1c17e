#include "het_tf/ext/gpu/cc/device_calls.h"

#include <algorithm>
#include <utility>

namespace het {

DeviceCalls::Step& DeviceCalls::Step::operator=(Step&& other) noexcept {
  std::swap(calls_, other.calls_);
  std::swap(call_, other.call_);
  std::swap(stamp, other.stamp);
  return *this;
}

DeviceCalls::Step::~Step() {
  if (call_ != nullptr) calls_->spare_.push_back(call_);
}

Status DeviceCalls::Take(const DeviceLibrary& library, HetDevContext* context, Step* step) {
  if (spare_.empty()) {
    spare_.reserve(calls_ + 1);
    HetDevCall* call = nullptr;
    HET_RETURN_IF_ERROR(
        library.ToStatus(library.HetDevCreateCall(context, &call), "making room for one more step"));
    ++calls_;
    spare_.push_back(call);
  }
  HetDevCall* const call = spare_.back();
  library.HetDevResetCall(context, call);
  spare_.pop_back();
  *step = Step(this, call);
  return Status();
}

Status DeviceCalls::Begin(const DeviceLibrary& library, HetDevContext* context, bool training, Step* step) {
  HET_RETURN_IF_ERROR(Take(library, context, step));
  if (training) ++stamp_;
  step->stamp = stamp_;
  return Status();
}

void DeviceCalls::Keep(uint64_t token, Step step) { kept_.push_back({token, version_, std::move(step)}); }

Status DeviceCalls::Resume(const DeviceLibrary& library, HetDevContext* context, uint64_t token, Step* step) {
  const auto it =
      std::find_if(kept_.begin(), kept_.end(), [token](const Kept& kept) { return kept.token == token; });
  if (it == kept_.end()) {
    // A step's installs must not evict each other's rows: while it runs the newest stamp is pinned.
    HET_RETURN_IF_ERROR(Take(library, context, step));
    step->stamp = stamp_;
    return Status();
  }
  if (it->version != version_) library.HetDevResetCall(context, it->step.call());
  *step = std::move(it->step);
  kept_.erase(it);
  return Status();
}

void DeviceCalls::Release(uint64_t token) {
  const auto it =
      std::find_if(kept_.begin(), kept_.end(), [token](const Kept& kept) { return kept.token == token; });
  if (it != kept_.end()) kept_.erase(it);
}

uint64_t DeviceCalls::PinnedFrom(const Step& step) const {
  return kept_.empty() ? step.stamp : std::min(step.stamp, kept_.front().step.stamp);
}

void DeviceCalls::StartStampsAgain() {
  kept_.clear();
  stamp_ = 0;
  ++version_;
}

void DeviceCalls::Clear(const DeviceLibrary* library, HetDevContext* context) {
  kept_.clear();
  if (library != nullptr) {
    for (HetDevCall* call : spare_) library->HetDevDestroyCall(context, call);
  }
  spare_.clear();
  calls_ = 0;
}

}  // namespace het
