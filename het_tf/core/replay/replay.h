// What a job of N workers would send and wait for, by running it: real clients with real caches over a
// recorded stream of keys, in lock-step, all before one LocalService. One table.
//
//   step t:  every worker reads the rows of its batch  ──►  every worker writes one tick to each of them
//
// Batch number b of the stream is that of worker b % N in step b / N.
//
// Hosts: `share` workers next to one another may have one client, and so one cache. Its read is of the union
// of their batches, each row once; then each of them writes its own tick to each row of its own batch. Clocks
// and bounds are the client's: a tick of one worker of a host is an own one to all of them.
//
// Everything is deterministic but the seconds. Whoever wants to see more than the outcome is a ReplayWatcher.
// Not thread-safe; several replays at once are fine.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/client/client.h"
#include "het_tf/core/plan/batch_plan.h"
#include "het_tf/core/plan/global_step.h"
#include "het_tf/core/replay/network.h"

namespace het {

struct ReplaySettings {
  uint32_t workers = 8;
  uint32_t share = 1;  // workers that have one cache; divides `workers`
  uint32_t partitions = 64;
  uint32_t shards = 1;     // servers that have the partitions: parts for one of them share frames
  size_t warm_steps = 0;   // that are not counted
  size_t window = 0;       // batches of a client that are planned ahead; 0: none, and caches know no next use
  bool on_demand = false;  // rows travel when another client needs them (engine/on_demand.h)
  bool ones = false;       // every tick adds 1 to a row: with SGD a row is the number of its ticks
  Schema schema;           // what travels
  CacheConfig cache;       // its workers are the hosts
};

// Keys as they come, by the number of the batch.
struct ReplayStream {
  size_t batches = 0;
  std::function<void(size_t batch, std::vector<Key>* keys)> append;
};

struct ReplayOutcome {
  size_t steps = 0;            // that were counted
  Counters counters;           // of all clients, in the counted steps; the histogram of lags over all steps
  NetworkCounts traffic;       // likewise
  uint64_t waiting_reads = 0;  // of them: reads and writes that waited for the store
  uint64_t waiting_writes = 0;
  double client_seconds = 0;  // of CPU, of lookups and updates; the store's apart
  double store_seconds = 0;
  uint64_t store_rows = 0;  // at the end
  uint64_t store_bytes = 0;
  size_t cached_rows = 0;  // of all clients, at the end
  size_t unsent_rows = 0;  // that a flush would push then
  uint64_t evictions = 0;  // in every step
};

// A client's batch: the union of its workers', or one worker's.
struct ReplayBatch {
  std::vector<Key> keys;  // of the entries
  BatchPlan plan;
  uint32_t number = 0;    // where batches are planned
  Vector<uint32_t> next;  // next_uses.h
};

// Told what happens. The first error ends the replay.
class ReplayWatcher {
 public:
  virtual ~ReplayWatcher() = default;
  virtual std::unique_ptr<ReplayNetwork> Network(LocalService* service, uint32_t shards) {
    return std::make_unique<ReplayNetwork>(service, shards);
  }
  // Before the first step, of every client.
  virtual void Begin(ReplayNetwork*, Client*) {}
  // The next step is the first that is counted.
  virtual void BeginCounting() {}
  // A client's read, and the batch of each of its workers. values: of the plan's entries, at their places.
  virtual Status SeeRead(const ReplayBatch& /*all*/, Span<const ReplayBatch> /*workers*/,
                         const Vector<const float*>& /*values*/) {
    return Status();
  }
  // What one worker of the client writes, before and after.
  virtual void SeeWrite(size_t /*client*/, const ReplayBatch&, Span<const OthersKeys> /*wanted*/) {}
  virtual void EndWrite(size_t /*client*/) {}
  virtual void EndStep() {}
  // Nothing is on its way any more.
  virtual void End() {}
};

// What an op does with rows beside the client, for the time that it takes.
class ReplayOp {
 public:
  // Rows to features, and these, as gradients, to sums.
  void MoveRows(const BatchPlan& plan, const Vector<const float*>& rows, size_t dim);
  // Makes sums of this many rows. Numbers of any size, as gradients are, unless a row counts its ticks
  // (`ones`): how a format packs a one says nothing of its bytes.
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

  // Before Run: the rows are at the store, each with one tick.
  Status MakeRows(Span<const Key> keys);
  // InvalidArgument when the stream is too short for one counted step, or `share` does not divide `workers`.
  Result<ReplayOutcome> Run();

 private:
  struct Host;

  Status Check() const;
  Status AddHosts();
  size_t Steps() const { return stream_.batches / settings_.workers; }
  // The batches from `first` on as one.
  void Build(size_t first, size_t count, ReplayBatch* batch);
  // The batch of this step, with the next `window` planned.
  void Next(Host* host, size_t step);
  // Learns what the other hosts do in this step and the next ones.
  void Foresee(Host* host, size_t step);
  // What they use in a step; null: there is no such step.
  std::unique_ptr<GlobalStep> Others(const Host& host, size_t step);
  Status Step(size_t step);
  Status Read(Host* host, size_t step);
  // Of the host's worker number `i`.
  Status Write(Host* host, uint32_t i);
  // Replies that are on their way arrive.
  void Drain();
  ReplayOutcome Sum() const;

  const ReplayStream stream_;
  const ReplaySettings settings_;
  ReplayWatcher* const watcher_;
  LocalService service_;
  std::vector<std::unique_ptr<Host>> hosts_;
  ThreadPool pool_;
  BatchPlan scratch_;
  bool exact_ = false;
  size_t ahead_ = 0;  // steps by which rows are sent ahead of their use (engine/on_demand.h)
  uint64_t waiting_reads_ = 0;
  uint64_t waiting_writes_ = 0;
  double seconds_ = 0;  // of steps
  ReplayOp op_;
};

}  // namespace het
