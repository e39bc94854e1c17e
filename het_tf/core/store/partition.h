// The truth about one slice of key space: all tables' rows whose keys hash into it, their clocks,
// and what has been applied from every client. HandlePart() is the whole server logic; the embedded
// store (local_service.h) calls it directly and the Redis module calls it for each part of a frame.
//
// A partition is owned by one thread at a time; the owner locks.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "het_tf/core/store/holdings.h"
#include "het_tf/core/store/known_clients.h"
#include "het_tf/core/store/shard.h"
#include "het_tf/core/wire/parts.h"

namespace het {

// A table is being loaded into several partitions, and nobody should see one half of it. The
// partition only keeps the mark; its owner refuses frames meanwhile. It ends by itself, lest a
// loader that died block the store for ever.
struct LoadMark {
  std::string loader;  // who, for people and for the end
  uint32_t since = 0;
  uint32_t until = 0;

  // At most a day, whatever the mark says.
  static constexpr uint32_t kMaxSeconds = TableLimits::kDay;
  bool holds(uint32_t now) const { return now < until && until - now <= kMaxSeconds; }
};

// What a partition was asked since it came to life here. A copy (a replica, what MIGRATE or a file brought)
// begins with nothing, as its incarnation does. Whoever takes the frames counts.
struct Traffic {
  uint64_t frames = 0;  // parts of frames that it has answered
  uint64_t rows_pulled = 0;
  uint64_t rows_pushed = 0;  // by pushes that were applied
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  double busy_seconds = 0;  // of the thread that answers, without what others took of its processor
};

// How a part is to be handled.
struct Handling {
  // The time as the partition's owner sees it: stamps what the push changes and lets its tables be
  // swept. 0: the part is a copy of one that was applied elsewhere; it carries its time, and
  // nothing is swept, since removals come as copies too.
  uint32_t now = 0;
  // When a copy was applied elsewhere, if its sender says so beside the frame.
  uint32_t applied_at = 0;
  // The partition has copies: Handled::replication is wanted.
  bool replicate = false;
  // The frame has no other part, and so can go to the copies as it is where the part is only a
  // push.
  bool lone = false;
  // No answer to the part takes more.
  size_t most_bytes = SIZE_MAX;
};

// What makes another copy of the partition equal. The copy handles the push, and then loads the
// removals.
struct Replication {
  bool frame = false;           // the push is the frame as it came, applied at `time`; else `push` has it
  uint32_t time = 0;            // that the push was stamped with
  Bytes push;                   // a frame
  std::vector<Bytes> removals;  // chunks (chunk.h) of what the push made the partition sweep out
};

// What a part came to.
struct Handled {
  FrameStatus status = FrameStatus::kBadFrame;
  bool applied = false;  // its push, by this call
  bool clamped = false;  // rows of it were past the last clock that may be pushed to, and are there now
  size_t rows = 0;       // in the reply
  size_t pushed = 0;     // rows of a push that was applied
  bool pulled = false;   // it asked for rows, and they were looked up
  Swept swept;
  Replication replication;  // of a push that was applied
};

class Partition {
 public:
  // `incarnation` is a random number drawn whenever a partition object comes to life; it is never
  // saved.
  Partition(PartitionId id, uint64_t incarnation);

  const PartitionId& id() const { return id_; }
  uint64_t incarnation() const { return incarnation_; }

  // A second creation with an equal spec changes nothing but the limits, where the spec has some;
  // with another spec it is AlreadyExists, and the message says in which fields. `now`: since when new limits
  // hold, if they do not say it themselves.
  // ResourceExhausted: there are set_max_tables already.
  Status CreateTable(const Schema& schema, uint64_t epoch, uint32_t now = 0);
  void set_max_tables(size_t tables) { max_tables_ = tables; }
  void DropTable(uint64_t table) { shards_.erase(table); }
  // Null when there is no such table.
  Shard* Find(uint64_t table);
  const std::map<uint64_t, std::unique_ptr<Shard>>& shards() const { return shards_; }

