// N workers of a training job in lock-step in one process: each has the engine that training uses, with its
// client, cache and clocks, and all stand before one LocalService.
//
//   step:  every worker looks up the rows of its batch  ──►  (the caller's model)  ──►  every worker applies
//
// So the reads of a step see no update of that step, as the gate of het_tf.workers has it at staleness 0; at
// other bounds it is one schedule of those that a real job may take. No update is lost and no frame is late.
// What is not here: a network, and processes that run apart.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/engine/engine.h"
#include "het_tf/ext/streams/cc/global_step.h"

namespace het::accuracy {

// One feature of the model. Worker w's ids of a step are the w-th of N equal parts of an array.
struct Feature {
  uint32_t table = 0;
  std::optional<Key> padding_id;
};

class Fleet {
 public:
  // specs, options: of each table, in JSON (schema.h, engine.h). InvalidArgument as of Tables::Create.
  static Result<std::unique_ptr<Fleet>> Create(uint32_t workers, uint32_t partitions,
                                               const std::vector<std::string>& specs,
                                               const std::vector<std::string>& options,
                                               std::vector<Feature> features);

  size_t features() const { return features_.size(); }

  // out[f] = the rows of ids[f], counts[f] of them. FailedPrecondition: the step before was not applied.
  Status Read(Span<const int64_t* const> ids, Span<const size_t> counts, Span<float* const> out);
  // Lookups of these ids come (Window::Plan): those of the next step begin here, between the reads and the
  // ticks of the step before. `place`: of the step, where rows travel on demand (GlobalStep); else 0.
  // Errors as of Read.
  Status Plan(Span<const int64_t* const> ids, Span<const size_t> counts, uint64_t place);
  // One tick of each worker for every key of its part: gradients[f] belong to the ids of the last Read, which
  // are given again, and are those of the mean loss of all workers' samples.
  Status Write(Span<const int64_t* const> ids, Span<const size_t> counts, Span<const float* const> gradients,
               Span<const float> learning_rates);
  // What caches hold back goes to the store.
  Status Flush();
  // values[i] = the store's row of keys[i]: what a checkpoint or a reader of the store has.
  Status Serve(uint32_t table, Span<const Key> keys, float* values);
  // The most ticks that any row of the table has at the store.
  Clock LargestClock(uint32_t table);
  // A JSON list for each worker: its counters of each table.
  Result<std::string> Stats();

 private:
  Fleet(uint32_t workers, uint32_t partitions) : workers_(workers), service_(partitions) {}
  Status CheckParts(Span<const size_t> counts) const;
  // What all workers look up in a step.
  struct Everyone {
    Vector<FeatureIds> features;
    std::vector<std::vector<int64_t>> ends;
    GlobalStep::Ids ids;
  };
  void FillIn(Span<const int64_t* const> ids, Span<const size_t> counts, Everyone* everyone) const;
  BatchCall Call(uint32_t worker, Span<const int64_t* const> ids, Span<const size_t> counts);

  const uint32_t workers_;
  LocalService service_;
  std::vector<Feature> features_;
  std::vector<Schema> schemas_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<std::vector<TablePtr>> tables_;  // of each engine
  std::vector<uint64_t> tokens_;               // of the step between Read and Write
  Vector<FeatureIds> call_features_;
};

}  // namespace het::accuracy
