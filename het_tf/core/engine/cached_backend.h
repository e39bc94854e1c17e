// Tables behind an embedding cache in this process's memory, in front of a store here or at servers.
#pragma once

#include "het_tf/core/engine/client_driver.h"
#include "het_tf/core/engine/table_backend.h"

namespace het {

// The base of backends whose tables have a cache: the client runs their protocol.
class ClientBackend : public TableBackend {
 public:
  explicit ClientBackend(ClientDriver* driver) : driver_(driver) {}

  void Invalidate(const Table& table, Span<const Key> keys) override;
  void InvalidateAll(const Table& table) override;

 protected:
  ClientDriver* const driver_;
};

class CachedBackend final : public ClientBackend {
 public:
  using ClientBackend::ClientBackend;

  bool Serves(const TableOptions& options) const override { return options.cache && !options.on_device(); }
  // Copies rows from the cache's lines to the output while it holds the client, so that no line moves.
  Status Lookup(StepCall* call, Span<float* const> out) override;
  Status Tick(StepCall* call, const ApplyArgs& args) override;
  void End(uint64_t number) override;

  Status Add(const Schema& schema, const TableOptions& options) override;
  void Remove(uint64_t table) override;
  Status Flush() override;
  Status Stats(const Table& table, TableStats* stats) override;

 private:
  Vector<const BatchPlan::Group*> GroupsOf(const StepCall& call) const;
};

}  // namespace het
