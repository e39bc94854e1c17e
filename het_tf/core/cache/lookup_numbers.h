// Numbers of the training lookups of one table, and what lines and partitions know by them.
//
// A step has a number, the token that the engine gives its lookup (engine/step_store.h). Several lookups,
// of several layers, may make one step of a model, so a table counts those that name it: the next training
// lookup of the table has the next number, when it begins. One fact about a line is such a number:
//
//   held until   the line is no victim until a lookup with a higher number has begun. It says, too, which
//                lookup was the newest to use the line: while that one, or one before it, waits for rows,
//                the line is no victim either, whatever else has ended
//
// And one about a partition:
//
//   answered     it has said what has moved (client/subscriptions.h), and was asked during this lookup.
//                What it did not name then, the next lookup may trust
//
// For example, lookup 10 holds its rows until 17: they stay until their gradient is applied, or until they
// are no longer among those of the newest eight.
//
// Numbers wrap around. None is more than kFarthest ahead, so whatever is farther away has passed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "het_tf/core/base/alloc.h"

namespace het {

class LookupNumbers {
 public:
  static constexpr uint64_t kNoStep = ~uint64_t{0};  // that no lookup has
  static constexpr uint32_t kSteps = 8;              // steps that keep their rows
  static constexpr uint32_t kFarthest = kSteps;      // that a hold may end ahead of the newest

  // The lookup of a step names the table, with all its parts one after the other.
  void Begin(uint64_t step) {
    if (steps_[newest_ % kSteps] == step) return;
    steps_[++newest_ % kSteps] = step;
    ended_[newest_ % kSteps] = false;
  }
  // The gradient of the step has come: its lookup holds nothing any more.
  void End(uint64_t step) {
    for (uint32_t i = 0; i < kSteps; ++i) ended_[i] = ended_[i] || steps_[i] == step;
  }
  // Until when the lookup of this step holds its rows.
  uint32_t HeldBy(uint64_t step) const {
    uint32_t number = newest_;
    for (uint32_t i = 0; i < kSteps; ++i, --number) {
      if (steps_[number % kSteps] == step) return number + kSteps - 1;
    }
    return passed();
  }
  // The same of a step that is not known, too: past all that the end of a known one could end.
  uint32_t Until(uint64_t step) const {
    const uint32_t known = HeldBy(step);
    return known == passed() ? farthest() : known;
  }
  uint32_t newest() const { return newest_; }
  uint32_t farthest() const { return newest_ + kFarthest; }
  uint32_t passed() const { return newest_ - 1; }
  // Lookups that are not past this number, the newest one among them. 0: it has passed.
  uint32_t Left(uint32_t number) const {
    const uint32_t left = number - newest_ + 1;
    return left <= kFarthest + 1 ? left : 0;
  }

  // While a read without training is on its way every line is held.
  void BeginReading() { ++readings_; }
  void EndReading() { --readings_; }
  // The lookup of a step waits for rows; returns its number, for EndWaiting. Throws std::bad_alloc.
  uint32_t BeginWaiting(uint64_t step) {
    const uint32_t held_by = HeldBy(step);
    const uint32_t number = held_by == passed() ? newest_ : held_by - (kSteps - 1);
    waiting_.push_back(number);
    return number;
  }
  void EndWaiting(uint32_t number) { waiting_.erase(std::find(waiting_.begin(), waiting_.end(), number)); }

  // Whether a line that is held until this number is held now. A lookup holds until kSteps - 1 behind its
  // own.
  bool Holds(uint32_t until) const {
    const uint32_t left = Left(until);
    return readings_ > 0 || left > kSteps || (left > 0 && !ended_[(until + 1) % kSteps]) ||
           std::any_of(waiting_.begin(), waiting_.end(), [used = until - (kSteps - 1)](uint32_t number) {
             return static_cast<int32_t>(used - number) >= 0;
           });
  }

  // Whether the partition was asked during the newest lookup or the one before it, and has answered.
  bool answered(uint32_t partition) const {
    return partition < answered_.size() && newest_ - answered_[partition] <= 1;
  }
  // Throws std::bad_alloc. Before the first lookup (0) nothing bounds how long ago that was.
  void SetAnswered(uint32_t partition, uint32_t number) {
    if (number == 0) return;
    if (partition >= answered_.size()) answered_.resize(partition + 1, newest_ - 2);
    answered_[partition] = number;
  }

 private:
  uint32_t newest_ = 0;
  uint32_t readings_ = 0;
  std::array<uint64_t, kSteps> steps_ = {};  // of the newest lookups
  std::array<bool, kSteps> ended_ = {true, true, true, true, true, true, true, true};
  Vector<uint32_t> waiting_;   // lookups, by number
  Vector<uint32_t> answered_;  // by partition; empty until one was asked what has moved
};

}  // namespace het
