// Tables without a cache: reads and ticks the partitions of this process's store in place.
//
// Lookups run concurrently: a partition's mutex is held while its rows are copied to the output. Row numbers
// must not change between Prepare and Tick, so the engine excludes other changes of rows meanwhile.
#pragma once

#include "het_tf/core/engine/table_backend.h"
#include "het_tf/core/store/local_service.h"

namespace het {

class DirectBackend final : public TableBackend {
 public:
  explicit DirectBackend(LocalService* service) : service_(service) {}

  bool Serves(const TableOptions& options) const override { return !options.cache; }
  Status Lookup(StepCall* call, Span<float* const> out) override;
  Status Prepare(StepCall* call) override;
  void Undo(StepCall* call) override;
  Status Tick(StepCall* call, const ApplyArgs& args) override;

 private:
  template <typename Fn>
  Status ForShards(StepCall* call, Fn fn, bool finds_unique = false);

  LocalService* const service_;
};

}  // namespace het
