// Tables with a cache in device memory. A call's rows and gradients are there too, or in this process's
// memory; the device plans the step.
#pragma once

#include "het_tf/core/engine/cached_backend.h"
#include "het_tf/ext/gpu/cc/device_tables.h"

namespace het {

// Gives every engine that is made afterwards such a backend (extensions.h).
bool AddDeviceBackends();

class DeviceBackend final : public ClientBackend {
 public:
  // `store`: any of its partitions.
  DeviceBackend(ClientDriver* driver, const PartitionId& store)
      : ClientBackend(driver), tables_(driver->client(), store) {}

  bool Serves(const TableOptions& options) const override { return options.on_device(); }
  void Plan(StepCall*, const PartitionId&, Span<float* const>) override {}  // the device does
  Status Lookup(StepCall* call, Span<float* const> out) override;
  // Also sums the gradients; sets changed and skipped.
  Status Tick(StepCall* call, const ApplyArgs& args) override;
  void Release(uint64_t number) override;

  Status Reserve(const Schema& schema, const TableOptions& options) override;
  Status Add(const Schema& schema, const TableOptions& options) override;
  void Remove(uint64_t table) override;
  Status Flush() override;
  Status Stats(const Table& table, TableStats* stats) override;

  DeviceTables* tables() { return &tables_; }  // for tests

 private:
  DeviceTables tables_;  // use only while the client is held
};

}  // namespace het
