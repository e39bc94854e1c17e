// Reads under way of tables whose cache is on a device (device_rows.h).
//
// They are sent, sent again and answered like others. What differs: there is no line that an
// answer goes into and that remembers, until the read is over, what has happened to it. So where a
// base or a row that was given already must not be trusted any more, because the partition's
// incarnation changed or the table was loaded, the whole part is asked anew, as fetches.
#pragma once

#include <vector>

#include "het_tf/core/client/row_sink.h"
#include "het_tf/core/client/session.h"

namespace het {

class DeviceReads {
 public:
  // All that reads want of this partition is fetched, whatever was answered already.
  void AskAnew(Session* session);

 private:
  friend class DeviceSink;
  std::vector<ReadOp*> reads_;
};

// The read is under way as long as its sink is there.
class DeviceSink : public RowSink {
 public:
  DeviceSink(DeviceReads* all, ReadOp* op);
  ~DeviceSink() override;
  void Take(const TableRead& asked, const TableAnswer& answer, ReplyRows* rows) override;
  void Renew(TableRead*) override {}  // what has become invalid is asked for by AskAnew

 private:
  DeviceReads* const all_;
  ReadOp* const op_;
};

}  // namespace het
