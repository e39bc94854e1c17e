#include "het_tf/core/engine/step_store.h"

#include <string>
#include <utility>

namespace het {

StepStore::StepPtr StepStore::New() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (spare_.empty()) return StepPtr(new Step(), Recycle{this});
  StepPtr step(spare_.back().release(), Recycle{this});
  spare_.pop_back();
  return step;
}

void StepStore::TakeBack(Step* step) noexcept {
  std::unique_ptr<Step> owned(step);
  std::lock_guard<std::mutex> lock(mutex_);
  if (spare_.size() < kSpare) spare_.push_back(std::move(owned));
}

uint64_t StepStore::Reserve() {
  std::lock_guard<std::mutex> lock(mutex_);
  return next_++;
}

uint64_t StepStore::Remember(uint64_t number, StepPtr step) {
  StepPtr oldest(nullptr, Recycle{this});  // recycled after the mutex is released
  std::lock_guard<std::mutex> lock(mutex_);
  const auto place = kept_.emplace(number, nullptr).first;
  const bool let_go = kept_.size() > kKept || kept_.begin()->first + kBehind < number;
  place->second.reset(step.release());
  if (!let_go) return 0;
  const uint64_t gone = kept_.begin()->first;
  oldest.reset(kept_.begin()->second.release());
  kept_.erase(kept_.begin());
  return gone;
}

Result<StepStore::StepPtr> StepStore::Take(uint64_t number) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (number == 0 || number >= next_) {
    return FailedPrecondition("the gradient of lookup " + std::to_string(number) +
                              ", which was not a training lookup of this process");
  }
  const auto kept = kept_.find(number);
  if (kept == kept_.end()) return StepPtr(nullptr, Recycle{this});
  StepPtr step(kept->second.release(), Recycle{this});
  kept_.erase(kept);
  return step;
}

}  // namespace het
