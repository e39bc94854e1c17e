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
//   lookup of t   reads cached rows that are up to date, and fetches others. There are no checks
//   tick of t     k = 1, and the step waits until its rows are applied. Copies of rows that another worker
//                 updates in t become outdated
//
// Why this suffices. A row is unsent at worker w only if no other worker has needed it since w's last tick,
// or needs it next, and then w sends it first. So when w fetches a row at t + 1, every other worker with
// unsent ticks of it has sent them: the row was among its others(t + 1). The gate of the bulk-synchronous
// mode keeps ticks of t behind all lookups of t, and the all-reduce at the end of a step keeps lookups of t +
// 1 behind all ticks of t (docs/protocol.md).
//
// Exceptions. A step whose successor is not planned sends everything at its end; then any lookup may follow.
// Otherwise workers hold back rows that another lookup would need. If such a lookup comes, all is sent, which
// is a step late for other workers; an exact layer refuses it, without a change. After an unplanned exact
// step every copy is outdated. A loop that is left in the middle needs a flush on all workers.
//
// Thread-safe. Lock order: this one, then the driver's, then that of the coming steps.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "het_tf/core/engine/client_driver.h"
#include "het_tf/core/engine/coming_steps.h"
#include "het_tf/core/engine/table_backend.h"

namespace het {

class OnDemand {
 public:
  OnDemand(ClientDriver* driver, ComingSteps* coming) : driver_(driver), coming_(coming) {}

  // Plans a batch of the layer with the lookups of all workers. `early`: its lookups begin early. `summed`:
  // as in GlobalStep::Ids.
  void Plan(const BatchCall& call, bool early, bool summed);

  // The functions below do nothing for layers without such plans.

  // Begins a training lookup. FailedPrecondition: rows of an exact layer may not be ready for it, or another
  // layer with one of its tables is in a step.
  Status BeginStep(const BatchCall& call, const ComingSteps::Found& found);
  // Returns the others' keys in the running step of a layer; null: unknown.
  std::shared_ptr<const GlobalStep> Running(uint64_t lane);
  // Returns the others' use for the running step's write; null: none.
  std::shared_ptr<const OthersUse> BeforeTick(uint64_t lane);
  // Call when the step has ticked.
  Status EndStep(uint64_t lane);
  // Call for a step without a gradient: others may have one, and need rows next.
  Status SkipStep(uint64_t lane);
  // Call when everything was sent.
  void OnFlush();
  // Call when a table is dropped.
  void Forget(uint64_t table);

 private:
  struct Layer {
    std::vector<uint64_t> tables;
    bool exact = false;
    bool summed = false;   // updates have an owner, which every worker must know
    uint64_t ahead = 1;    // k
    bool follows = false;  // exact and begun: the stream determines the outdated rows
    bool any_next = true;  // nothing is unsent: any lookup may come
    uint64_t next = 0;     // else only this batch (coming_steps.h) may come; 0: none, a step runs or failed
    uint64_t place = 0;    // the running step's place; 0: not planned
    // The running step, and the one k behind it, if known.
    std::shared_ptr<const GlobalStep> now, coming;
  };

  Layer* Find(uint64_t lane);
  // Handles a lookup of another batch than the planned successor.
  Status OnOtherBatch(const BatchCall& call, const Layer& layer);
  Status CheckAlone(const BatchCall& call, const Layer& layer);
  void FollowStream(Layer* layer);
  void MarkAllMoved(const Layer& layer);

  ClientDriver* const driver_;
  ComingSteps* const coming_;
  std::mutex mutex_;  // guards the members below
  std::map<uint64_t, Layer> layers_;
};

}  // namespace het
