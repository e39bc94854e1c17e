// What is known of lookups before they come: the port between an engine and a window of planned batches
// (window.h). This class knows nothing, so each lookup is planned when it comes.
//
// Thread-safe. Called without the client, except where a comment says so.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "het_tf/core/engine/step_store.h"
#include "het_tf/core/plan/gradient_sums.h"

namespace het {

class Client;
struct OthersUse;
struct StepCall;

class Lookahead {
 public:
  explicit Lookahead(StepStore* steps) : steps_(steps) {}
  virtual ~Lookahead() = default;

  // --- a step

  // A lookup begins. `training`: a step of its layer, which gets its number, and its plan if there is one.
  // FailedPrecondition: other workers hold back updates of the rows.
  virtual Status Begin(StepCall* call, bool training);
  // The gradient of lookup `number` was taken.
  virtual Status EndLookup(uint64_t /*layer*/, uint64_t /*number*/) { return Status(); }
  // FailedPrecondition: the gradient of lookup `number` comes too late. `what`: its tables.
  virtual Status CheckUpdate(uint64_t /*layer*/, uint64_t /*number*/, const std::string& /*what*/) {
    return Status();
  }
  // The update of a layer's step. Calls tick(others), where `others` lives until it returns; null: other
  // workers' lookups are unknown. If tick fails the step goes on. No tick: a step without a gradient.
  using Tick = std::function<Status(const OthersUse* others)>;
  virtual Status Update(uint64_t /*layer*/, const Tick& tick) { return tick ? tick(nullptr) : Status(); }
  // Who updates a shared row in the running step of a layer.
  virtual Owners OwnersOf(uint64_t /*layer*/, uint32_t workers) { return {workers}; }

  // --- tables

  // FailedPrecondition: other workers may hold back updates of one of these tables. `what`: "a save".
  virtual Status Require(Span<const TablePtr> /*tables*/, const char* /*what*/) { return Status(); }
  // All workers have sent all updates, and wait for each other: any call may come.
  virtual void Settle() {}
  // A table is dropped.
  virtual void Forget(uint64_t /*table*/) {}

  // --- between calls, with the client held

  // Whether Work has something to do. Callable without the client.
  virtual bool has_work() { return false; }
  // Begins lookups. Returns whether any has begun.
  virtual bool Work(Client* /*client*/) { return false; }

 protected:
  StepStore* const steps_;
};

}  // namespace het
