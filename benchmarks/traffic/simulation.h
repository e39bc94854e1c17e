// N workers in lock-step over one stream: each a real client with a real cache, all before one LocalService.
//
//   step t:  every worker reads the rows of its batch  ──►  every worker writes one tick to each of them
//
// Worker w's batch of step t is the samples [(t * N + w) * B, ... + B), so every N sees the same samples.
//
// Hosts: `share` workers next to one another may have one client, and so one cache. Its read is of the union
// of their batches, each row once; then each of them writes its own tick to each row of its own batch. Clocks
// and bounds are the client's: a tick of one worker of a host is an own one to all of them.
//
// The oracle: rows start at 0, the gradient is -1 and the rate 1, so a row's value is the number of ticks
// that it contains, exactly. What a read missed is the number of ticks that were made by anyone, less the
// value that the worker got: no clock of the protocol, and no bound, is believed. Rows that are rounded on
// their way, or whose optimizer is another than SGD, cannot say so: then nothing is observed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "benchmarks/traffic/counting_transport.h"
#include "benchmarks/traffic/stream.h"
#include "het_tf/core/client/client.h"
#include "het_tf/core/plan/batch_plan.h"
#include "het_tf/core/plan/global_step.h"

namespace het::traffic {

struct Settings {
  uint32_t workers = 8;
  uint32_t share = 1;  // workers that have one cache; divides `workers`
  uint32_t dim = 16;
  uint32_t batch = 128;
  uint32_t partitions = 64;
  uint32_t shards = 1;      // servers that have the partitions: parts for one of them share frames
  size_t warm_samples = 0;  // steps before this one's end are not counted
  size_t window = 0;       // batches of a client that are planned ahead; 0: none, and caches know no next use
  bool on_demand = false;  // rows travel when another client needs them (engine/on_demand.h)
  bool rows_exist = true;  // every row of the stream is at the store before the first step
  std::string optimizer = "row_wise_adagrad";  // whose bounds a staleness stands for
  std::string rows = "sgd";                    // whose rows travel; of others nothing is observed
  CacheConfig cache;
};

struct Outcome {
  size_t steps = 0;    // that were counted
  uint64_t reads = 0;  // unique keys that the clients were asked for
  uint64_t hits = 0;
  Counts counts;                    // of all workers, in the counted steps
  Counts all;                       // and in every step
  uint64_t uses = 0;                // unique keys of workers' batches
  std::vector<uint64_t> staleness;  // [lag] = unique keys of workers' batches that missed so many ticks
  std::vector<double> hit_rate;     // of every step
  Bound pull, push;                 // of the clients
  // Of the client's own counters, over every step: they must agree with ours.
  uint64_t client_bytes = 0;
  uint64_t client_rows = 0;
  uint64_t busy_writes = 0;  // writes that had to wait for the store
  uint64_t busy_reads = 0;
  size_t cached_rows = 0;         // of all clients, at the end
  size_t unsent_rows = 0;         // that a flush would push then
  size_t unsent_rows_before = 0;  // and before the first counted step
};

class Simulation {
 public:
  Simulation(const Stream& stream, const Settings& settings);
  ~Simulation();

  // InvalidArgument when the stream is too short for one counted step, or `share` does not divide `workers`.
  Result<Outcome> Run();

 private:
  struct Host;

  void MakeRows();
  // The batch of this step, with the next `window` planned.
  void Next(Host* host, size_t step);
  // Learns what the other hosts do in this step and the next ones.
  void Foresee(Host* host, size_t step);
  // What they use in a step; null: there is no such step.
  std::unique_ptr<GlobalStep> Others(const Host& host, size_t step);
  Status Read(Host* host, size_t step, bool counted);
  bool observes() const { return settings_.cache.wire == RowFormat::kFloat32 && settings_.rows == "sgd"; }
  void FillSums(size_t floats);
  // Of the host's worker number `i`.
  Status Write(Host* host, uint32_t i);
  size_t Unsent() const;

  const Stream& stream_;
  Settings settings_;
  LocalService service_;
  Schema schema_;
  std::vector<std::unique_ptr<Host>> hosts_;
  ThreadPool pool_;
  BatchPlan scratch_;
  bool exact_ = false;
  size_t ahead_ = 0;                 // steps by which rows are sent ahead of their use (engine/on_demand.h)
  std::vector<uint32_t> ticks_;      // made by anyone, of every id
  std::vector<uint32_t> contained_;  // in the row of every id that the running read brought
  uint64_t noise_ = 1;
  Vector<float> sums_;
  Vector<uint8_t> touched_;
  Outcome outcome_;
};

}  // namespace het::traffic
