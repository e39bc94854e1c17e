// Rows of batches whose lookups will come.
//
//   Begin(batch)       in the cache ─► held                       Follow: the answers come
//                      absent       ─► fetched  ───────────────►  a transient line, held
//   the lookup         the line is read and checked like any other that is cached; the policy and
//                      the admission filter hear of it now, as if it had just been fetched;
//                      on its way: waited for, then checked       (I2 counts from the lookup)
//   ... has succeeded  nothing is held any more
//
// So what a lookup reads is what it would have read: rows were fetched earlier, and that is all.
// Without evictions not even the moment of a push changes.
//
// With check_ahead (CachedRead) the rows that are in the cache are asked about here, like those of
// a lookup, and I2 counts from here: the lookup waits until all of it is answered, and asks about
// nothing but rows that have become invalid since. It checks all the same where a row of the batch
// was left out here, an answer did not come, or more than check_ahead training reads of its kind
// came in between. That is what bounds I3: each of the others has made at most so many steps more,
// where workers go in step.
//
// A batch is known by its keys and its kind. One that is never looked up (an iterator that was
// left, ids that were changed on their way to the layer) is let go after kPatience other training
// reads of its kind.
#ifndef HET_TF_CORE_CLIENT_LOOK_AHEAD_H_
#define HET_TF_CORE_CLIENT_LOOK_AHEAD_H_

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
  LookAhead(const CachedTables* tables, std::deque<Session>* sessions, PushBuilder* pushes)
      : tables_(tables), sessions_(sessions), pushes_(pushes) {}

  RowsOnWay* rows_on_way() { return &on_way_; }
  // Client::ReadAhead, without sending. Throws std::bad_alloc, and then nothing is held.
  void Begin(const CachedRead& wanted);
  // Rows are on their way.
  bool busy() const;
  // The read's rows are asked about ahead, and not all answers have come.
  bool Awaited(CachedRead* read) const;
  // They were, and all have: the lookup need not check.
  bool Checked(CachedRead* read) const;
  // A lookup reads these lines. In a training one those that were ahead are admitted or not, like
  // rows that have just come.
  void Use(TableCache* cache, uint64_t token, Span<const uint32_t> lines);
  // After answers have come: forgets what is no longer on its way, and asks for reads that waited
  // for it.
  void Follow();
  // A lookup has succeeded: its batch is ahead no longer.
  void Finished(const ReadOp& lookup);
  void Drop();

 private:
  // A batch whose lookup will come.
  struct Batch {
    ReadOp op;  // its parts: those that are not answered
    uint64_t kind = 0;
    uint64_t fingerprint = 0;
    std::map<const TableCache*, size_t> rows;  // that are held, or on their way
    size_t passed = 0;                         // training reads of its kind that had other keys
    size_t check_ahead = 0;                    // as in CachedRead; 0, too, where a row was left out
  };

  size_t Room(const TableCache& cache, const Batch& beginning) const;
  const Batch* CheckedBatch(CachedRead* read) const;
  void AskLate(const RowsOnWay::Late& late);
  void Release(size_t which);

  const CachedTables* const tables_;
  std::deque<Session>* const sessions_;
  PushBuilder* const pushes_;
  RowsOnWay on_way_;
  std::deque<std::unique_ptr<Batch>> batches_;  // oldest first
};

}  // namespace het

#endif  // HET_TF_CORE_CLIENT_LOOK_AHEAD_H_
