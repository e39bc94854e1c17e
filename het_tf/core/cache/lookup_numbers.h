// Numbers of the training lookups of one table, and the facts about lines and partitions that use them.
//
// A step has a number, the token of its lookup (engine/step_store.h). Several lookups, of several layers, may
// make one step of a model, so a table counts its own lookups: the next training lookup of the table gets the
// next number when it begins. A line has one such number:
//
//   held until   the line stays until a lookup with a higher number has begun. The newest lookup that used
//                the line is kSteps - 1 below: while that lookup, or an earlier one, waits for rows, the line
//                stays, too
//
// And a partition has one:
//
//   answered     the lookup in which the client asked for the newest notifications of the partition
//                (client/subscriptions.h). The next lookup may trust rows that these do not name
//
// For example, lookup 10 holds its rows until 17: they stay until their gradient is applied, or until lookup
// 10 is no longer among the newest eight.
//
// Numbers wrap around. None is more than kFarthest ahead, so a number that is farther away has passed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "het_tf/core/base/alloc.h"

namespace het {

class LookupNumbers {
 public:
  static constexpr uint64_t kNoStep = ~uint64_t{0};  // the number of no lookup
  static constexpr uint32_t kSteps = 8;              // steps that keep their rows
  static constexpr uint32_t kFarthest = kSteps;      // limit on the end of a hold, ahead of the newest

  // Begins the lookup of a step on the table. All calls for one step must be consecutive.
  void Begin(uint64_t step) {
    if (steps_[newest_ % kSteps] == step) return;
    steps_[++newest_ % kSteps] = step;
    ended_[newest_ % kSteps] = false;
  }
  // The gradient of the step has come: its lookup holds no rows any longer.
  void End(uint64_t step) {
    for (uint32_t i = 0; i < kSteps; ++i) ended_[i] = ended_[i] || steps_[i] == step;
  }
  // Returns the number until which the lookup of this step holds its rows.
  uint32_t HeldBy(uint64_t step) const {
    uint32_t number = newest_;
    for (uint32_t i = 0; i < kSteps; ++i, --number) {
      if (steps_[number % kSteps] == step) return number + kSteps - 1;
    }
    return passed();
  }
  // The same; for an unknown step farthest(), which is longer than any known step can hold.
  uint32_t Until(uint64_t step) const {
    const uint32_t known = HeldBy(step);
    return known == passed() ? farthest() : known;
  }
  uint32_t newest() const { return newest_; }
  uint32_t farthest() const { return newest_ + kFarthest; }
  uint32_t passed() const { return newest_ - 1; }
  // Returns how many numbers there are from the newest through this one; 0: it has passed.
  uint32_t Left(uint32_t number) const {
    const uint32_t left = number - newest_ + 1;
    return left <= kFarthest + 1 ? left : 0;
  }

  // During a read without training every line is held.
  void BeginReading() { ++readings_; }
  void EndReading() { --readings_; }
  // Begins a step's wait for rows; returns its number, for EndWaiting. Throws std::bad_alloc.
  uint32_t BeginWaiting(uint64_t step) {
    const uint32_t held_by = HeldBy(step);
    const uint32_t number = held_by == passed() ? newest_ : held_by - (kSteps - 1);
    waiting_.push_back(number);
    return number;
  }
  void EndWaiting(uint32_t number) { waiting_.erase(std::find(waiting_.begin(), waiting_.end(), number)); }

  // Whether a line that is held until this number is held now. A lookup holds until kSteps - 1 past itself.
  bool Holds(uint32_t until) const {
    const uint32_t left = Left(until);
    return readings_ > 0 || left > kSteps || (left > 0 && !ended_[(until + 1) % kSteps]) ||
           std::any_of(waiting_.begin(), waiting_.end(), [used = until - (kSteps - 1)](uint32_t number) {
             return static_cast<int32_t>(used - number) >= 0;
           });
  }

  // Whether the partition was asked during the newest lookup or the one before, and has answered.
  bool answered(uint32_t partition) const {
    return partition < answered_.size() && newest_ - answered_[partition] <= 1;
  }
  // Throws std::bad_alloc. Ignores 0, which is before the first lookup.
  void SetAnswered(uint32_t partition, uint32_t number) {
    if (number == 0) return;
    if (partition >= answered_.size()) answered_.resize(partition + 1, newest_ - 2);
    answered_[partition] = number;
  }

 private:
  uint32_t newest_ = 0;
  uint32_t readings_ = 0;
  std::array<uint64_t, kSteps> steps_ = {};  // steps of the newest lookups
  std::array<bool, kSteps> ended_ = {true, true, true, true, true, true, true, true};
  Vector<uint32_t> waiting_;   // waiting lookups, by number
  Vector<uint32_t> answered_;  // by partition; empty before the first request for notifications
};

}  // namespace het
