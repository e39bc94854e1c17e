// A worker's side of the clock protocol: caches before a store of partitions, for all cached
// tables of one engine.
//
// 1. What it does. Read makes sure that every asked row is in the cache and within the pull bound;
//    Write ticks rows and pushes what is past the push bound. What must hold (I1-I5) and why is in
//    docs/protocol.md. In short, with b the ticks that a cached row contains, p its unsent ticks,
//    g the server's:
//
//      read    cached ─► check (key, b), if SyncPolicy says so; absent ─► fetch. One request a
//              partition, all at once (Asker, Exchange). The answer (v, g, applied):
//              x = unsent ∘ frames after `applied` ∘ v,   b = g + ticks of those frames
//              (RowSink, PushLog)
//      write   x <- optimizer(x, G); p += 1; what is due ─► into a numbered frame, b += p, p = 0
//              (SyncPolicy, PushBuilder); wait where the bound asks for it (Waiter). Where the stream says
//              what other workers use, rows that nobody else needs stay (OthersUse)
//
//    For example, with sgd at rate 1, pull_bound 0 and push_bound 2: the server has row 7 at clock
//    5 with value 10. Read of 7 fetches it: b = 5, value 10. Write with gradient 1 makes the value
//    9 and p = 1, and sends nothing. Another worker pushes a tick of 4: the server has clock 6,
//    value 6. Read of 7 checks (7, 5): the clock is more than 0 past it, so the row comes back;
//    the unsent update goes on top: b = 6, value 5. Flush sends p = 1, and the server has clock 7,
//    value 5.
//
// 2. Exactly once (PushLog, Session). Frames of a partition are numbered without gaps, kept until
//    durable, and sent again in order after any failure; the partition skips what it has applied
//    and refuses a gap. When its incarnation has changed, bases are invalid and rows are fetched
//    anew; unsent updates stay.
//
// 3. Failures (Session, Exchange, Waiter) are retried with backoff until nothing has moved on for
//    `deadline`: no frame applied, no read answered. Then the call fails with a message that says
//    which partition, where it is, since when, and why. Nothing that was ticked is lost by that:
//    frames stay and go out with the next call.
//
// 4. Durability (PushDurability). An applied frame is forgotten at once (kApplied), when enough
//    replicas hold it (kReplicated), or when a checkpoint does (kCheckpoint, MarkDurable).
//
// 5. Memory. Calls throw std::bad_alloc. A Write that throws has changed nothing; one that runs
//    out of memory after it has ticked returns ResourceExhausted, and its updates are kept. After
//    either, the client may be used or destroyed: the next call gives up all connections and asks
//    and sends again what was on its way; lookups that began early begin anew.
//
// 6. Processes. A child of fork has no client: the engine's edge refuses it (base/after_fork.h).
//
// Concurrency: not thread-safe; the engine locks. A call may wait for the network, so one lock
// means one call at a time. BeginRead and Progress let a test have several reads on their way.
#pragma once

#include <memory>

#include "het_tf/core/base/parallel.h"
#include "het_tf/core/client/cache_reader.h"
#include "het_tf/core/client/cache_writer.h"
#include "het_tf/core/client/cached_rows.h"
#include "het_tf/core/client/cached_tables.h"
#include "het_tf/core/client/client_answers.h"
#include "het_tf/core/client/client_config.h"
#include "het_tf/core/client/device_client.h"
#include "het_tf/core/client/early_reads.h"
#include "het_tf/core/client/exchange.h"
#include "het_tf/core/client/loss_report.h"
#include "het_tf/core/client/messages.h"
#include "het_tf/core/client/partition_read.h"
#include "het_tf/core/client/push_builder.h"
#include "het_tf/core/client/push_durability.h"
#include "het_tf/core/client/subscriptions.h"
#include "het_tf/core/client/waiter.h"

namespace het {

class Client {
 public:
  explicit Client(Transport* transport, ClientConfig config = ClientConfig());
  ~Client();

  Status AddTable(const Schema& schema, const CacheConfig& config);
  void RemoveTable(uint64_t table);

