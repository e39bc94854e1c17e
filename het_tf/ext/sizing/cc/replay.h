// Measures what a job of N workers would send and wait for, by running it: real clients with real caches over
// a recorded stream of keys, in lock-step, with one LocalService. One table.
//
//   step t:  every worker reads the rows of its batch  ──►  every worker writes one tick to each of them
//
// Batch number b of the stream belongs to worker b % N in step b / N.
//
// Everything except the seconds is deterministic. A ReplayWatcher sees more than the outcome. Not
// thread-safe; several replays at once are fine.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/client/client.h"
#include "het_tf/core/plan/batch_plan.h"
#include "het_tf/ext/sizing/cc/network.h"
#include "het_tf/ext/streams/cc/global_step.h"

namespace het {

struct ReplaySettings {
  uint32_t workers = 8;
  uint32_t partitions = 64;
  uint32_t shards = 1;     // servers with the partitions; parts for one server share frames
  size_t warm_steps = 0;   // steps that are not counted
  size_t window = 0;       // batches of a client that are planned ahead; 0: caches do not know next uses
  bool on_demand = false;  // rows travel when another client needs them (ext/streams/cc/window.h)
  bool ones = false;       // every tick adds 1 to a row: with SGD a row is the number of its ticks
  Schema schema;           // of the table
  CacheConfig cache;       // with its workers
};

// Keys in order, by the number of the batch.
struct ReplayStream {
  size_t batches = 0;
  std::function<void(size_t batch, std::vector<Key>* keys)> append;
};

struct ReplayOutcome {
  size_t steps = 0;            // counted steps
  Counters counters;           // of all clients, in counted steps; the histogram of lags in all steps
  NetworkCounts traffic;       // likewise
  uint64_t waiting_reads = 0;  // reads and writes that waited for the store
  uint64_t waiting_writes = 0;
  double client_seconds = 0;  // CPU time of lookups and updates, without the store's
  double store_seconds = 0;
  uint64_t store_rows = 0;  // at the end
  uint64_t store_bytes = 0;
  size_t cached_rows = 0;  // of all clients, at the end
  size_t unsent_rows = 0;  // rows that a flush would push then
  uint64_t evictions = 0;  // in every step
};

// A worker's batch.
struct ReplayBatch {
  std::vector<Key> keys;  // one for each entry
  BatchPlan plan;
  uint32_t number = 0;    // if batches are planned
  Vector<uint32_t> next;  // next_uses.h
};

// Observes a replay. The first error ends it.
class ReplayWatcher {
 public:
  virtual ~ReplayWatcher() = default;
  virtual std::unique_ptr<ReplayNetwork> Network(LocalService* service, uint32_t shards) {
    return std::make_unique<ReplayNetwork>(service, shards);
  }
  // Called before the first step, for every client.
  virtual void Begin(ReplayNetwork*, Client*) {}
  // Called before the first counted step.
  virtual void BeginCounting() {}
  // Called for a worker's read. values: at the indices of the plan's entries.
  virtual Status SeeRead(const ReplayBatch&, const Vector<const float*>& /*values*/) { return Status(); }
  // Called before and after a worker's write.
  virtual void SeeWrite(size_t /*worker*/, const ReplayBatch&, Span<const OthersKeys> /*wanted*/) {}
  virtual void EndWrite(size_t /*worker*/) {}
  virtual void EndStep() {}
  // Called when no frame is in flight any more.
  virtual void End() {}
};

// Measures an op's own work on rows, besides the client's.
class ReplayOp {
 public:
  // Copies rows to features, and these, as gradients, to sums.
  void MoveRows(const BatchPlan& plan, const Vector<const float*>& rows, size_t dim);
  // Makes sums of this many rows. Their numbers have any size, as gradients do, unless a row counts its ticks
  // (`ones`): the packed size of a one says nothing about gradients.
  void FillSums(size_t rows, size_t dim, bool ones);
  float* sums() { return sums_.data(); }
  uint8_t* touched() { return touched_.data(); }

 private:
  uint64_t noise_ = 1;
  Vector<float> features_;
  Vector<float> sums_;
  Vector<uint8_t> touched_;
};

class Replay {
 public:
  Replay(ReplayStream stream, ReplaySettings settings, ReplayWatcher* watcher);
  ~Replay();

  // Call before Run: puts the rows at the store, each with one tick.
  Status MakeRows(Span<const Key> keys);
  // InvalidArgument: the stream is too short for one counted step.
  Result<ReplayOutcome> Run();

 private:
  struct Worker;

  Status Check() const;
  Status AddWorkers();
  size_t Steps() const { return stream_.batches / settings_.workers; }
  void Build(size_t number, ReplayBatch* batch);
  // Takes the batch of this step, with the next `window` planned.
  void Next(Worker* worker, size_t step);
  // Reads what the other workers do in this step and the next ones.
  void Foresee(Worker* worker, size_t step);
  // Returns the others' keys in a step; null: there is no such step.
  std::unique_ptr<GlobalStep> Others(const Worker& worker, size_t step);
  Status Step(size_t step);
  Status Read(Worker* worker, size_t step);
  Status Write(Worker* worker);
  // Makes replies in flight arrive.
  void Drain();
  ReplayOutcome Sum() const;

  const ReplayStream stream_;
  const ReplaySettings settings_;
  ReplayWatcher* const watcher_;
  LocalService service_;
  std::vector<std::unique_ptr<Worker>> workers_;
  ThreadPool pool_;
  BatchPlan scratch_;
  bool exact_ = false;
  size_t ahead_ = 0;  // steps by which rows are sent ahead of their use (ext/streams/cc/window.h)
  uint64_t waiting_reads_ = 0;
  uint64_t waiting_writes_ = 0;
  double seconds_ = 0;  // CPU time of steps
  ReplayOp op_;
};

}  // namespace het
