// Batches that are planned before their lookup, and what every worker knows of the others' next ones.
//
//   Plan      on the pipeline's thread: sorts a batch's ids, and leaves the plan with ComingSteps
//   Begin     its lookup takes the plan; with a remote store it has begun by then (Work)
//   Update    its tick: sends the rows that others need next
//
// Rows on demand, for layers of a placed stream, where every worker knows all workers' lookups
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

#include "het_tf/core/engine/engine_parts.h"
#include "het_tf/core/engine/lookahead.h"
#include "het_tf/ext/streams/cc/coming_steps.h"

namespace het {

class Window final : public Lookahead {
 public:
  explicit Window(EngineParts* parts) : Lookahead(&parts->step_store), parts_(parts), coming_(steps_) {}
  // The engine's.
  static Window& Of(Lookahead* lookahead) { return static_cast<Window&>(*lookahead); }
  // Every engine that is made afterwards has a window. Linked programs that plan register it themselves.
  static const bool kRegistered;

  // Plans a training lookup of these ids, which need not be sorted again. If tables are at a remote store,
  // its rows are requested when the previous lookup has ended, unless a pull bound is 0 (coming_steps.h).
  // Never waits; errors are reported by the lookup. `window`: number of batches of the layer that may be
  // planned, at least 1. Unimplemented: a table is cached on a device. `all`: all workers' lookups of this
  // step; then, if there are several, rows of the layer travel on demand.
  Status Plan(const BatchCall& call, size_t window, const GlobalStep::Ids* all = nullptr);
  // The pass of a stream whose rows travel on demand has no step behind the one at this place.
  void EndPass(uint64_t layer, uint64_t place);

  Status Begin(StepCall* call, bool training) override;
  // If the gradient is not applied before the layer's next lookup, its step ends without one: what others
  // need next of earlier steps is sent now, before their next lookups.
  Status EndLookup(uint64_t layer, uint64_t number) override;
  Status CheckUpdate(uint64_t layer, uint64_t number, const std::string& what) override;
  Status Update(uint64_t layer, const Tick& tick) override;
  Owners OwnersOf(uint64_t layer, uint32_t workers) override;
  Status Require(Span<const TablePtr> tables, const char* what) override;
  void Settle() override;
  void Forget(uint64_t table) override;
  bool has_work() override { return coming_.any_to_do(); }
  bool Work(Client* client) override;

 private:
  // A layer whose rows travel on demand.
  struct Layer {
    std::vector<uint64_t> tables;
    bool exact = false;
    uint64_t ahead = 1;                     // k
    bool held_back = false;                 // by other workers, or it may be
    bool runs = false;                      // a step whose gradient was not applied
    bool kept = false;                      // its gradient was taken
    uint64_t number = 0;                    // of its lookup
    bool follows = false;                   // copies may be trusted (LineMarks::Follow)
    uint64_t place = 0;                     // of the newest step; 0: it was not planned, or all is settled
    std::set<uint64_t> ends;                // places of the last steps of passes
    std::shared_ptr<const GlobalStep> now;  // the running step, if known

    // Whether the batch at this place is the next one of the stream.
    bool Expects(uint64_t next) const { return !runs && (place == 0 || next == place + 1); }
  };
  // The others' use of rows in the running step of a layer.
  struct StepUse {
    std::shared_ptr<const GlobalStep> now, coming;  // which `use` names; null: unknown
    OthersUse use;
    const OthersUse* others() const { return now == nullptr ? nullptr : &use; }
  };

  void AddLayer(const BatchCall& call, bool early);
  void NotifyOfSmallCaches(const BatchCall& call, const BatchPlan& plan);
  void NotifyOfUnplanned(const BatchCall& call);

  // These hold mutex_, or are called with it.
  Layer* Find(uint64_t layer);
  // Begins a step of a stream, at this place of it; 0: unknown.
  Status BeginStep(StepCall* call, uint64_t place, std::shared_ptr<const GlobalStep> global, bool training);
  StepUse UseOf(uint64_t layer);
  Status EndStep(uint64_t layer, bool successor_known);
  Status LeaveKept(uint64_t layer);
  void Close(Layer* layer);
  void CloseIfEnded(Layer* layer);
  void Unfollow(Layer* layer);

  EngineParts* const parts_;
  ComingSteps coming_;
  std::mutex global_mutex_;   // guards the next member; a leaf lock
  BatchPlan global_scratch_;  // sorts the ids of all workers
  std::mutex mutex_;          // guards the next member
  std::map<uint64_t, Layer> layers_;
};

}  // namespace het