  // Answers a request that was read from a frame; its push gets its time. Any request is safe: what
  // is not for this partition gets a reply that says so, and changes nothing. A push is applied
  // whole or not at all. A reply for which there is no memory becomes kOutOfMemory; throws
  // std::bad_alloc, with nothing done, if not even that fits.
  Handled HandlePart(Request* request, ReplyWriter* replies, const Handling& how = {});
  // Answers a frame of one part. Any bytes are safe.
  Handled Handle(Span<const uint8_t> frame, Bytes* reply, Handling how = {});

  // Removes what has passed a limit and forgets clients, for tables that are not pushed to; looks
  // at about `budget` rows, of the next tables in turn, and at as many clients. *removals receives the chunks
  // that make copies equal. Does nothing when there is no memory for them.
  Swept Sweep(uint32_t now, size_t budget, std::vector<Bytes>* removals);
  // The next one begins with the first table.
  bool swept_all() const { return table_at_ == 0; }
  // The same for one table to which `pushed` rows were pushed just now.
  Swept SweepTable(Shard* shard, uint32_t now, size_t pushed, std::vector<Bytes>* removals);

  KnownClients& clients() { return clients_; }
  const KnownClients& clients() const { return clients_; }

  // Null: nobody loads. Tables that are cleared or loaded then get new epochs, and only those.
  const LoadMark* loading() const { return loading_.loader.empty() ? nullptr : &loading_; }
  void SetLoadMark(const LoadMark& mark) { loading_ = mark; }
  void EndLoad() { loading_ = LoadMark(); }

  // Soft state: what clients hold (holdings.h).
  Holdings& holdings() { return holdings_; }
  const Holdings& holdings() const { return holdings_; }
  Traffic& traffic() { return traffic_; }
  // Whoever changes rows by other means than Handle and the sweeps says so.
  void RowsChanged(uint64_t table) { holdings_.Changed(table); }

  // Of rows; what else there is, is small, but for the holdings.
  size_t bytes() const;

  // The whole partition as one run of bytes (chunk.h without the pauses), and back under a new
  // incarnation. Deserialize: InvalidArgument for anything that Serialize cannot have written.
  void Serialize(Bytes* out) const;
  static Result<std::unique_ptr<Partition>> Deserialize(Span<const uint8_t> bytes, uint64_t incarnation);

 private:
  // *same_inc: the request knew this life of the partition.
  FrameStatus Check(const Request& request, const Handling& how, std::string* message, bool* same_inc);
  bool CheckTable(const TableRequest& t, const Handling& how, Shard* shard, std::string* message);
  // What copies need of a push that is going to be applied.
  Replication Replicate(Request* request, bool lone);
  // `owned`: refuses what copies take, since their owner has.
  FrameStatus Apply(const Request& request, bool owned, Handled* handled, std::string* message);
  // Fills the reply's tables by its status. True: rows were asked for.
  bool AnswerTables(const Request& request, Reply* reply);
  Swept SweepPushed(const Request& request, uint32_t now, std::vector<Bytes>* removals);
  Swept SweepShard(Shard* shard, uint32_t now, size_t budget, std::vector<Bytes>* removals);
  // The reply points at the rows: it is encoded before they change.
  void Answer(const Request& request, Reply* reply);
  Holdings::Turn BeginTurn(const Request& request);

  PartitionId id_;
  uint64_t incarnation_;
  std::map<uint64_t, std::unique_ptr<Shard>> shards_;
  KnownClients clients_;
  size_t max_tables_ = SIZE_MAX;
  uint64_t table_at_ = 0;  // the sweep of tables goes on at this one
  LoadMark loading_;
  Holdings holdings_;
  Traffic traffic_;
  uint64_t parts_ = 0;  // that were looked at
};

}  // namespace het
