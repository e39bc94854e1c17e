// Rows that travel on demand, for layers of a placed stream, where every worker knows all workers' lookups
// (plan/global_step.h). A row past its push bound is sent to the server only when another worker needs it;
// the idea is Herald's. A row that only one worker uses stays there.
//
//   tick of t     sends rows past their push bound that others use in step t + k
//   eviction      sends a row with unsent ticks, as always
//
// k is 1, plus one for each step by which a read may lag behind the server: with notifications
// (client/subscriptions.h), and with early lookups (coming_steps.h). So an update is at the server when
// another worker reads it, as if it had been sent at once; it merges with later ones.
//
// At staleness 0 steps are exact: N workers equal one process, and the stream replaces checks:
//
//   lookup of t   reads rows that it has read in this pass and that are up to date; it checks or fetches
//   others tick of t     k = 1, and the step waits until its rows are applied. Copies of rows that another
//   worker
//                 updates in t become outdated
//
// Why this suffices. A row is unsent at worker w only if no other worker has needed it since w's last tick,
// or needs it next, and then w sends it first. So when w fetches a row at t + 1, every other worker with
// unsent ticks of it has sent them: the row was among its others(t + 1). The gate of the bulk-synchronous
// mode keeps ticks of t behind all lookups of t, and the all-reduce at the end of a step keeps lookups of t +
// 1 behind all ticks of t (docs/protocol.md).
//
// Exceptions. A step whose successor is not planned sends everything at its end.
//
// Who may read. From the first step of a pass on, other workers may hold back updates:
//
//                 a step of the stream begins      its gradient was applied     pass ended, or all flushed
//    settled ──────────────────────────────► runs ────────────────► held back ──────────────────────► settled
//    any call      only its gradient                 only the next batch of the stream
//
// Other lookups of its tables, in training, for evaluation and by other layers, are refused without a change,
// and so are changes of rows behind the caches, saves and loads (Require). What decides is the order of
// calls, which is the same on all workers; never whose pipeline is late: so all workers refuse, or none.
// Copies are trusted within a pass only (LineMarks::Follow); then they are checked, as at any staleness of 0.
//
// A layer whose batches come from a restored iterator has no plans for some of them, on some workers. Such a
// step sends everything. Any training step may follow it; other reads wait for a flush. If gradients are
// summed the exchange of the sums refuses it on all workers, unless none of them has a plan: the plan says
// who updates a row (plan/gradient_sums.h).
//
// Thread-safe. Lock order: this one, then the driver's, then that of the coming steps.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "het_tf/core/engine/client_driver.h"
#include "het_tf/core/engine/coming_steps.h"
#include "het_tf/core/engine/table_backend.h"

namespace het {

class OnDemand {
 public:
  OnDemand(ClientDriver* driver, ComingSteps* coming) : driver_(driver), coming_(coming) {}

  // Plans a batch of the layer with the lookups of all workers. `early`: its lookups begin early.
  void Plan(const BatchCall& call, bool early);
  // The pass has no step behind the one at this place.
  void EndPass(uint64_t lane, uint64_t place);
  // All workers have sent all updates, and wait for each other: any call may come.
  void Settle();
  // FailedPrecondition: other workers may hold back updates of one of these tables. `what`: "a save".
  Status Require(Span<const TablePtr> tables, const char* what);
  // Call when a table is dropped.
  void Forget(uint64_t table);

  // Begins a lookup. Sets call->follows. `training`: a step of the layer begins. FailedPrecondition: the rows
  // may lack updates that others hold back.
  Status Begin(StepCall* call, const ComingSteps::Found& found, bool training);

  // The functions below do nothing for layers without such plans.

  // The running step's number, once it has one.
  void SetNumber(uint64_t lane, uint64_t number);
  // The gradient of lookup `number` was taken. If it is not applied before the layer's next lookup, its step
  // ends without one: what others need next of earlier steps is sent now, before their next lookups.
  Status NoteKept(uint64_t lane, uint64_t number);
  // FailedPrecondition: the gradient of lookup `number` is not of the running step. `what`: its tables.
  Status RequireRunning(uint64_t lane, uint64_t number, const std::string& what);
  // Returns the others' keys in the running step of a layer; null: unknown.
  std::shared_ptr<const GlobalStep> Running(uint64_t lane);
  // Returns the others' use for the running step's write; null: none.
  std::shared_ptr<const OthersUse> BeforeTick(uint64_t lane);
  // Call when the step has ticked.
  Status EndStep(uint64_t lane);
  // Call for a step without a gradient: others may have one, and need rows next.
  Status SkipStep(uint64_t lane);

 private:
  struct Layer {
    std::vector<uint64_t> tables;
    bool exact = false;
    uint64_t ahead = 1;       // k
    bool held_back = false;   // by other workers, or it may be
    bool runs = false;        // a step whose gradient was not applied
    bool kept = false;        // its gradient was taken
    uint64_t number = 0;      // of its lookup
    bool follows = false;     // copies may be trusted (LineMarks::Follow)
    uint64_t place = 0;       // of the newest step; 0: it was not planned, or all is settled
    std::set<uint64_t> ends;  // places of the last steps of passes
    // The running step, and the one k behind it, if known.
    std::shared_ptr<const GlobalStep> now, coming;

    // Whether the batch at this place is the next one of the stream.
    bool Expects(uint64_t next) const { return !runs && (place == 0 || next == place + 1); }
  };

  Layer* Find(uint64_t lane);
  Status LeaveKept(uint64_t lane);
  bool SuccessorIsKnown(uint64_t lane);
  void Close(Layer* layer);
  void CloseIfEnded(Layer* layer);
  void Unfollow(Layer* layer);

  ClientDriver* const driver_;
  ComingSteps* const coming_;
  std::mutex mutex_;  // guards the members below
  std::map<uint64_t, Layer> layers_;
};

}  // namespace het
