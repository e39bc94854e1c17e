#include "tests/cpp/testing/world/stream.h"

#include <algorithm>
#include <numeric>
#include <utility>

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
void Stream::EndPass() {
  for (size_t w = 0; w < workers(); ++w) {
    if (!told_[w]) world_->process(w)->EndPass((pass_ << 40) + end_);
  }
  NewPass();
  open_ = left_ = false;
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
  const bool trained = !r.Chance(0.03);  // else the gradients never come
  if (trained) Train(&batches);
  running_ = false;
  open_ = true;
  left_ = !trained;
  ++step_;
  while (first_ < step_) {
    steps_.pop_front();
    ++first_;
  }
  if (end_ != 0 && step_ == end_) trained ? EndPass() : NewPass();
}

void Stream::OtherStep() {
  std::vector<Batch> batches(workers());
  for (Batch& batch : batches) batch.keys = RandomKeys(kOtherKey);
  if (!LookUp(&batches, holds_back())) return FlushAll();
  running_ = true;
  Train(&batches);
  running_ = false;
  open_ = left_ = true;
}

void Stream::Train(std::vector<Batch>* batches) {
  for (size_t w = 0; w < workers(); ++w) world_->FillGradients(w, (*batches)[w].step.get());
  if (world_->config().summed) {
    TrainSummed(batches);
  } else {
    const bool active = !world_->random().Chance(0.05);
    for (uint32_t w : Order()) {
      TestStep* const step = (*batches)[w].step.get();
      world_->Written(w, *step,
                      [&] { return world_->process(w)->Apply(step, world_->learning_rate(), active); });
    }
  }
}

void Stream::TrainSummed(std::vector<Batch>* batches) {
  const uint32_t n = workers();
  std::vector<Bytes> sent(n);
  std::vector<Vector<int32_t>> splits(n);
  for (uint32_t w = 0; w < n; ++w) {
    GradientSums sums;
    Expect(world_->process(w)->SumGradients((*batches)[w].step.get(), n, &sums));
    Expect(PackSums(Status(), sums, StreamWorker::kLayer, n, &sent[w], &splits[w]));
  }
  for (uint32_t to : Order()) {
    Bytes bytes;
    Vector<int32_t> lengths;
    for (uint32_t from = 0; from < n; ++from) {
      const auto begin = std::accumulate(splits[from].begin(), splits[from].begin() + to, std::ptrdiff_t{0});
      bytes.insert(bytes.end(), sent[from].begin() + begin, sent[from].begin() + begin + splits[from][to]);
      lengths.push_back(splits[from][to]);
    }
    MergedSums merged;
    Expect(MergeSums(world_->process(to)->layout(), {bytes.data(), bytes.size()},
                     {lengths.data(), lengths.size()}, &merged));
    const TestStep owned = world_->CountAsOwn(to, &merged);
    world_->Written(to, owned,
                    [&] { return world_->process(to)->ApplySums(merged, world_->learning_rate()); });
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
