#include "tests/testing/world/stream.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tests/testing/sums_exchange.h"

namespace het::testing {
namespace {

// Each step of a stream has a key of its own, at all workers, and batches that are not planned have another
// one: a batch is recognised by its ids.
constexpr Key kOtherKey = 99;
Key KeyOfStep(uint64_t pass, size_t step) { return 100 + static_cast<Key>((pass * 64 + step) % 1009); }

}  // namespace

Stream::Stream(World* world)
    : world_(world), planned_(world->config().workers), told_(world->config().workers) {}

bool Stream::exact() const {
  return world_->config().cache.pull_bound.most == 0 && world_->config().cache.push_bound.most == 0;
}

void Stream::Expect(const Status& status) {
  if (!status.ok() && error_.empty()) error_ = status.message();
}

std::vector<uint32_t> Stream::Order() {
  std::vector<uint32_t> order(workers());
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[world_->random().Below(i)]);
  return order;
}

KeysOfTables Stream::RandomKeys(Key own) {
  Random& r = world_->random();
  KeysOfTables keys(world_->config().tables);
  keys[0].push_back(own);
  for (auto& of_table : keys) {
    for (uint64_t n = r.Below(7); n > 0; --n) {
      const Key key = r.Between(-2, 9);
      if (std::find(of_table.begin(), of_table.end(), key) == of_table.end()) of_table.push_back(key);
    }
  }
  return world_->process(0)->KeysOf(*world_->NewStep(keys));
}

void Stream::AddUntil(size_t step) {
  while (first_ + steps_.size() <= step) {
    steps_.emplace_back(workers());
    const Key own = KeyOfStep(pass_, first_ + steps_.size());
    for (Batch& batch : steps_.back()) batch.keys = RandomKeys(own);
  }
}

void Stream::PlanUntil(size_t w, size_t step) {
  if (end_ != 0) step = std::min(step, end_ - 1);
  AddUntil(step);
  for (; planned_[w] <= step; ++planned_[w]) {
    const std::vector<Batch>& batches = steps_[planned_[w] - first_];
    std::vector<KeysOfTables> all;
    for (const Batch& batch : batches) all.push_back(batch.keys);
    Expect(world_->process(w)->Plan(batches[w].keys, on_demand() ? &all : nullptr,
                                    (pass_ << 40) + planned_[w] + 1, static_cast<uint32_t>(w),
                                    world_->config().summed));
  }
  if (end_ != 0 && planned_[w] == end_ && !told_[w] && world_->random().Chance(0.7)) {
    told_[w] = true;
    world_->process(w)->EndPass((pass_ << 40) + end_);
  }
}

void Stream::NewPass() {
  steps_.clear();
  first_ = step_ = end_ = 0;
  std::fill(planned_.begin(), planned_.end(), 0);
  std::fill(told_.begin(), told_.end(), false);
  ++pass_;
  left_ = true;
}

// The loop over the pass has ended: its iterators have told all workers.
void Stream::EndPass(bool applied) {
  for (size_t w = 0; w < workers(); ++w) {
    if (!told_[w]) world_->process(w)->EndPass((pass_ << 40) + end_);
  }
  NewPass();
  if (applied) open_ = left_ = false;
}

void Stream::Check(size_t w, TestStep* step) { world_->CheckLockStep(w, step, exact()); }

bool Stream::Served(const Status& status, bool may_refuse, const char* what) {
  if (status.ok()) return true;
  if (may_refuse && status.code() == Code::kFailedPrecondition) return false;
  Expect(Status(status.code(), std::string(what) + " was refused: " + status.message()));
  return false;
}

bool Stream::LookUp(std::vector<Batch>* batches, bool may_refuse) {
  uint32_t served = 0;
  for (uint32_t w : Order()) {
    Batch& batch = (*batches)[w];
    batch.step = world_->NewStep(batch.keys);
    if (!Served(world_->process(w)->Lookup(batch.step.get(), true), may_refuse, "a lookup")) continue;
    Check(w, batch.step.get());
    ++served;
  }
  if (served != 0 && served != workers()) {
    Expect(Status(Code::kInternal, "a lookup was refused at one worker and served at another one"));
  }
  return served != 0;
}

