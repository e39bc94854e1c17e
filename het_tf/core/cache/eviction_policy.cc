#include "het_tf/core/cache/eviction_policy.h"

#include "het_tf/core/cache/hit_watch.h"

namespace het {
namespace {

class Lru : public EvictionPolicy {
 public:
  Lru() : EvictionPolicy(1) {}
  void Insert(uint32_t line) override {
    lists_.Reserve(line);
    lists_.PushFront(0, line);
  }
  void Touch(uint32_t line) override {
    lists_.Remove(0, line);
    lists_.PushFront(0, line);
  }
  void Erase(uint32_t line) override { lists_.Remove(0, line); }
};

// List f holds the lines that were touched f + 1 times, counted up to kRanks.
class Frequency : public EvictionPolicy {
 public:
  explicit Frequency(size_t capacity)
      : EvictionPolicy(kRanks), age_every_(AgeEvery(capacity)), watch_(capacity) {}

  void Insert(uint32_t line) override {
    lists_.Reserve(line);
    if (line >= frequency_.size()) frequency_.resize(line + line / 2 + 16);
    frequency_[line] = 0;
    lists_.PushFront(0, line);
    Count(false);
  }
  void Touch(uint32_t line) override {
    uint8_t& f = frequency_[line];
    if (f + 1u < list_count_) {
      lists_.Remove(f, line);
      lists_.PushFront(++f, line);
    }
    Count(true);
  }
  void Erase(uint32_t line) override { lists_.Remove(frequency_[line], line); }
  void SetCapacity(size_t capacity) override {
    age_every_ = AgeEvery(capacity);
    watch_.SetCapacity(capacity);
  }

 private:
  static size_t AgeEvery(size_t capacity) { return 12 * std::max<size_t>(capacity, 64); }
  void Count(bool hit) {
    ++touches_;
    if (watch_.Count(hit)) {
      Age(4);
    } else if (touches_ >= age_every_) {
      Age(2);
    }
  }
  // List f becomes part of list f / by; lists of lower frequency come to stand nearer the back.
  void Age(size_t by) {
    touches_ = 0;
    for (size_t f = 1; f < list_count_; ++f) {
      for (uint32_t line = lists_.back(f); line != LineLists::kNone; line = lists_.before(line)) {
        frequency_[line] = static_cast<uint8_t>(f / by);
      }
      MoveBefore(f / by, f);
    }
  }
  // All of `from` goes in front of the lines of `to`.
  void MoveBefore(size_t to, size_t from) {
    lists_.Append(from, to);
    lists_.Append(to, from);
  }

  size_t age_every_;
  HitWatch watch_;
  size_t touches_ = 0;
  Vector<uint8_t> frequency_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> EvictionPolicy::Create(Policy policy, size_t capacity) {
  if (policy == Policy::kLru) return std::make_unique<Lru>();
  return std::make_unique<Frequency>(capacity);
}

}  // namespace het
