// What of a client serves tables whose cache is on a device (device_rows.h): reads that give rows
// away, and pushes of updates that come from there.
//
// Their TableCache has the schema, bounds, counters, and numbers of lookups, and never a
// line. The device's side tells it of each training lookup (TableCache::BeginLookup), and counts what the
// protocol does not see: reads, hits, inserts, evictions, transient_rows, ticks, discarded_ticks.
#pragma once

#include <memory>

#include "het_tf/core/client/client.h"
#include "het_tf/ext/gpu/cc/device_reads.h"
#include "het_tf/ext/gpu/cc/device_rows.h"

namespace het {

class DeviceClient {
 public:
  // A client has one, which ends before it.
  explicit DeviceClient(Client* client) : to_(client->parts()) { to_.answers->set_devices(&reads_); }
  ~DeviceClient() { to_.answers->set_devices(nullptr); }
  DeviceClient(const DeviceClient&) = delete;
  DeviceClient& operator=(const DeviceClient&) = delete;

  Status AddTable(const Schema& schema, const CacheConfig& config, DeviceLines* lines);
  // OK if the table is cached on a device. The calls below check it, too.
  Status Check(uint64_t table) const;
  // Fills in every part. After an error nothing of it is to be used.
  Status Read(DeviceRead* read, bool training);
  // The same, step by step: Client::Progress until it is done.
  std::unique_ptr<ReadOp> BeginRead(DeviceRead* read, bool training);
  // Puts the updates into frames and sends those that can be sent. Fails only as Check does; after
  // that, or after std::bad_alloc, no update was taken. Wait reports failures of the network.
  Status Push(const DevicePush& push);
  // Frames of pushes to come are numbered from here on.
  uint64_t next_frame() const { return to_.pushes->next_frame(); }
  // Ends a step: waits until pushes of device tables with a push bound are applied, and until kept frames
  // are within their limit. Frames from `of_step` on are of this step: it waits for them only where a row has
  // more ticks than the push bound. The step must have pushed each row at most once. After an error frames
  // are kept and will be sent.
  Status Wait(uint64_t of_step = UINT64_MAX);

 private:
  // The frames of a push for one partition.
  struct Frames {
    std::vector<PushFrame> frames;
    size_t bytes = 0;  // of the last one's rows
  };

  // Puts the updates into frames. Throws with nothing taken.
  void Take(const DevicePush& push);
  void Sort(const DevicePush::Part& part, const TableCache& cache, Vector<Frames>* made) const;

  const Client::Parts to_;
  ReadsUnderWay reads_;
};

}  // namespace het