void Stream::Step() {
  Random& r = world_->random();
  for (size_t w = 0; w < workers(); ++w) PlanUntil(w, step_);
  std::vector<Batch>& batches = steps_[step_ - first_];
  if (!LookUp(&batches, holds_back() && left_)) return FlushAll();
  running_ = true;
  left_ = false;
  if (r.Chance(0.1)) Evaluate(r.Below(workers()));
  for (size_t w = 0; w < workers(); ++w) {
    if (r.Chance(0.7)) PlanUntil(w, step_ + 1 + r.Below(4));
  }
  if (!late_.empty() && (on_demand() || r.Chance(0.5))) ApplyLate();
  const bool trained = !r.Chance(0.03);  // else the gradients never come
  const bool kept = trained && keeps() && late_.empty() && r.Chance(0.15);
  if (kept) {
    Leave(&batches);
  } else if (trained) {
    Train(&batches);
  }
  running_ = false;
  open_ = true;
  left_ = !trained;
  ++step_;
  while (first_ < step_) {
    steps_.pop_front();
    ++first_;
  }
  if (end_ != 0 && step_ == end_) trained ? EndPass(/*applied=*/!kept) : NewPass();
}

void Stream::OtherStep() {
  std::vector<Batch> batches(workers());
  for (Batch& batch : batches) batch.keys = RandomKeys(kOtherKey);
  if (!LookUp(&batches, holds_back())) return FlushAll();
  running_ = true;
  if (!late_.empty() && on_demand()) ApplyLate();
  Train(&batches);
  running_ = false;
  open_ = left_ = true;
}

void Stream::Train(std::vector<Batch>* batches) {
  for (size_t w = 0; w < workers(); ++w) world_->FillGradients(w, (*batches)[w].step.get());
  const bool halves = keeps() && world_->random().Chance(0.25);
  if (world_->config().summed) {
    TrainSummed(batches, halves);
  } else if (keeps()) {
    for (uint32_t w : Order()) TrainKept(w, &(*batches)[w], halves);
    late_.clear();
  } else {
    const bool active = !world_->random().Chance(0.05);
    for (uint32_t w : Order()) {
      TestStep* const step = (*batches)[w].step.get();
      world_->Written(w, step,
                      [&] { return world_->process(w)->Apply(step, world_->learning_rate(), active); });
    }
  }
}

void Stream::Keep(size_t w, TestStep* step, bool halves, Tickets* tickets) {
  Random& r = world_->random();
  const auto keep = [&](TestStep* part) {
    const float factor = keeps() ? r.Pick(std::vector<float>{1, 1, 0.5f, 4, -2}) : 1;
    Expect(world_->process(w)->Keep(part, static_cast<uint32_t>(w), factor, tickets));
  };
  if (!halves) return keep(step);
  TestStep first = *step, second = *step;
  auto of_second = second.parts().begin();
  for (auto& [where, part] : first.parts()) {
    for (size_t i = 0; i < part.sums.size(); ++i) {
      part.sums[i] = static_cast<float>(r.Between(-3, 3));
      of_second->second.sums[i] -= part.sums[i];
    }
    ++of_second;
  }
  keep(&first);
  keep(&second);
}

void Stream::TrainKept(size_t w, Batch* batch, bool halves) {
  Tickets tickets;
  std::unique_ptr<TestStep> both;
  if (!late_.empty()) both = WithLate(w, batch, &tickets);
  Keep(w, batch->step.get(), halves, &tickets);
  world_->Written(w, both != nullptr ? both.get() : batch->step.get(),
                  [&] { return world_->process(w)->ApplyKept(tickets, world_->learning_rate()); });
}

void Stream::Leave(std::vector<Batch>* batches) {
  const bool late = !world_->config().summed && world_->random().Chance(0.7);
  late_tickets_.assign(workers(), {});
  for (uint32_t w : Order()) {
    TestStep* const step = (*batches)[w].step.get();
    world_->FillGradients(w, step);
    Keep(w, step, false, &late_tickets_[w]);
  }
  if (late) late_ = std::move(*batches);
}

