// The expected rows of a table, computed from the tester's own inputs and outputs, so that it detects errors
// of either library. Counts ticks for every table, and values if all numbers are whole (SGD).
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace het::device_check {

struct Held {
  uint32_t ticks = 0;          // own, not exported
  int64_t base = 0;            // clock of the last answer, and ticks exported since
  std::vector<float> own;      // change of the value by all own ticks of the worker that were not discarded
  std::vector<float> unsent;   // change of the value by own ticks that were not exported
  std::vector<float> foreign;  // change by others, at the store now
  std::vector<float> seen;     // change by others, as of the last answer
};

class Ledger {
 public:
  explicit Ledger(uint32_t dim) : dim_(dim) {}

  Held& At(int64_t key) {
    Held& held = held_[key];
    if (held.own.empty()) {
      for (auto* part : {&held.own, &held.unsent, &held.foreign, &held.seen}) part->assign(dim_, 0.0f);
    }
    return held;
  }
  void Answered(int64_t key) {
    Held& held = At(key);
    held.seen = held.foreign;
  }
  void Ticked(int64_t key, const float* change) {
    Held& held = At(key);
    ++held.ticks;
    for (uint32_t i = 0; i < dim_; ++i) {
      held.own[i] += change[i];
      held.unsent[i] += change[i];
    }
  }
  // The row's update was exported.
  void Gone(int64_t key) {
    Held& held = At(key);
    held.base += held.ticks;
    held.ticks = 0;
    held.unsent.assign(dim_, 0.0f);
  }
  // The row's update was discarded. Returns its ticks.
  uint64_t Discarded(int64_t key) {
    Held& held = At(key);
    const uint64_t ticks = held.ticks;
    for (uint32_t i = 0; i < dim_; ++i) held.own[i] -= held.unsent[i];
    Gone(key);
    return ticks;
  }
  // The store's row is an initial one again.
  void Removed(int64_t key) {
    Held& held = At(key);
    for (auto* part : {&held.own, &held.unsent, &held.foreign, &held.seen}) part->assign(dim_, 0.0f);
    held.ticks = 0;
  }
  uint64_t Dirty() const {
    uint64_t n = 0;
    for (const auto& [key, held] : held_) n += held.ticks > 0;
    return n;
  }
  std::vector<int64_t> DirtyKeys() const {
    std::vector<int64_t> keys;
    for (const auto& [key, held] : held_) {
      if (held.ticks > 0) keys.push_back(key);
    }
    return keys;
  }

 private:
  uint32_t dim_;
  std::unordered_map<int64_t, Held> held_;
};

}  // namespace het::device_check
