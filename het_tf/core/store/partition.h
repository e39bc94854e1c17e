// One slice of key space: all tables' rows whose keys hash into it, their clocks, and each client's last
// applied push. HandlePart() is the whole server logic; the embedded store (local_service.h) calls it
// directly, and the Redis module calls it for each part of a frame.
//
// One thread at a time owns a partition; the owner locks.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "het_tf/core/store/change_log.h"
#include "het_tf/core/store/client_names.h"
#include "het_tf/core/store/known_clients.h"
#include "het_tf/core/store/shard.h"
#include "het_tf/core/store/subscribers.h"
#include "het_tf/core/wire/parts.h"

namespace het {

// The mark of a load into several partitions, which no reader may see half of. The partition only keeps the
// mark; its owner refuses frames meanwhile. It expires, so that a dead loader does not block the store
// forever.
struct LoadMark {
  std::string loader;  // the loader's name, for messages and for the end
  uint32_t since = 0;
  uint32_t until = 0;

  // Limit on a mark's duration: a day.
  static constexpr uint32_t kMaxSeconds = TableLimits::kDay;
  bool holds(uint32_t now) const { return now < until && until - now <= kMaxSeconds; }
};

// Options for handling a part.
struct Handling {
  // The owner's time: stamps changed rows, and allows sweeps of the tables. 0: the part is a copy of one that
  // was applied elsewhere; it carries its time, and there is no sweep, since removals come as copies too.
  uint32_t now = 0;
  // The time of application elsewhere, if the sender of a copy gives it beside the frame.
  uint32_t applied_at = 0;
  // The partition has copies: fill in Handled::replication.
  bool replicate = false;
  // The frame has no other part, so it can be replicated unchanged if the part is only a push.
  bool lone = false;
  // Limit on the answer to the part.
  size_t most_bytes = SIZE_MAX;
};

// The data that makes another copy of the partition equal: the copy handles the push, then loads the
// removals.
struct Replication {
  bool frame = false;           // the push is the received frame, applied at `time`; else `push` has it
  uint32_t time = 0;            // the push's time stamp
  Bytes push;                   // a frame
  std::vector<Bytes> removals;  // chunks (chunk.h) of rows that the push's sweep removed
};

// The result of handling a part.
struct Handled {
  FrameStatus status = FrameStatus::kBadFrame;
  bool applied = false;  // this call has applied its push
  bool clamped = false;  // rows were past the last clock that takes pushes, and were set to it
  size_t rows = 0;       // in the reply
  bool pulled = false;   // rows were requested and looked up
  Swept swept;
  Replication replication;  // of an applied push
};

class Partition {
 public:
  // `incarnation` is a random number, new for each partition object; it is never saved.
  Partition(PartitionId id, uint64_t incarnation);

  const PartitionId& id() const { return id_; }
  uint64_t incarnation() const { return incarnation_; }

  // Repeating it with an equal spec changes only the limits, if the spec has some. AlreadyExists: another
  // spec; the message names the fields. `now`: the start of new limits that do not give it themselves.
  // ResourceExhausted: there are set_max_tables tables already.
  Status CreateTable(const Schema& schema, uint64_t epoch, uint32_t now = 0);
  void set_max_tables(size_t tables) { max_tables_ = tables; }
  void DropTable(uint64_t table);
  // Drops all rows of a table, if it is here; caches notice the new epoch.
  void ClearTable(uint64_t table, uint64_t epoch);
  // Returns null if there is no such table.
  Shard* Find(uint64_t table);
  const std::map<uint64_t, std::unique_ptr<Shard>>& shards() const { return shards_; }

  // Answers a request that was read from a frame; its push gets its time. Requests are untrusted: one for
  // another partition gets an error reply and changes nothing. A push is applied completely or not at all. A
  // reply without memory becomes kOutOfMemory; throws std::bad_alloc, with nothing done, if that does not
  // fit.
  Handled HandlePart(Request* request, ReplyWriter* replies, const Handling& how = {});

  // Removes rows past a limit and forgets clients, for tables without pushes; looks at about `budget` rows,
  // of the next tables in turn, and at as many clients. *removals receives the chunks that make copies equal.
  // Does nothing without memory for them.
  Swept Sweep(uint32_t now, size_t budget, std::vector<Bytes>* removals);
  // Whether the next sweep begins with the first table.
  bool swept_all() const { return table_at_ == 0; }
  // The same for one table that has just got a push of `pushed` rows.
  Swept SweepTable(Shard* shard, uint32_t now, size_t pushed, std::vector<Bytes>* removals);

  KnownClients& clients() { return clients_; }
  const KnownClients& clients() const { return clients_; }

  // Null: no load is in progress; a value-initialised mark ends it. Only cleared or loaded tables get new
  // epochs.
  const LoadMark* loading() const { return loading_.loader.empty() ? nullptr : &loading_; }
  void SetLoadMark(const LoadMark& mark) { loading_ = mark; }

  // Soft state: the clients' subscriptions (subscribers.h).
  Subscribers& subscribers() { return subscribers_; }
  const Subscribers& subscribers() const { return subscribers_; }
  // Soft state: the keys that clients have named (client_names.h).
  ClientNames& names() { return names_; }
  // Of what the partition remembers of its clients, and may forget at any moment: subscriptions and names.
  size_t soft_bytes() const { return subscribers_.bytes() + names_.bytes(); }
  void ForgetSoft() noexcept {
    subscribers_.Clear();
    names_.Clear();
  }
  // Call at changes of rows other than by HandlePart and sweeps. Returns the change's number, for
  // Shard::MarkChanged.
  uint64_t RowsChanged(uint64_t table) {
    subscribers_.Changed(table);
    return changes_.Next();
  }
  // The same for a removal.
  void RemoveRow(Shard* shard, uint32_t row);

  // Soft state: the numbers of changes, and the keys removed lately.
  ChangeLog& changes() { return changes_; }
  const ChangeLog& changes() const { return changes_; }

  // Bytes of rows. Soft state is not included; the rest is small.
  size_t bytes() const;

 private:
  // Completes lists with names. *same_inc: the request knew the current incarnation.
  FrameStatus Check(Request* request, const Handling& how, std::string* message, bool* same_inc);
  // Returns the data that copies need for a push, before it is applied.
  Replication Replicate(Request* request, bool lone);
  // `owned`: refuses pushes that copies must accept because their owner did.
  FrameStatus Apply(const Request& request, bool owned, Handled* handled, std::string* message);
  // Fills the reply's tables by its status. Returns true if rows were requested.
  bool AnswerTables(const Request& request, Reply* reply);
  Subscribers::Turn BeginTurn(const Request& request);
  Swept SweepPushed(const Request& request, uint32_t now, std::vector<Bytes>* removals);
  Swept SweepShard(Shard* shard, uint32_t now, size_t budget, std::vector<Bytes>* removals);
  // The reply points at the rows, so it must be encoded before they change.
  void Answer(const Request& request, Reply* reply);

  PartitionId id_;
  uint64_t incarnation_;
  std::map<uint64_t, std::unique_ptr<Shard>> shards_;
  KnownClients clients_;
  size_t max_tables_ = SIZE_MAX;
  uint64_t table_at_ = 0;  // the sweep of tables continues here
  LoadMark loading_;
  Subscribers subscribers_;
  ClientNames names_;
  ChangeLog changes_;
  uint64_t parts_ = 0;    // number of parts checked
  Vector<Shard*> named_;  // by the tables of the part that was checked last
};

}  // namespace het
