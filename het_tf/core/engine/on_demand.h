// Rows that travel on demand: layers of a placed stream, of which every worker knows what all of them look up
// (plan/global_step.h). A row past its push bound goes to the server when another worker needs it, and not
// before; the idea is Herald's. A row that only one worker uses stays there.
//
//   tick of t     rows past their push bound that others use in step t + k are sent
//   eviction      a row with unsent ticks is sent, as always
//
// k is 1, and one more for each step by which a read may lag behind what the server has: where rows are told
// (client/subscriptions.h), and where lookups begin early (coming_steps.h). So an update is at the server
// when another worker's read looks for it, as if it had been sent at once; it merges with those behind it.
//
// At staleness 0 steps are exact, N workers equal one process, and the stream does what checks did:
//
//   lookup of t   a row that is cached and up to date is read, others are fetched. No row is asked about
//   tick of t     k = 1, and the step waits until its rows are applied. Copies of rows that another worker
//                 updates in t are out of date
//
// Why that is enough. A row is unsent at worker w only if no other worker has needed it since w's last tick,
// or needs it next, and then w sends it first. So when w fetches a row at t + 1, every other worker with
// unsent ticks of it has sent them: the row was among its others(t + 1). The gate of the bulk-synchronous
// mode keeps ticks of t behind all lookups of t, and the all-reduce at the end of a step keeps lookups of t +
// 1 behind all ticks of t (docs/protocol.md).
//
// On the safe side. Everything is sent at the end of a step whose successor is not planned; then any lookup
// may follow. Otherwise workers have held back rows that another lookup than the successor needs. If one
// comes, all is sent, which is late by a step for other workers; an exact layer refuses it, without a change.
// After an exact step that was not planned every copy is out of date. A loop that is left in the middle needs
// a flush on all workers before the next one.
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

  // A batch of the layer is planned with what all workers look up. `early`: its lookups begin early.
  // `summed`: as of GlobalStep::Ids.
  void Plan(const BatchCall& call, bool early, bool summed);

  // The functions below have nothing to do for layers of which nothing was planned so.

  // A training lookup begins. FailedPrecondition: rows of an exact layer may not be ready for it, or a step
  // of another layer that has one of its tables runs.
  Status BeginStep(const BatchCall& call, const ComingSteps::Found& found);
  // What the others use in the running step of a layer; null: it is not known.
  std::shared_ptr<const GlobalStep> Running(uint64_t lane);
  // What the write of the running step is told; null: nothing.
  std::shared_ptr<const OthersUse> BeforeTick(uint64_t lane);
  // It has ticked.
  Status EndStep(uint64_t lane);
  // It had no gradient: others may have one, and need rows next.
  Status SkipStep(uint64_t lane);
  // Everything was sent.
  void OnFlush();
  // A table goes.
  void Forget(uint64_t table);

 private:
  struct Layer {
    std::vector<uint64_t> tables;
    bool exact = false;
    bool summed = false;   // an update has an owner, which every worker must know
    uint64_t ahead = 1;    // k
    bool follows = false;  // the stream says what has moved in its caches: it is exact, and has begun
    bool any_next = true;  // nothing is held back: any lookup may come
    uint64_t next = 0;   // else the batch of this place (coming_steps.h); 0: none, a step runs, or has failed
    uint64_t place = 0;  // of the running step; 0: it was not planned
    // The running step, and the one k behind it, as far as known.
    std::shared_ptr<const GlobalStep> now, coming;
  };

  Layer* Find(uint64_t lane);
  // A lookup begins that is not of the planned successor.
  Status OnOtherBatch(const BatchCall& call, const Layer& layer);
  Status CheckAlone(const BatchCall& call, const Layer& layer);
  void FollowStream(Layer* layer);
  void MarkAllMoved(const Layer& layer);

  ClientDriver* const driver_;
  ComingSteps* const coming_;
  std::mutex mutex_;  // guards what follows
  std::map<uint64_t, Layer> layers_;
};

}  // namespace het
