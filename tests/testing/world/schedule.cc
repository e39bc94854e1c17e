#include "tests/testing/world/schedule.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace het::testing {

Schedule::Schedule(const WorldConfig& config)
    : world_(config), operator_(&world_), open_(config.workers), coming_(config.workers) {
  if (config.stream != StreamMode::kNone) stream_ = std::make_unique<Stream>(&world_);
}

Schedule::~Schedule() = default;

std::string Schedule::Run(int steps) {
  for (int i = 0; i < steps && world_.errors().empty() && error_.empty(); ++i) {
    OneStep();
    world_.CheckConservation();
  }
  if (stream_ != nullptr && world_.errors().empty() && error_.empty()) stream_->FlushAll();
  if (stream_ != nullptr && error_.empty()) error_ = stream_->error();
  if (world_.errors().empty() && error_.empty()) {
    Expect(world_.Drain());
    world_.CheckConservation();
    if (!Lost()) world_.CheckDrained();
    world_.CheckCounters();
  }
  if (!error_.empty()) return error_ + "\n  in a world of " + world_.config().ToString();
  return world_.FirstError();
}

void Schedule::Expect(const Status& status) {
  if (!status.ok() && error_.empty()) error_ = status.message();
}

std::unique_ptr<TestStep> Schedule::NextStep(size_t w) {
  if (coming_[w].empty() || !world_.random().Chance(0.8)) return NewStep();
  std::unique_ptr<TestStep> step = std::move(coming_[w].front());
  coming_[w].pop_front();
  return step;
}

std::unique_ptr<TestStep> Schedule::NewStep() {
  Random& r = world_.random();
  std::vector<std::vector<Key>> keys(world_.config().tables);
  const bool many = world_.config().many_keys;
  for (auto& of_table : keys) {
    for (uint64_t n = r.Below(many ? 40 : 7); n > 0; --n) of_table.push_back(r.Between(-2, many ? 90 : 9));
  }
  return world_.NewStep(keys);
}

void Schedule::BeginEarly(size_t w) {
  Random& r = world_.random();
  const auto p = static_cast<uint32_t>(r.Below(world_.service().partitions()));
  if (r.Chance(0.3)) world_.transport(w).HoldRepliesFor(p, r.Unit());
  coming_[w].push_back(NewStep());
  world_.ReadEarly(w, coming_[w].back().get());
  if (!r.Chance(0.1)) return;
  world_.EndLookup(w, coming_[w].back().get());
  coming_[w].pop_back();
}

void Schedule::Overlap(size_t w) {
  Random& r = world_.random();
  Client& client = world_.client(w);
  struct Flight {
    std::unique_ptr<TestStep> step;
    std::unique_ptr<ReadOp> op;
  };
  std::vector<Flight> flights;
  for (uint64_t n = 1 + r.Below(3); n > 0; --n) {
    Flight flight{NewStep(), nullptr};
    flight.op = world_.BeginRead(w, flight.step.get(), r.Chance(0.7));
    if (r.Chance(0.7)) client.Progress(0);
    flights.push_back(std::move(flight));
    if (r.Chance(0.3)) {
      const auto p = static_cast<uint32_t>(r.Below(world_.service().partitions()));
      world_.transport(w).HoldRepliesFor(p, r.Unit());
    }
    if (r.Chance(0.2)) {  // a step that ends before the others have their rows
      auto step = NextStep(w);
      Expect(world_.Read(w, step.get()));
      Expect(world_.Write(w, step.get()));
    }
    for (uint64_t writes = r.Below(3); writes > 0 && !open_[w].empty(); --writes) {
      Expect(world_.Write(w, open_[w].back().get()));
      open_[w].pop_back();
    }
  }
  for (Flight& flight : flights) {
    for (int i = 0; i < 10000 && !flight.op->done(); ++i) client.Progress(0.05);
    Expect(world_.FinishRead(w, flight.op.get(), flight.step.get()));
    if (flight.step->token != 0) open_[w].push_back(std::move(flight.step));
  }
}

void Schedule::Wait(size_t w) {
  world_.transport(w).Sleep(2 * world_.random().Unit() * *world_.config().cache.push_max_age);
  world_.client(w).Progress(0);
  world_.CheckAges(w);
}

void Schedule::OneStep() {
  Random& r = world_.random();
  const size_t w = r.Below(open_.size());
  auto& open = open_[w];
  if (world_.config().operators != Operators::kNone && r.Chance(0.08)) {
    if (stream_ != nullptr && stream_->holds_back()) stream_->FlushAll();
    return operator_.Do();
  }
  if (stream_ != nullptr) {
    if (world_.config().cache.push_max_age && r.Chance(0.1)) Wait(w);
    if (world_.config().failovers && r.Chance(0.1)) return Fail();
    stream_->Do();
    if (error_.empty()) error_ = stream_->error();
    return;
  }
  if (world_.config().early && world_.device(w) == nullptr && r.Chance(0.3)) return BeginEarly(w);
  if (world_.config().cache.push_max_age && world_.device(w) == nullptr && r.Chance(0.2)) Wait(w);
  const uint64_t what = r.Below(21);
  if (what < 8) {  // a whole step
    auto step = NextStep(w);
    const Status read = world_.Read(w, step.get());
    Expect(read);
    if (read.ok()) Expect(world_.Write(w, step.get()));
  } else if (what < 12) {  // a lookup whose gradient comes later, or never
    auto step = NextStep(w);
    Expect(world_.Read(w, step.get()));
    open.push_back(std::move(step));
    if (open.size() > 12) open.pop_front();
  } else if (what < 16 && !open.empty()) {
    const size_t which = r.Below(open.size());
    Expect(world_.Write(w, open[which].get()));
    open.erase(open.begin() + static_cast<ptrdiff_t>(which));
  } else if (what < 17) {
    auto step = NewStep();
    Expect(world_.Read(w, step.get(), false));
  } else if (what < 18) {
    Expect(world_.Flush(w));
  } else if (what < 19) {
    Overlap(w);
  } else if (world_.config().failovers) {
    Fail();
  }
}

void Schedule::Fail() {
  Random& r = world_.random();
  const auto p = static_cast<uint32_t>(r.Below(world_.service().partitions()));
  const uint64_t fate = r.Below(4);
  const ClientConfig& client = world_.config().client;
  // The oracle does not know older states of replaced tables, nor kept frames from before a load, which a
  // client sends to a new incarnation until it learns that they were replaced.
  if (world_.config().operators == Operators::kTables && (world_.keeps() || fate == 0 || fate == 3)) return;
  if (client.durability == Durability::kReplicated && fate != 1 && fate != 2) {
    // With little room for kept frames a write would wait for the replica.
    if (fate == 0) world_.replica_stands_still = !world_.replica_stands_still && client.keep_bytes > 2000;
    if (fate == 3) world_.Promote(p);
  } else {
    if (fate == 0) snapshots_[p] = world_.Snapshot(p);
    if (fate == 1) world_.Restart(p, world_.Snapshot(p));
    if (fate == 2) world_.Restart(p, world_.Snapshot(p), false);
    if (fate == 3 && snapshots_.count(p) != 0) world_.Restart(p, snapshots_[p]);
  }
  // An older state has rows past their limits, which a push would sweep.
  if (world_.config().operators == Operators::kRows) operator_.Sweep(0);
}

}  // namespace het::testing
