// The replay of ext/sizing/cc/replay.h over a recorded stream, watched: what each frame is made of
// (CountingTransport), and what each read missed.
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
#include "het_tf/ext/sizing/cc/replay.h"

namespace het::traffic {

struct Settings {
  ReplaySettings replay;  // of it: all but warm_steps, ones, the schema and the cache's workers
  uint32_t dim = 16;
  uint32_t batch = 128;
  size_t warm_samples = 0;                     // steps before this one's end are not counted
  std::string optimizer = "row_wise_adagrad";  // whose bounds a staleness stands for
  std::string rows = "sgd";                    // whose rows travel; of others nothing is observed
};

struct Outcome {
  ReplayOutcome replay;
  Counts counts;                    // of all workers, in the counted steps
  Counts all;                       // and in every step
  uint64_t uses = 0;                // unique keys of workers' batches
  std::vector<uint64_t> staleness;  // [lag] = unique keys of workers' batches that missed so many ticks
  Bound pull, push;                 // of the clients
  // Of the client's own counters, over every step: they must agree with ours.
  uint64_t client_bytes = 0;
  uint64_t client_rows = 0;
  size_t unsent_rows_before = 0;  // that a flush would have pushed before the first counted step
};

// InvalidArgument when the stream is too short for one counted step. Every row is at the store before it.
Result<Outcome> Simulate(const Stream& stream, Settings settings);

}  // namespace het::traffic
