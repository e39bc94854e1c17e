#include "het_tf/ext/streams/cc/location.h"

#include <algorithm>
#include <numeric>
#include <string>

namespace het {
namespace {

constexpr uint32_t kUserBits = 16, kUserMask = (1u << kUserBits) - 1;

size_t SlotOf(uint64_t key) { return key / (UINT64_MAX / Location::kSlots + 1); }
uint32_t TagOf(uint64_t key) { return static_cast<uint32_t>(key) << kUserBits; }
bool Has(uint32_t slot, uint64_t key) { return (slot & ~kUserMask) == TagOf(key); }

// Two passes: a key's other users are known only after all of its uses.
void Remember(Span<const uint64_t> keys, Span<const int64_t> owners, Span<uint32_t> slots) {
  const size_t width = keys.size() / owners.size();
  const auto slot_with = [&](size_t at) {
    return TagOf(keys[at]) | static_cast<uint32_t>(owners[at / width] + 1);
  };
  for (size_t at = 0; at < keys.size(); ++at) {
    if (keys[at] != Location::kNoKey) slots[SlotOf(keys[at])] = slot_with(at);
  }
  for (size_t at = 0; at < keys.size(); ++at) {
    uint32_t& slot = slots[SlotOf(keys[at])];
    if (Has(slot, keys[at]) && slot != slot_with(at)) slot = TagOf(keys[at]);
  }
}

}  // namespace

Location::Location(size_t workers, size_t batch)
    : workers_(workers),
      batch_(batch),
      scores_(workers * workers * batch),
      regrets_(workers * batch),
      order_(workers * batch) {}

Status Location::Place(uint64_t number, Span<const uint64_t> keys, Span<uint32_t> slots,
                       Span<int64_t> owners) {
  const size_t samples = workers_ * batch_;
  if (owners.size() != samples || keys.size() % samples != 0) {
    return InvalidArgument("there are " + std::to_string(keys.size()) + " keys of " +
                           std::to_string(owners.size()) + " samples; " + std::to_string(workers_) +
                           " workers of " + std::to_string(batch_) + " take " + std::to_string(samples) +
                           " samples with equally many keys");
  }
  if (slots.size() != kSlots || workers_ > kMostWorkers) {
    return InvalidArgument("there are " + std::to_string(slots.size()) + " slots and " +
                           std::to_string(workers_) + " workers; give " + std::to_string(kSlots) +
                           " slots and at most " + std::to_string(kMostWorkers) + " workers");
  }
  Score(keys, slots);
  SortByRegret();
  Assign(number, owners);
  Remember(keys, {owners.data(), samples}, slots);
  return Status();
}

void Location::Score(Span<const uint64_t> keys, Span<const uint32_t> slots) {
  std::fill(scores_.begin(), scores_.end(), 0);
  const size_t width = keys.size() / regrets_.size();
  for (size_t i = 0; i < regrets_.size(); ++i) {
    uint32_t* scores = &scores_[i * workers_];
    for (const uint64_t key : keys.subspan(i * width, width)) {
      const uint32_t slot = slots[SlotOf(key)], user = slot & kUserMask;
      if (user != 0 && key != kNoKey && Has(slot, key)) ++scores[user - 1];
    }
    uint32_t best = 0, second = 0;
    for (size_t w = 0; w < workers_; ++w) {
      second = std::max(second, std::min(best, scores[w]));
      best = std::max(best, scores[w]);
    }
    regrets_[i] = best - second;
  }
}

void Location::SortByRegret() {
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(),
                   [&](uint32_t a, uint32_t b) { return regrets_[a] > regrets_[b]; });
}

void Location::Assign(uint64_t number, Span<int64_t> owners) {
  Vector<size_t> load(workers_, 0);
  for (const uint32_t i : order_) {
    size_t owner = workers_;
    for (size_t turn = 0; turn < workers_; ++turn) {
      const size_t w = (number + turn) % workers_;
      const uint32_t* scores = &scores_[i * workers_];
      if (load[w] < batch_ && (owner == workers_ || scores[w] > scores[owner])) owner = w;
    }
    ++load[owner];
    owners[i] = static_cast<int64_t>(owner);
  }
}

}  // namespace het
