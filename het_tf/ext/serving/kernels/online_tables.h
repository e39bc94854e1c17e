// The tables of a lookup that reads a live parameter server (ext/serving/cc/serve/online_reader.h). They are
// resolved at the first call and kept, so that a model can load before its server runs.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "het_tf/core/engine/call_spec.h"
#include "het_tf/ext/serving/cc/serve/online_reader.h"

namespace het {

class OnlineTables {
 public:
  // Valid for one call: holds the reader.
  struct Resolved {
    std::shared_ptr<serve::OnlineReader> reader;
    const std::vector<serve::OnlineTable*>* tables = nullptr;

    // Writes the rows of feature f to out[f].
    Status Lookup(Span<const FeatureIds> features, Span<float* const> out) const;
  };

  // InvalidArgument: the options are invalid. `spec` must outlive the object.
  static Result<std::unique_ptr<OnlineTables>> Create(const CallSpec& spec);
  // DeadlineExceeded: no server answers; FailedPrecondition: it does not have the namespace or table. The
  // next call tries again. Thread-safe.
  Result<Resolved> Resolve();

  explicit OnlineTables(const CallSpec* spec) : spec_(spec) {}

 private:
  const CallSpec* const spec_;
  std::mutex mutex_;  // guards the members below, which are set once
  std::shared_ptr<serve::OnlineReader> reader_;
  std::vector<serve::OnlineTable*> tables_;
};

}  // namespace het
