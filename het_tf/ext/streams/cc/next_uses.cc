#include "het_tf/ext/streams/cc/next_uses.h"

namespace het {

uint32_t NextUses::Add(const BatchPlan& plan, const std::vector<uint64_t>& tables, Vector<uint32_t>* next) {
  const auto number = static_cast<uint32_t>(first_ + waiting_.size());
  next->assign(plan.entries(), 0);
  size_t keys = 0;
  if (late_.size() > 2 * keys_) late_.clear();  // no caller takes them
  for (const BatchPlan::Group& group : plan.groups()) {
    if (group.uniques == 0) continue;
    const uint64_t table = tables[group.table];
    LastUses& uses = tables_[table];
    for (size_t u = 0; u < group.uniques; ++u) {
      const Key key = plan.keys(group)[u];
      const Use use{number, static_cast<uint32_t>(group.first + u)};
      const auto [last, is_new] = uses.try_emplace(key, use);
      Vector<uint32_t>* const before = is_new ? nullptr : Waiting(last->second.number);
      if (before != nullptr) {
        (*before)[last->second.place] = number;
      } else {
        late_.push_back({table, key, plan.hashes(group)[u], number});
      }
      last->second = use;
    }
    keys += group.uniques;
  }
  waiting_.push_back(next);
  keys_of_.push_back(keys);
  keys_ += keys;
  for (auto& [table, uses] : tables_) Sweep(&uses);
  return number;
}

void NextUses::End(uint32_t number) {
  if (Waiting(number) == nullptr) return;
  waiting_[number - first_] = nullptr;
  for (; !waiting_.empty() && waiting_.front() == nullptr; ++first_) {
    keys_ -= keys_of_.front();
    waiting_.pop_front();
    keys_of_.pop_front();
  }
}

void NextUses::Clear() {
  first_ += static_cast<uint32_t>(waiting_.size());
  waiting_.clear();
  keys_of_.clear();
  keys_ = 0;
  tables_.clear();
  late_.clear();
}

Vector<uint32_t>* NextUses::Waiting(uint32_t number) const {
  const uint32_t at = number - first_;
  return at < waiting_.size() ? waiting_[at] : nullptr;
}

// Removes uses of ended batches when they are as many as the others: constant cost for each use.
void NextUses::Sweep(LastUses* uses) const {
  constexpr size_t kFew = 4096;
  if (uses->size() < 2 * keys_ + kFew) return;
  boost::unordered::erase_if(*uses,
                             [this](const auto& use) { return Waiting(use.second.number) == nullptr; });
}

}  // namespace het
