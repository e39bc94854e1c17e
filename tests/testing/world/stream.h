// The steps of a world whose workers read one stream, in lock-step: planned lookups, rows on demand,
// gradients that are summed over the workers. With reads for evaluation, streams that are left, steps without
// a gradient, and flushes of one worker or of all.
//
// It knows which calls must be refused: while workers may hold back updates, all but the next batch of the
// stream. All workers must agree on it, and a refused call must change nothing.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tests/testing/world/world.h"

namespace het::testing {

class Stream {
 public:
  explicit Stream(World* world);

  // A step of all workers, or what else such a job does.
  void Do();
  // Flushes all workers, so that any call may follow.
  void FlushAll();

  const std::string& error() const { return error_; }
  // Whether workers may hold back updates that another read than the next step's would need: the product
  // refuses to change tables.
  bool holds_back() const { return on_demand() && workers() > 1 && (open_ || running_); }

 private:
  struct Batch {
    KeysOfTables keys;
    std::unique_ptr<TestStep> step;
  };

  uint32_t workers() const { return world_->config().workers; }
  bool on_demand() const { return world_->config().stream == StreamMode::kOnDemand; }
  bool exact() const;
  bool keeps() const { return world_->config().kept; }
  // With this key of the first table, and random ones.
  KeysOfTables RandomKeys(Key own);
  // Adds batches of all workers until the step of this number is there.
  void AddUntil(size_t step);
  void PlanUntil(size_t w, size_t step);
  // The stream is left: others are read.
  void NewPass();
  // `applied`: so was the gradient of the last step.
  void EndPass(bool applied);
  void Step();
  // A training step of batches that nobody has planned.
  void OtherStep();
  // Returns whether the lookups of all workers were served, and not those of all refused, as they may be.
  bool LookUp(std::vector<Batch>* batches, bool may_refuse);
  void Train(std::vector<Batch>* batches);
  void TrainSummed(std::vector<Batch>* batches, bool halves);
  void TrainKept(size_t w, Batch* batch, bool halves);
  // Keeps the gradient of a step with some factor, or as two gradients that are applied together.
  void Keep(size_t w, TestStep* step, bool halves, Tickets* tickets);
  // Keeps the gradients of a step that nobody applies, or only after the next lookup.
  void Leave(std::vector<Batch>* batches);
  // Applies what Leave has left, before the gradients of this step.
  void ApplyLate();
  // Adds what Leave has left to the gradients of a step, which are applied with it. Returns a step with both.
  std::unique_ptr<TestStep> WithLate(size_t w, Batch* batch, Tickets* tickets);
  void Evaluate(size_t w);
  void FlushOne(size_t w);
  void Check(size_t w, TestStep* step);
  bool Served(const Status& status, bool may_refuse, const char* what);
  void Expect(const Status& status);
  std::vector<uint32_t> Order();

  World* const world_;
  std::deque<std::vector<Batch>> steps_;  // of the pass, from first_ on
  size_t first_ = 0;
  size_t step_ = 0;              // the next step of the pass
  std::vector<size_t> planned_;  // by worker: steps of the pass that were planned
  std::vector<bool> told_;       // by worker: it knows that the pass ends
  size_t end_ = 0;               // steps of the pass; 0: not known
  uint64_t pass_ = 1;
  bool open_ = false;     // a step of the stream has run, and neither its pass has ended nor all were flushed
  bool left_ = false;     // the next step is not the successor of the last one
  bool running_ = false;  // a step without its gradients
  std::vector<Batch> late_;  // by worker: the batch of a kept gradient
  std::vector<Tickets> late_tickets_;
  std::string error_;
};

}  // namespace het::testing
