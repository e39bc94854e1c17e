// All tables of one engine whose caches are in device memory: translates the engine's calls, in terms of
// tables and tokens, into calls of the library (ext/gpu/cc/abi.h) and of the client (device_rows.h).
//
//   lookup   HetDevLookup ─► wanted ─► DeviceClient::Read ─► HetDevInstall ─► victims ─► DeviceClient::Push
//                 └► HetDevGather
//   apply    HetDevSum ─► wanted, as above, and again ─► HetDevTick ─► due ─► DeviceClient::Wait
//   the next call, whatever it is: HetDevCollect ─► DeviceClient::Push; within the step, if a bound needs it
//   flush    HetDevTake ─► DeviceClient::Push, until nothing is left ─► Client::Flush
//
// Ownership: the library's context, tables and calls belong to this object, rows and unsent updates to the
// device, numbered and in-flight frames to the client. An update is always in one place: on the device; once
// exported, in the context's host memory (exports_), from which the client takes it before the context is
// used again; or in a frame. Those of a tick stay there until the next call.
//
// Events of cached rows that come from the client (DeviceTable) are applied to the device at the beginning of
// the next call, and between a read and its installation.
//
// Locks: all methods are called with the engine's lock on the client held, and may wait for the device and
// for the store. Nothing here takes a lock, or runs on the background push thread: that one uses only the
// client, whose events wait in flags.
//
// Errors. Out of device memory: ResourceExhausted; rows, clocks and updates are unchanged. A failed device
// (HET_DEV_FAILED): Internal, and every later call except Stats fails: its contents are lost, and the message
// says how many ticks were.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/plan/batch_call.h"
#include "het_tf/ext/gpu/cc/device_calls.h"
#include "het_tf/ext/gpu/cc/device_client.h"
#include "het_tf/ext/gpu/cc/device_table.h"

namespace het {

class DeviceTables {
 public:
  // `store`: any of its partitions.
  DeviceTables(Client* client, const PartitionId& store);
  ~DeviceTables();
  DeviceTables(const DeviceTables&) = delete;
  DeviceTables& operator=(const DeviceTables&) = delete;

  // Creates a table's cache, before the client has the table; ConnectWithClient follows when it has. The
  // cache ends after the table. FailedPrecondition: there is no device. ResourceExhausted: it does not fit.
  Status Add(const Schema& schema, const CacheConfig& config);
  Status ConnectWithClient(uint64_t table, const CacheConfig& config);
  void Remove(uint64_t table);

  // As in Steps. All tables of the call must be on the device. `token` 0: without training.
  Status Lookup(const BatchCall& call, Span<float* const> out, uint64_t token);
  // *changed: for each table, whether it was ticked; set also after an error.
  Status Apply(const BatchCall& call, const ApplyArgs& args, std::vector<uint8_t>* changed);
  // The token's rows may be evicted.
  void Release(uint64_t token) { calls_.Release(token); }
  // Sends all ticked updates to the store.
  Status Flush();

  struct TableStats {
    HetDevTableState state = {};
    uint64_t absent = 0;  // keys that were fetched because they were absent
  };
  // All zeros if the device is lost.
  Result<TableStats> Stats(uint64_t table);

  // For tests: sets the last training lookup's stamp; the n-th device allocation from now fails.
  void set_stamp(uint64_t stamp) { calls_.set_stamp(stamp); }
  void FailAllocation(uint64_t n) { library_->HetDevFailAllocation(context_, n); }
  // For tests: reads a row, after updates that were to leave; `row` gets its row_floats.
  HetDevRowState Inspect(uint64_t table, Key key, float* row);

 private:
  struct Batch;
  // Growing device memory, for rows and gradients of callers with host memory.
  struct Scratch {
    void* memory = nullptr;
    size_t bytes = 0;
  };
  struct Export {
    DeviceTable* table;
    HetDevUpdates updates;
    bool evicted;       // all of the updates were of evicted rows
    bool there;         // its keys, ticks, clocks and updates are; else Collect has to wait for them
    uint64_t left = 0;  // of a tick: updates of rows that stayed with a call
  };

  // device_tables.cc: tables, and what every call begins with
  Status Open();
  Status Begin(HetDevStream stream, bool* went);
  Status CatchUp(HetDevStream stream, bool* went);
  Status StartStampsAgain();
  // Of the library's answer; Done: or OK.
  Status Failed(int answer, const std::string& doing);
  Status Done(int answer, const Batch& batch);
  void Gave(const HetDevExport& given, Span<DeviceTable* const> tables, bool evicted);
  Status Collect();
  void PushExports();
  void DestroyDoomed();

  // device_step.cc: a step
  Status Describe(const BatchCall& call, Batch* batch);
  Status CopyGradientsIn(const BatchCall& call, Span<const float* const> gradients, Batch* batch);
  Status Room(Scratch* scratch, size_t bytes, const Batch& batch);
  void Trim(Scratch* scratch);
  void Place(const DeviceCalls::Step& step, Batch* batch);
  void CountRead(const Batch& batch, const HetDevWanted& wanted);
  Status LookupRows(Batch* batch, const DeviceCalls::Step& step, bool training);
  Status Sum(Batch* batch, const DeviceCalls::Step& step, const ApplyArgs& args, HetDevSummed* summed);
  bool MayPushLate(const Batch& batch, const HetDevSummed& summed) const;
  Status Tick(Batch* batch, const DeviceCalls::Step& step, const HetDevSummed& summed,
              std::vector<uint8_t>* changed);

  // device_fetch.cc: from the store to the device. With batch->asks also asks which rows have moved.
  Status Fetch(Batch* batch, HetDevCall* call, const HetDevWanted& wanted, bool training, bool* went);

  Client* const client_;
  DeviceClient devices_;
  const PartitionId store_;
  const DeviceLibrary* library_ = nullptr;
  HetDevContext* context_ = nullptr;
  std::map<uint64_t, std::unique_ptr<DeviceTable>> tables_;
  std::vector<HetDevTable*> doomed_;  // destroyed when exports_ are sent
  DeviceCalls calls_;
  Scratch floats_;
  Status lost_;
  std::vector<Export> exports_;  // in the context's memory until it is used again

  // Reused by Fetch.
  struct Fetched;
  std::unique_ptr<Fetched> fetched_;
};

}  // namespace het
