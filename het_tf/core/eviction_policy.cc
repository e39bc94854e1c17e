#include "het_tf/core/eviction_policy.h"

#include <algorithm>

namespace het {

void LineLists::PushFront(size_t list, uint32_t line) {
  List& l = lists_[list];
  links_[line] = Link{kNone, l.front};
  (l.front == kNone ? l.back : links_[l.front].before) = line;
  l.front = line;
}

void LineLists::Remove(size_t list, uint32_t line) {
  List& l = lists_[list];
  const Link link = links_[line];
  (link.before == kNone ? l.front : links_[link.before].after) = link.after;
  (link.after == kNone ? l.back : links_[link.after].before) = link.before;
}

void LineLists::Append(size_t to, size_t from) {
  List& a = lists_[to];
  List& b = lists_[from];
  if (b.front == kNone) return;
  if (a.back == kNone) {
    a.front = b.front;
  } else {
    links_[a.back].after = b.front;
    links_[b.front].before = a.back;
  }
  a.back = b.back;
  b = List();
}

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

// List f holds the lines that were touched f + 1 times, counted up to `cap`.
class Frequency : public EvictionPolicy {
 public:
  Frequency(uint8_t cap, size_t capacity)
      : EvictionPolicy(cap), age_every_(8 * std::max<size_t>(capacity, 64)) {}

  void Insert(uint32_t line) override {
    lists_.Reserve(line);
    if (line >= frequency_.size()) frequency_.resize(line + line / 2 + 16);
    frequency_[line] = 0;
    lists_.PushFront(0, line);
    Count();
  }
  void Touch(uint32_t line) override {
    uint8_t& f = frequency_[line];
    if (f + 1u < list_count_) {
      lists_.Remove(f, line);
      lists_.PushFront(++f, line);
    }
    Count();
  }
  void Erase(uint32_t line) override { lists_.Remove(frequency_[line], line); }

 private:
  void Count() {
    if (++touches_ < age_every_) return;
    touches_ = 0;
    // List f becomes part of list f / 2; lists of lower frequency come to stand nearer the back.
    for (size_t f = 1; f < list_count_; ++f) {
      for (uint32_t line = lists_.back(f); line != LineLists::kNone; line = lists_.before(line)) {
        frequency_[line] = static_cast<uint8_t>(f / 2);
      }
      MoveBefore(f / 2, f);
    }
  }
  // All of `from` goes in front of the lines of `to`.
  void MoveBefore(size_t to, size_t from) {
    lists_.Append(from, to);
    lists_.Append(to, from);
  }

  const size_t age_every_;
  size_t touches_ = 0;
  Vector<uint8_t> frequency_;
};

}  // namespace

Status CheckPolicyName(const std::string& name) {
  if (name == "lru" || name == "lfu" || name == "light_lfu") return Status();
  return InvalidArgument("policy '" + name + "' is unknown; choose 'lru', 'lfu' or 'light_lfu'");
}

Result<std::unique_ptr<EvictionPolicy>> EvictionPolicy::Create(const std::string& name, size_t capacity) {
  HET_RETURN_IF_ERROR(CheckPolicyName(name));
  std::unique_ptr<EvictionPolicy> policy;
  if (name == "lru") policy = std::make_unique<Lru>();
  if (name == "lfu") policy = std::make_unique<Frequency>(uint8_t{255}, capacity);
  if (name == "light_lfu") policy = std::make_unique<Frequency>(uint8_t{8}, capacity);
  return policy;
}

}  // namespace het
