// Reads under way of tables whose cache is on a device (device_rows.h).
//
// They are sent, sent again and answered like others. What differs: there is no line that an
// answer goes into and that remembers, until the read is over, what has happened to it. So where a
// base or a row that was given already must not be trusted any more, because the partition's
// incarnation changed or the table was loaded, the whole part is asked anew, as fetches.
#pragma once

#include <vector>

#include "het_tf/core/client/client.h"
#include "het_tf/core/client/row_sink.h"
#include "het_tf/ext/gpu/cc/device_rows.h"

namespace het {

class DeviceSink;

class ReadsUnderWay : public DeviceReads {
 public:
  void AskAnew(Session* session) override;
  void Notified(uint32_t partition, const Reply& reply) override;

 private:
  friend class DeviceSink;
  std::vector<DeviceSink*> sinks_;
};

// The read is under way as long as its sink is there. A row's place is its position in its DeviceRead::Part.
class DeviceSink : public RowSink {
 public:
  // `training`: its rows may enter the cache, and it subscribes to them.
  DeviceSink(ReadsUnderWay* all, ReadOp* op, const DeviceRead& read, bool training);
  ~DeviceSink() override;
  bool subscribes() const override { return training_; }
  // Asks about all rows.
  void Classify(const CachedTables& tables, Asker* asker);
  size_t Take(const TableRead& asked, const TableAnswer& answer, ReplyRows* rows) override;
  void AskAnew(Session* session);
  void Notified(uint32_t partition, const Reply& reply);

 private:
  ReadsUnderWay* const all_;
  ReadOp* const op_;
  const DeviceRead& read_;
  const bool training_;
};

}  // namespace het
