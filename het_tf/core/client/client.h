// A worker's side of the clock protocol: caches of a store of partitions, for all cached tables of an engine.
//
// 1. Operation. Read brings every requested row into the cache and within the pull bound; Write ticks
//    rows and pushes those past the push bound. docs/protocol.md has the invariants (I1-I5) and their
//    reasons. In short, with b the ticks that a cached row contains, p its unsent ticks, g the server's:
//
//      read    cached ─► check (key, b), if SyncPolicy requires it; absent ─► fetch. One request a
//              partition, all at once (Asker, Exchange). The answer (v, g, applied):
//              x = unsent ∘ frames after `applied` ∘ v,   b = g + ticks of those frames
//              (RowSink, PushLog)
//      write   x <- optimizer(x, G); p += 1; due updates ─► into a numbered frame, b += p, p = 0
//              (SyncPolicy, PushBuilder); wait if the bound requires it (Waiter). If the stream tells
//              the other workers' use, rows that no other worker needs stay unsent (OthersUse). If a
//              table limits the age of unsent ticks, Progress sends them, too (UnsentAges)
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
//    again; unsent updates stay.
//
// 3. Failures (Session, Exchange, Waiter) are retried with backoff until there was no progress for
//    `deadline`: no frame applied, no read answered. Then the call fails with a message that names the
//    partition, its server, the time and the reason. No tick is lost: frames stay and are sent by the
//    next call.
//
// 4. Durability (PushDurability). An applied frame is dropped at once (kApplied), when enough
//    replicas have it (kReplicated), or when a checkpoint has it (kCheckpoint, MarkDurable).
//
// 5. Memory. Calls throw std::bad_alloc. A Write that throws has changed nothing; if memory runs out
//    after the ticks it returns ResourceExhausted, and keeps its updates. After either, the client may
//    be used or destroyed: the next call resets all connections, repeats all requests in flight, and
//    begins early lookups again.
//
// 6. Processes. A forked child has no client: the engine refuses it (base/after_fork.h).
//
// Concurrency: not thread-safe; the engine locks. A call may wait for the network, so one lock
// means one call at a time. BeginRead and Progress let a test have several reads in flight.
#pragma once

#include <cmath>
#include <memory>

#include "het_tf/core/base/parallel.h"
#include "het_tf/core/client/cache_reader.h"
#include "het_tf/core/client/cache_writer.h"
#include "het_tf/core/client/cached_rows.h"
#include "het_tf/core/client/cached_tables.h"
#include "het_tf/core/client/client_answers.h"
#include "het_tf/core/client/client_config.h"
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

  Status AddTable(const Schema& schema, const CacheConfig& config);
  void RemoveTable(uint64_t table);

  // Args:
  //   read  unique keys by table and partition; gets rows and values of every part.
  //   step  a number that is unique to the lookup: a table counts its lookups, and the rows stay until
  //         Write, or until newer lookups have come (cache/lookup_numbers.h). 0: no training; rows are
  //         neither admitted to the cache nor counted as used.
  Status Read(CachedRead* read, uint64_t step);
  // Begins the training read of a future lookup: Read with the same keys and step then waits only for the
  // missing rows. Several may have begun. Never waits; errors are reported by the lookup.
  void ReadEarly(CachedRead* read, uint64_t step);
  // The planned lookup of this number will use the row, if it is in the cache.
  void SetNextUse(uint64_t table, Key key, uint64_t hash, uint32_t planned);
  // Whether answers to such reads are in flight.
  bool EarlyOnWay() const { return early_.busy(); }
  // Whether notifications are outstanding: the next lookup could trust no row of those partitions.
  bool asking() const { return subscriptions_.asking(); }
  // Ticks every touched key. After an error: ticks that were made are kept and will be sent; if a
  // missing row could not be fetched, nothing has changed.
  // Args:
  //   write  the parts of Read, with the sums of gradients, which it overwrites. Its rows may leave then.
  //   step   the lookup's.
  //   pool   ticks many rows; may be null for few.
  Status Write(CachedWrite* write, uint64_t step, ThreadPool* pool) {
    return writer_.Write(write, step, pool);
  }
  // The rows of a step's lookup may leave: there will be no Write.
  void EndLookup(uint64_t step) {
    early_.Drop(step);
    for (const auto& [id, cache] : tables_) cache->numbers().End(step);
  }
  // Pushes all rows past their push bound, which on-demand writes may have held back (OthersUse), and waits
  // until they are applied.
  Status PushPastBound();
  // Pushes all updates, except those that a device has not pushed yet, and waits until they are applied.
  Status Flush();
  // All applied frames are durable: they need not be kept.
  void MarkDurable() { durability_.MarkDurable(); }
  // Whether work is pending: frames, requests, losses to report, or ticks that reach their age. Then call
  // Progress within Due() seconds, even if nothing arrives.
  bool Busy() const {
    return exchange_.busy() || durability_.busy() || losses_.any() || std::isfinite(pushes_.age_due());
  }
  double Due() const;
  // Whether ticks have reached their age, and Progress would send them.
  bool PastAge() const { return tables_.limits_ages() && pushes_.age_due() <= exchange_.Now(); }

  // The rows were changed at the store: drops them with their unsent updates.
  void Invalidate(uint64_t table, Span<const Key> keys);
  void ForgetTable(uint64_t table);
  // Drops lines without unsent updates, so that later reads come from the store.
  void ForgetClean();
  // Tables are about to be loaded: empties all caches, discards and reports unsent updates, and takes a
  // new client id.
  void Reload();

  const Counters& Stats(uint64_t table) { return tables_.at(table).counters(); }
  bool HasTable(uint64_t table) const { return tables_.Find(table) != nullptr; }
  TableCache* cache(uint64_t table) { return &tables_.at(table); }
  const Session& session(uint32_t partition) const { return exchange_.sessions()[partition]; }
  // Returns this worker's ticks of key that are not known to be applied: in its line, queued, in frames;
  // for a table with a cache on a device: in frames.
  uint64_t UnappliedTicks(uint64_t table, Key key) { return writer_.UnappliedTicks(table, key); }

  // What reads and pushes for caches on a device are made of (ext/gpu/cc/device_client.h).
  struct Parts {
    CachedTables* tables;
    Exchange* exchange;
    Subscriptions* subscriptions;
    PushBuilder* pushes;
    Waiter* waiter;
    CacheReader* reader;
    ClientAnswers* answers;
  };
  Parts parts() { return {&tables_, &exchange_, &subscriptions_, &pushes_, &waiter_, &reader_, &answers_}; }

  // --- the same, step by step
  std::unique_ptr<ReadOp> BeginRead(CachedRead* read, uint64_t step) { return reader_.Begin(read, step); }
  // Sends requests and handles replies; waits at most `wait` seconds for the first event.
  void Progress(double wait);
  // Waits until the op is done, and fills in rows and values, or returns the error.
  Status FinishRead(ReadOp* op) { return reader_.Await(op); }

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
  EarlyReads early_;
  ClientAnswers answers_;
  bool interrupted_ = false;  // memory ran out within Progress
};

}  // namespace het
