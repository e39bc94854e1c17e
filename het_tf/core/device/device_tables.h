// All tables of one engine whose caches are in the memory of a device: what an engine asks for in words of
// tables and tokens becomes calls of the library (core/device/abi.h) and of the client
// (device_rows.h), in the order that both want.
//
//   lookup   HetDevLookup ─► wanted ─► DeviceClient::Read ─► HetDevInstall ─► victims ─► DeviceClient::Push
//                 └► HetDevGather
//   apply    HetDevSum ─► wanted, as above, and again ─► HetDevTick ─► due ─► DeviceClient::Push, Wait
//   flush    HetDevTake ─► DeviceClient::Push, until nothing is left ─► Client::Flush
//
// Who owns what. The library's context, tables and calls belong to this object, the rows and unsent updates
// to the device, numbered frames and what is on its way to the client. An update is in one place at any
// moment: on the device; or, once the device gave it away, in the context's host memory (exports_), from
// where the client takes it before the context is used again; or in a frame. Where memory runs out in
// between it stays where it is, and goes on with the next call.
//
// What happens to rows behind the cache's back (DeviceTable) is told to the device at the beginning of the
// next call, and between a read and its installation.
//
// Locks: all methods are called with the engine's lock on the client held, and may wait for the device and
// for the store. Nothing here takes a lock, or is called by the thread that looks after pushes: that one
// works the client alone, whose events wait in flags.
//
// Errors. Memory of the device: ResourceExhausted, with rows, clocks and updates as they were. The device
// itself (HET_DEV_FAILED): Internal, and from then on every call but Stats fails: what it held is gone, and
// the message says how many ticks that were.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/device/device_calls.h"
#include "het_tf/core/device/device_table.h"
#include "het_tf/core/plan/batch_call.h"

namespace het {

class Client;

class DeviceTables {
 public:
  // `store`: of any partition.
  DeviceTables(Client* client, const PartitionId& store);
  ~DeviceTables();
  DeviceTables(const DeviceTables&) = delete;
  DeviceTables& operator=(const DeviceTables&) = delete;

  // The cache of a table: made before the table is; then the client has to know of it; gone after the table
  // is. FailedPrecondition: there is no device. ResourceExhausted: it does not fit.
  Status Add(const Schema& schema, const CacheConfig& config);
  Status ConnectWithClient(uint64_t table, const CacheConfig& config);
  void Remove(uint64_t table);

  // As of Steps. All tables of the call are on the device. `token` 0: without training.
  Status Lookup(const BatchCall& call, Span<float* const> out, uint64_t token);
  // *changed: for each table, whether it got a tick; also after an error.
  Status Apply(const BatchCall& call, const ApplyArgs& args, bool* skipped, std::vector<uint8_t>* changed);
  // The token's rows may leave.
  void Release(uint64_t token) { calls_.Release(token); }
  // Everything that was ticked is at the store.
  Status Flush();

  struct TableStats {
    HetDevTableState state = {};
    uint64_t absent = 0;  // keys that were fetched because they were not there
  };
  // Zeros where the device is lost.
  Result<TableStats> Stats(uint64_t table);

  // For tests: the last training lookup had this stamp; the n-th allocation of device memory from now fails.
  void set_stamp(uint64_t stamp) { calls_.set_stamp(stamp); }
  void FailAllocation(uint64_t n) { library_->HetDevFailAllocation(context_, n); }
  // And for tests: a row; `row` gets its row_floats.
  HetDevRowState Inspect(uint64_t table, Key key, float* row);
  // And for tests: this library, with functions of theirs, from now on.
  void set_library(const DeviceLibrary* library) { library_ = library; }

 private:
  struct Batch;
  // Memory of the device that grows, for ids and rows of callers that have theirs on the host.
  struct Scratch {
    void* memory = nullptr;
    size_t bytes = 0;
  };
  struct Export {
    DeviceTable* table;
    HetDevUpdates updates;
    bool evicted;       // all of them
    uint64_t left = 0;  // so many of them, where not all: rows of a call
  };

  // device_tables.cc: tables, and what every call begins with
  Status Open();
  Status Begin(HetDevStream stream, bool* went);
  Status CatchUp(HetDevStream stream, bool* went);
  Status StartStampsAgain();
  Status Failed(int answer, const std::string& doing);
  void Gave(const HetDevExport& given, Span<DeviceTable* const> tables, bool evicted);
  void PushExports();
  void DestroyDoomed();

  // device_step.cc: a step
  Status Describe(const BatchCall& call, Batch* batch);
  Status CopyIdsIn(const BatchCall& call, Batch* batch);
  Status CopyGradientsIn(const BatchCall& call, Span<const float* const> gradients, Batch* batch);
  Status Room(Scratch* scratch, size_t bytes, const Batch& batch);
  void Trim(Scratch* scratch);
  void Place(const DeviceCalls::Step& step, Batch* batch);
  Status LookupRows(Batch* batch, const DeviceCalls::Step& step, bool training);
  Status Sum(Batch* batch, const DeviceCalls::Step& step, const ApplyArgs& args, HetDevSummed* summed);
  Status Tick(Batch* batch, const DeviceCalls::Step& step, const HetDevSummed& summed,
              std::vector<uint8_t>* changed);

  // device_fetch.cc: from the store to the device
  Status Fetch(Batch* batch, HetDevCall* call, const HetDevWanted& wanted, bool training, bool* went);

  Client* const client_;
  const PartitionId store_;
  const DeviceLibrary* library_ = nullptr;
  HetDevContext* context_ = nullptr;
  std::map<uint64_t, std::unique_ptr<DeviceTable>> tables_;
  std::vector<HetDevTable*> doomed_;  // to be destroyed when exports_ are sent
  DeviceCalls calls_;
  Scratch ids_, floats_;
  Status lost_;
  std::vector<Export> exports_;  // in the context's memory until it is used again

  // Of Fetch: used again.
  struct Fetched;
  std::unique_ptr<Fetched> fetched_;
};

}  // namespace het