void Stream::ApplyLate() {
  // Others have read the rows without these updates.
  const bool refused = on_demand() && workers() > 1;
  for (uint32_t w : Order()) {
    const auto apply = [&] {
      const Status status = world_->process(w)->ApplyKept(late_tickets_[w], world_->learning_rate());
      if (refused && status.code() != Code::kFailedPrecondition) {
        Expect(Status(Code::kInternal, "a late gradient was not refused: " + status.message()));
      }
      return refused ? Status() : status;
    };
    world_->Written(w, late_[w].step.get(), apply);
  }
  late_.clear();
}

std::unique_ptr<TestStep> Stream::WithLate(size_t w, Batch* batch, Tickets* tickets) {
  *tickets = late_tickets_[w];
  std::map<TableKey, std::vector<float>> sums;
  KeysOfTables keys = late_[w].keys;
  late_[w].step->ForEachSum(
      [&](const TableKey& key, Span<float> g, bool) { sums[key].assign(g.begin(), g.end()); });
  // Both are one tick, and 4 bits hold few of its size.
  const bool int4 = world_->config().cache.wire == RowFormat::kInt4;
  batch->step->ForEachSum([&](const TableKey& key, Span<float> g, bool) {
    std::vector<float>& sum = sums[key];
    if (!sum.empty()) std::fill_n(g.data(), int4 ? g.size() : workers(), 0.0f);
    sum.resize(g.size());
    for (size_t i = 0; i < g.size(); ++i) sum[i] += g[i];
  });
  for (size_t t = 0; t < keys.size(); ++t) {
    for (const Key key : batch->keys[t]) {
      if (std::find(keys[t].begin(), keys[t].end(), key) == keys[t].end()) keys[t].push_back(key);
    }
  }
  std::unique_ptr<TestStep> both = world_->NewStep(keys);
  both->ForEachSum([&](const TableKey& key, Span<float> g, bool) {
    std::copy_n(sums.at(key).data(), g.size(), g.data());
  });
  return both;
}

void Stream::TrainSummed(std::vector<Batch>* batches, bool halves) {
  const uint32_t n = workers();
  SumsExchange exchange(n);
  std::vector<SumsLayout> layouts(n);
  for (uint32_t w = 0; w < n; ++w) {
    GradientSums sums;
    Tickets tickets;
    Keep(w, (*batches)[w].step.get(), halves, &tickets);
    Expect(world_->process(w)->SumKept(tickets, n, &sums, &layouts[w]));
    Expect(exchange.Send(w, sums, layouts[w].signature));
  }
  for (uint32_t to : Order()) {
    MergedSums merged;
    Expect(exchange.Merge(to, layouts[to], &merged));
    TestStep owned = world_->CountAsOwn(to, &merged);
    world_->Written(to, &owned, [&] {
      return world_->process(to)->ApplySums(layouts[to], merged, world_->learning_rate());
    });
  }
}

void Stream::Evaluate(size_t w) {
  std::unique_ptr<TestStep> step = world_->NewStep(RandomKeys(kOtherKey));
  // While workers hold back updates it is refused, or else it has all of them.
  if (Served(world_->process(w)->Lookup(step.get(), false), holds_back(), "a read for evaluation")) {
    Check(w, step.get());
  }
}

void Stream::FlushOne(size_t w) { Expect(world_->process(w)->caches().Flush()); }

void Stream::FlushAll() {
  for (size_t w = 0; w < workers(); ++w) FlushOne(w);
  for (size_t w = 0; w < workers(); ++w) world_->process(w)->Settle();
  open_ = false;
}

void Stream::Do() {
  Random& r = world_->random();
  const size_t w = r.Below(workers());
  const uint64_t what = r.Below(100);
  if (what < 62) {
    Step();
  } else if (what < 72) {
    Evaluate(w);
  } else if (what < 76) {
    NewPass();
  } else if (what < 80) {
    if (end_ == 0) end_ = std::max(step_ + 1, *std::max_element(planned_.begin(), planned_.end()));
  } else if (what < 84) {
    OtherStep();
  } else if (what < 88) {
    FlushOne(w);
  } else if (what < 93) {
    FlushAll();
  } else {
    world_->process(w)->client().Progress(0);
  }
  if (world_->config().cache.wire != RowFormat::kInt4 || !error_.empty()) return;
  // 4 bits hold integers up to 7.
  for (size_t v = 0; v < workers(); ++v) {
    if (world_->MostUnapplied(v) > 4) FlushOne(v);
  }
}

}  // namespace het::testing
