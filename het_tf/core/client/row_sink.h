// Where the rows of an answer go. A sink belongs to one read, and knows what is special about its
// kind of read:
//
//   LineSink     a training read: into lines of the cache
//   PrivateSink  a read without training: cached rows are refreshed, others go to the read alone
//   DeviceSink   into memory that the caller gave, for a cache on a device (device_rows.h)
//
// Whatever the partition sends is the row as it had it after push `applied`: every sink puts the
// own updates on top that this lacks. Functions throw std::bad_alloc: rows that were taken stay
// taken.
#pragma once

#include "het_tf/core/client/partition_read.h"
#include "het_tf/core/client/push_log.h"
#include "het_tf/core/wire/reply.h"

namespace het {

// What a partition answered about one table.
struct TableAnswer {
  PushLog* log;
  uint64_t applied;  // the newest own push that the rows contain
  const TableReply& reply;
  bool subscribed;  // the partition tells when rows that were asked for move
};

class RowSink {
 public:
  virtual ~RowSink() = default;
  // A row that the read wants is cached in this line: it is to stay.
  virtual void Hit(TableCache*, uint32_t) {}
  // `rows` stands at the first row of the answer, and then behind the last of those that were
  // asked for.
  virtual void Take(const TableRead& asked, const TableAnswer& answer, ReplyRows* rows) = 0;
  // The question is about to be asked once more: what has become invalid since is fetched.
  virtual void Renew(TableRead* asked);
};

// Makes x the row of an answer, with frames that it lacks on top; row null: it does not exist at
// the server. Returns the ticks of those frames.
uint64_t FillRow(const TableSchema& schema, Key key, const float* row, PushLog* log, uint64_t applied,
                 float* x);
// Makes `line` the row of an answer, with every own update on top.
void FillLine(TableCache* cache, uint32_t line, Clock clock, const float* row, PushLog* log,
              uint64_t applied);

class CacheSink : public RowSink {
 public:
  explicit CacheSink(ReadOp* op) : op_(op) {}
  void Take(const TableRead& asked, const TableAnswer& answer, ReplyRows* rows) override;

 protected:
  virtual void Hold(TableCache*, uint32_t) {}
  // admit[i] becomes whether fetch i may enter the cache.
  virtual void Admit(TableCache*, const Vector<Key>&, Vector<uint8_t>*) {}
  struct Fetched {
    Clock clock;
    const float* row;
    bool admit;  // it may enter the cache
  };
  // A row that was fetched and is not in the cache.
  virtual void TakeAbsent(TableCache* cache, Key key, const Fetched& fetched, const TableAnswer& answer) = 0;

  ReadOp* const op_;
};

class LineSink : public CacheSink {
 public:
  using CacheSink::CacheSink;
  void Hit(TableCache* cache, uint32_t line) override;

 protected:
  void Hold(TableCache* cache, uint32_t line) override;
  void Admit(TableCache* cache, const Vector<Key>& fetches, Vector<uint8_t>* admit) override;
  void TakeAbsent(TableCache* cache, Key key, const Fetched& fetched, const TableAnswer& answer) override;
};

class PrivateSink : public CacheSink {
 public:
  using CacheSink::CacheSink;

 protected:
  void TakeAbsent(TableCache* cache, Key key, const Fetched& fetched, const TableAnswer& answer) override;
};

}  // namespace het
