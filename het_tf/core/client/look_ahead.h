// Rows of batches whose lookups will come.
//
//   Begin(batch)  in the cache ─► held                        Follow: the answers come
//                 absent       ─► fetched  ────────────────►  a transient line, held
//   the lookup    the line is read and checked like any other that is cached; the policy and the
//                 admission filter hear of it now, as if it had just been fetched;
//                 on its way: waited for, then checked        (I2 counts from the lookup)
//
// So what a lookup reads is what it would have read: rows were fetched earlier, and that is all.
// Without evictions not even the moment of a push changes.
//
// With check_ahead (CachedRead) the rows that are in the cache are asked about here, like those of
// a lookup. A row whose answer has come is fresh for the next lookup of its table and check_ahead
// more, and they do not check it: I2 counts from here. A lookup that finds the question on its way
// waits for the answer. A subscribed row (subscriptions.h) is fresh at once, by the last answer of its
// partition: one that is named before its lookup comes is read all the same, and fetched by the next
// read ahead. That is what bounds I3: each of the others has made at most so many steps more, where
// workers go in step. Reads without training check, always: nothing counts them.
//
// A batch has no name. What is known of it is known by row: lines are held, and fresh, until a
// number of a lookup (cache/lookup_numbers.h). Rows of a batch that is never looked up (an iterator
// that was left, ids that were changed on their way to the layer) leave when their number has passed.
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "het_tf/core/client/asker.h"
#include "het_tf/core/client/cached_rows.h"
#include "het_tf/core/client/cached_tables.h"
#include "het_tf/core/client/push_builder.h"
#include "het_tf/core/client/rows_on_way.h"

namespace het {

class LookAhead {
 public:
  LookAhead(const CachedTables* tables, std::deque<Session>* sessions, Subscriptions* subscriptions,
            PushBuilder* pushes)
      : tables_(tables), sessions_(sessions), subscriptions_(subscriptions), pushes_(pushes) {}

  RowsOnWay* rows_on_way() { return &on_way_; }
  // Client::ReadAhead, without sending. Throws std::bad_alloc.
  void Begin(const CachedRead& wanted);
  // Answers are on their way.
  bool busy() const { return !reads_.empty(); }
  // A lookup reads these lines. In a training one those that were ahead are admitted or not, like
  // rows that have just come.
  void Use(TableCache* cache, bool training, Span<const uint32_t> lines);
  // A read ahead was answered about these rows.
  static void SetFresh(const TableRead& answered);
  // After answers have come: forgets what is no longer on its way, and asks for reads that waited
  // for it.
  void Follow();
  void Drop();

 private:
  void AskLate(const RowsOnWay::Late& late);

  const CachedTables* const tables_;
  std::deque<Session>* const sessions_;
  Subscriptions* const subscriptions_;
  PushBuilder* const pushes_;
  RowsOnWay on_way_;
  std::deque<std::unique_ptr<ReadOp>> reads_;  // oldest first; their parts: those that are not answered
};

}  // namespace het
