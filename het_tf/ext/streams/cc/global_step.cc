#include "het_tf/ext/streams/cc/global_step.h"

#include <algorithm>

namespace het {

uint32_t GlobalStep::Users::Count(size_t key) const {
  uint32_t count = 0;
  for (size_t w = 0; w < words; ++w)
    count += static_cast<uint32_t>(__builtin_popcountll(bits[key * words + w]));
  return count;
}

uint32_t GlobalStep::Users::At(size_t key, uint32_t which) const {
  for (uint32_t worker = 0;; ++worker) {
    if (Has(key, worker) && which-- == 0) return worker;
  }
}

GlobalStep::GlobalStep(const Ids& ids, const std::vector<uint64_t>& tables, const PartitionId& store,
                       BatchPlan* scratch)
    : place_(ids.place), worker_(ids.worker) {
  ThreadPool only_this(1);
  scratch->Build(ids.features, {tables.data(), tables.size()}, store, &only_this);
  size_t most = 0;
  for (const BatchPlan::Group& group : scratch->groups()) most += group.uniques;
  keys_.reserve(most);  // spans point into it
  hashes_.reserve(most);
  for (const BatchPlan::Group& group : scratch->groups()) {
    if (group.uniques > 0) Add(ids, tables[group.table], *scratch, group);
  }
}

GlobalStep::Users GlobalStep::UsersOf(const Ids& ids, const BatchPlan& plan,
                                      const BatchPlan::Group& group) const {
  const size_t words = ids.ends[0].size() / 64 + 1;
  Users users{words, Vector<uint64_t>(group.uniques * words)};
  for (size_t e = 0; e < group.entries; ++e) {
    const BatchPlan::Entry& entry = plan.entry(group)[e];
    const Span<const int64_t> ends = ids.ends[entry.feature];
    const auto end = std::upper_bound(ends.begin(), ends.end(), static_cast<int64_t>(entry.index));
    users.Add(plan.inverse(group)[e], static_cast<uint32_t>(end - ends.begin()));
  }
  return users;
}

void GlobalStep::Add(const Ids& ids, uint64_t table, const BatchPlan& plan, const BatchPlan::Group& group) {
  const Users users = UsersOf(ids, plan, group);
  const Key* const keys = plan.keys(group);
  const uint64_t* const hashes = plan.hashes(group);
  const size_t first = keys_.size();
  const auto add = [&](size_t u) {
    keys_.push_back(keys[u]);
    hashes_.push_back(hashes[u]);
  };
  Vector<size_t> updated_here;
  for (size_t u = 0; u < group.uniques; ++u) {
    const uint32_t count = users.Count(u);
    const bool here = users.Has(u, worker_);
    if (count == static_cast<uint32_t>(here)) continue;
    uint32_t owner = worker_ + 1;  // a worker that is not this one
    if (ids.summed && here) {
      owner = users.At(u, static_cast<uint32_t>(hashes[u] >> 32) % count);
      owners_[table].emplace(keys[u], owner);
    }
    if (owner == worker_) {
      updated_here.push_back(u);
    } else {
      add(u);
    }
  }
  const auto span = [&] {
    const size_t count = keys_.size() - first;
    return OthersKeys{table, group.partition, {keys_.data() + first, count}, {hashes_.data() + first, count}};
  };
  if (keys_.size() > first) outdated_.push_back(span());
  for (size_t u : updated_here) add(u);
  if (keys_.size() > first) others_.push_back(span());
}

uint32_t GlobalStep::OwnerOf(uint64_t table, Key key) const {
  const auto owners = owners_.find(table);
  if (owners == owners_.end()) return worker_;
  const auto owner = owners->second.find(key);
  return owner == owners->second.end() ? worker_ : owner->second;
}

}  // namespace het
