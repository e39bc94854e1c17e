// Sinks take the rows of answers. A sink belongs to one read, and has the rules of its kind of read:
//
//   LineSink     a training read: into lines of the cache, which stay for its step
//   PrivateSink  a read without training: cached rows are refreshed, others go to the read alone
//   DeviceSink   into memory that the caller gave, for a cache on a device (ext/gpu/cc/device_reads.h)
//
// The first two keep rows in lines. Such a sink looks up the line of every row once, when the read begins,
// and keeps the number of the line by the row's place in the read. It looks up an absent row once more, when
// the answer comes, since another read may have brought the row. The numbers stay valid as long as the sink
// exists. A training read holds each line from the moment when it finds or inserts it until it waits no
// longer (LookupNumbers::BeginWaiting), and a read without training holds all lines of its tables
// (BeginReading). A held line never leaves, so no other row gets its number: code that forgets rows only
// makes it invalid (TableCache::Drop).
//
// A partition sends each row as of push `applied`: every sink must put the later own updates on top.
// Functions throw std::bad_alloc: rows that were taken stay taken.
#pragma once

#include <map>
#include <utility>

#include "het_tf/core/client/cached_tables.h"
#include "het_tf/core/client/partition_read.h"
#include "het_tf/core/client/push_log.h"
#include "het_tf/core/wire/reply.h"

namespace het {

class Asker;

// A partition's answer about one table.
struct TableAnswer {
  uint32_t partition;
  PushLog* log;
  uint64_t applied;  // the newest own push that the rows contain
  const TableReply& reply;
  bool subscribed;  // the partition notifies of rows that were asked for when they move
};

class RowSink {
 public:
  virtual ~RowSink() = default;
  // Whether the read subscribes to its rows, and may trust those that it is subscribed to (subscriptions.h).
  virtual bool subscribes() const { return false; }
  // `rows` stands at the first row of the answer, and then behind the last of those that were
  // asked for. Returns how many of the fetched rows were absent.
  virtual size_t Take(const TableRead& asked, const TableAnswer& answer, ReplyRows* rows) = 0;
  // Call before a question is asked again: turns checks of lines that have become invalid into fetches.
  virtual void Renew(TableRead*) {}
  // All answers have come: lines and values of every key.
  virtual void FillIn(CachedRead*) {}
};

// Makes x the row of an answer, with frames that it lacks on top; row null: it does not exist at
// the server. Returns the ticks of those frames.
uint64_t FillRow(const TableSchema& schema, Key key, const float* row, PushLog* log, uint64_t applied,
                 float* x);

class CacheSink : public RowSink {
 public:
  explicit CacheSink(const CachedTables* tables) : tables_(tables) {}
  // Finds the lines of all rows, and asks about them.
  void Classify(const CachedRead& read, Asker* asker);
  size_t Take(const TableRead& asked, const TableAnswer& answer, ReplyRows* rows) override;
  void Renew(TableRead* asked) override;
  void FillIn(CachedRead* read) override;

 protected:
  // Begins the read of a table: from here on its lines stay.
  virtual void Enter(TableCache* cache) = 0;
  // Call with the lines of the rows that it wants; kNoRow: the row is absent.
  virtual void Meet(TableCache*, Span<const uint32_t>) {}
  virtual void Hold(TableCache*, uint32_t) {}
  // A row that was fetched and is not in the cache. Returns its line, kNoRow if it has none.
  struct Fetched {
    Key key;
    uint64_t hash;
    Clock clock;
    const float* row;
  };
  virtual uint32_t TakeAbsent(TableCache* cache, const Fetched& fetched, const TableAnswer& answer) = 0;
  // The value of a row that has no line.
  virtual const float* ValueOf(CachedRead*, const TableCache*, Key) { return nullptr; }

  const CachedTables* const tables_;

 private:
  Vector<uint32_t> lines_;  // of all rows of the read, by place; kNoRow: it has not come
};

class LineSink : public CacheSink {
 public:
  // `step`: of the lookup; kNoStep: it brings rows that a gradient misses, without a lookup.
  explicit LineSink(const CachedTables* tables, uint64_t step = LookupNumbers::kNoStep)
      : CacheSink(tables), step_(step) {}
  ~LineSink() override;
  bool subscribes() const override { return true; }

 protected:
  void Enter(TableCache* cache) override;
  void Meet(TableCache* cache, Span<const uint32_t> lines) override;
  void Hold(TableCache* cache, uint32_t line) override;
  uint32_t TakeAbsent(TableCache* cache, const Fetched& fetched, const TableAnswer& answer) override;

 private:
  const uint64_t step_;
  Vector<std::pair<TableCache*, uint32_t>> waiting_;  // of BeginWaiting
};

class PrivateSink : public CacheSink {
 public:
  using CacheSink::CacheSink;
  ~PrivateSink() override;

 protected:
  void Enter(TableCache* cache) override;
  uint32_t TakeAbsent(TableCache* cache, const Fetched& fetched, const TableAnswer& answer) override;
  const float* ValueOf(CachedRead* read, const TableCache* cache, Key key) override;

 private:
  Vector<TableCache*> reading_;
  std::map<std::pair<const TableCache*, Key>, Vector<float>> fetched_;
};

}  // namespace het
