// The tables of a lookup that reads a live parameter server (core/serve/online_reader.h): looked for at the
// first call, so that a model loads before its server is there, and then kept.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "het_tf/core/engine/call_spec.h"
#include "het_tf/core/serve/online_reader.h"

namespace het {

class OnlineTables {
 public:
  // For one call: it holds the reader.
  struct Resolved {
    std::shared_ptr<serve::OnlineReader> reader;
    const std::vector<serve::OnlineTable*>* tables = nullptr;

    // out[f] receives the rows of feature f.
    Status Lookup(Span<const FeatureIds> features, Span<float* const> out) const;
  };

  // InvalidArgument: the options are none. `spec` outlives it.
  static Result<std::unique_ptr<OnlineTables>> Create(const CallSpec& spec);
  // DeadlineExceeded: no server answers; FailedPrecondition: it has no such namespace or table. The next call
  // tries again. Thread-safe.
  Result<Resolved> Resolve();

  explicit OnlineTables(const CallSpec* spec) : spec_(spec) {}

 private:
  const CallSpec* const spec_;
  std::mutex mutex_;  // guards what follows, which is set once
  std::shared_ptr<serve::OnlineReader> reader_;
  std::vector<serve::OnlineTable*> tables_;
};

}  // namespace het