  // Args:
  //   read  unique keys by table and partition; gets rows and values of every part.
  //   step  its number, another one for each lookup: a table counts the lookups that name it, and its
  //         rows stay until Write, or until newer lookups have come (cache/lookup_numbers.h). 0: no
  //         training; rows are neither admitted to the cache nor counted as used.
  Status Read(CachedRead* read, uint64_t step);
  // Begins the training read of a step whose lookup will come: Read with the same keys and step then waits
  // for what is missing alone. Several may have begun. Never waits itself; trouble is the lookup's to tell.
  void ReadEarly(CachedRead* read, uint64_t step);
  // The planned lookup of this number will use the row, if it is in the cache.
  void SetNextUse(uint64_t table, Key key, uint64_t hash, uint32_t planned);
  // Answers to such reads are on their way.
  bool EarlyOnWay() const { return early_.busy(); }
  // Partitions are to say what has moved: a read that began now could trust no row.
  bool asking() const { return subscriptions_.asking(); }
  // One tick for every touched key. After an error: the ticks that were made are kept and will be
  // sent; a row that had to be fetched first and could not be leaves everything unchanged.
  // Args:
  //   write  what Read was given, with the sums of gradients; uses them up. Its rows may leave then.
  //   step   of the lookup.
  //   pool   ticks many rows; may be null for few.
  Status Write(CachedWrite* write, uint64_t step, ThreadPool* pool) {
    return writer_.Write(write, step, pool);
  }
  // The rows of a step's lookup may leave: nothing of it will be written here.
  void EndLookup(uint64_t step) {
    early_.Drop(step);
    for (const auto& [id, cache] : tables_) cache->numbers().End(step);
  }
  // Pushes all rows that are past their push bound, and waits until they are applied: some may have been
  // held back (OthersUse).
  Status PushPastBound();
  // Pushes everything and waits until it is applied. Of tables on a device: what DeviceClient::Push was
  // given.
  Status Flush();
  // All applied frames are durable: they need not be kept.
  void MarkDurable() { durability_.MarkDurable(); }
  // Frames or questions are on their way, or will be, or losses are to be told: Progress is to be called, in
  // Due() seconds at the latest even if nothing comes.
  bool Busy() const { return exchange_.busy() || durability_.busy() || losses_.any(); }
  double Due() const;

  // The rows were changed behind the cache's back: forget them, with their unsent updates.
  void Invalidate(uint64_t table, Span<const Key> keys);
  void ForgetTable(uint64_t table);
  // Lines without unsent updates go: what is read next comes from the store.
  void ForgetClean();
  // Tables are about to be loaded: all caches are emptied, unsent updates discarded and told, and
  // this client is another one from now on. Nothing to do where they are to be kept (on_reload):
  // then the new epochs tell.
  void Reload();

  const Counters& Stats(uint64_t table) { return tables_.at(table).counters(); }
  bool HasTable(uint64_t table) const { return tables_.Find(table) != nullptr; }
  TableCache* cache(uint64_t table) { return &tables_.at(table); }
  const Session& session(uint32_t partition) const { return exchange_.sessions()[partition]; }
  // Ticks of key that this worker made and that no answer has shown to be applied: in its line,
  // queued, in frames. Of a table whose cache is on a device: in frames.
  uint64_t UnappliedTicks(uint64_t table, Key key) { return writer_.UnappliedTicks(table, key); }

  // Tables whose cache is on a device.
  DeviceClient& devices() { return devices_; }

  // --- the same, step by step
  std::unique_ptr<ReadOp> BeginRead(CachedRead* read, uint64_t step);
  // Sends what can be sent and handles what has come, waiting at most so long for the first event.
  void Progress(double wait);
  // Fills in rows and values, or returns the error. Call it when the op is done, or to abandon it.
  Status FinishRead(ReadOp* op);

 private:
  const ClientConfig config_;
  CachedTables tables_;
  Subscriptions subscriptions_;
  Exchange exchange_;
  PushBuilder pushes_;
  PushDurability durability_;
  LossReport losses_;
  Waiter waiter_;
  CacheReader reader_;
  CacheWriter writer_;
  DeviceClient devices_;
  EarlyReads early_;
  ClientAnswers answers_;
  bool interrupted_ = false;  // memory ended in the middle of Progress
};

}  // namespace het
