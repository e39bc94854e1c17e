// An engine's backends, one of each kind (table_backend.h). Thread-safe.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "het_tf/core/engine/client_driver.h"
#include "het_tf/core/engine/table_backend.h"
#include "het_tf/core/store/local_service.h"

namespace het {

class Backends {
 public:
  // `embedded`: this process's store; null: tables are remote. `store`: any of its partitions.
  Backends(LocalService* embedded, ClientDriver* driver, const PartitionId& store);

  // Returns the backend that serves tables with these options.
  TableBackend& Of(const TableOptions& options) const;
  // Iterates over all backends, in the order in which calls use them.
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

  // InvalidArgument: only some tables of the call are on a device, or only its ids are.
  Status Check(const BatchCall& call) const;

  // Calls fn(backend) -> Status for every backend with a table of the call, until one fails.
  template <typename Fn>
  Status ForCall(const BatchCall& call, Fn fn) const {
    for (const auto& backend : all_) {
      const bool named = std::any_of(call.tables.begin(), call.tables.end(),
                                     [&](const TablePtr& table) { return backend->Serves(table->options); });
      if (named) HET_RETURN_IF_ERROR(fn(backend.get()));
    }
    return Status();
  }

 private:
  std::vector<std::unique_ptr<TableBackend>> all_;
};

}  // namespace het
