// The truth about one slice of key space: all tables' rows whose keys hash into it, their clocks, and what
// has been applied from every client. Handle() is the whole server logic; the embedded store
// (local_service.h) calls it directly and the Redis module calls it for every command.
//
// A partition is owned by one thread at a time; the owner locks.
#ifndef HET_TF_CORE_STORE_PARTITION_H_
#define HET_TF_CORE_STORE_PARTITION_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/store/holdings.h"
#include "het_tf/core/store/shard.h"
#include "het_tf/core/wire/frame.h"

namespace het {

// What is known of a client: clients that have not pushed for kClientSeconds are forgotten, so that the
// workers of every job that ever ran do not pile up. One that comes back is answered GAP 0 and begins anew.
struct ClientState {
  uint64_t last_seq = 0;  // newest push that was applied; 0: none
  uint32_t time = 0;      // of that push
};
constexpr uint32_t kClientSeconds = 7 * TableLimits::kDay;

// A table is being loaded into several partitions, and nobody should see one half of it. The partition only
// keeps the mark; its owner refuses frames meanwhile. It ends by itself, lest a loader that died block the
// store for ever.
struct LoadMark {
  std::string loader;  // who, for people and for the end
  uint32_t since = 0;
  uint32_t until = 0;

  bool holds(uint32_t now) const { return now < until; }
};

// How a frame is to be handled.
struct Handling {
  // The time as the partition's owner sees it: stamps what the push changes and lets its tables be swept. 0:
  // the frame is a copy of one that was applied elsewhere; it carries its time, and nothing is swept, since
  // removals come as copies too.
  uint32_t now = 0;
  // What another copy of this partition has to handle, and then to load (chunk.h), to become equal: the push
  // part if this call applied it (nothing where that is the frame itself, Handled::whole), and what was
  // swept. Where nobody asks, null.
  Bytes* push = nullptr;
  std::vector<Bytes>* removals = nullptr;
  // When a copy was applied elsewhere, if its sender says so beside the frame.
  uint32_t applied_at = 0;
};

// What a frame came to.
struct Handled {
  FrameStatus status = FrameStatus::kBadFrame;
  bool applied = false;  // its push part, by this call
  bool whole = false;    // it is nothing but a push: a copy handles it as it is, applied at `time`
  uint32_t time = 0;     // that the push was stamped with
  size_t rows = 0;       // in the reply
  bool pulled = false;   // it was asked for rows, and they were looked up
  Swept swept;
};

class Partition {
 public:
  // `incarnation` is a random number drawn whenever a partition object comes to life; it is never saved.
  Partition(PartitionId id, uint64_t incarnation);

  const PartitionId& id() const { return id_; }
  uint64_t incarnation() const { return incarnation_; }

  // A second creation with an equal spec changes nothing but the limits, where the spec has some; with
  // another spec it is AlreadyExists, and the message shows both. `now`: since when new limits hold, if they
  // do not say it themselves.
  Status CreateTable(const Schema& schema, uint64_t epoch, uint32_t now = 0);
  void DropTable(uint64_t table) { shards_.erase(table); }
  // Null when there is no such table.
  Shard* Find(uint64_t table);
  const std::map<uint64_t, std::unique_ptr<Shard>>& shards() const { return shards_; }

  // Answers a request frame of one part with a reply frame. Any bytes are safe: what is not a request of this
  // partition gets a reply that says so, and changes nothing. A push is applied whole or not at all. A reply
  // for which there is no memory becomes kOutOfMemory; throws std::bad_alloc, with nothing done, if not even
  // that fits.
  Handled Handle(Span<const uint8_t> frame, Bytes* reply, const Handling& how = {});
  // The same for a part that was read from a frame; Handled::whole if the frame is `lone`. A push part gets
  // its time.
  Handled HandlePart(Request* request, ReplyWriter* replies, const Handling& how = {}, bool lone = false);

  // Removes what has passed a limit and forgets clients, for tables that are not pushed to; looks at about
  // `budget` rows of each table and as many clients. *removals receives the chunks that make copies equal.
  // Does nothing when there is no memory for them.
  Swept Sweep(uint32_t now, size_t budget, std::vector<Bytes>* removals);
  // The same for one table to which `pushed` rows were pushed just now.
  Swept SweepTable(Shard* shard, uint32_t now, size_t pushed, std::vector<Bytes>* removals);

  // Newest push that was applied from `client`; 0: none.
  uint64_t LastSeq(ClientId client) const;
  const std::map<ClientId, ClientState>& clients() const { return clients_; }
  // For loading (chunk.h).
  void SetClient(ClientId client, ClientState state) { clients_[client] = state; }
  void ForgetClient(ClientId client) { clients_.erase(client); }
  void ForgetClients() { clients_.clear(); }

  // Null: nobody loads. Beginning gives all tables the new epoch: what caches hold is worth nothing, however
  // the load ends.
  const LoadMark* loading() const { return loading_.loader.empty() ? nullptr : &loading_; }
  void BeginLoad(const LoadMark& mark, uint64_t epoch);
  void SetLoadMark(const LoadMark& mark) { loading_ = mark; }
  void EndLoad() { loading_ = LoadMark(); }

  // Soft state: what clients hold (holdings.h).
  Holdings& holdings() { return holdings_; }
  const Holdings& holdings() const { return holdings_; }
  // Whoever changes rows by other means than Handle and the sweeps says so.
  void RowsChanged(uint64_t table) { holdings_.Changed(table); }

  // Of rows; what else there is, is small, but for the holdings.
  size_t bytes() const;

  // The whole partition as one run of bytes (chunk.h without the pauses), and back under a new incarnation.
  // Deserialize: InvalidArgument for anything that Serialize cannot have written.
  void Serialize(Bytes* out) const;
  static Result<std::unique_ptr<Partition>> Deserialize(Span<const uint8_t> bytes, uint64_t incarnation);

 private:
  struct RowOfPush {
    Shard* shard;
    uint32_t row;
    bool created;
  };

  // *same_inc: the request knew this life of the partition.
  FrameStatus Check(const Request& request, std::string* message, bool* same_inc);
  FrameStatus Apply(const Request& request);
  Swept SweepPushed(const Request& request, const Handling& how);
  Swept SweepShard(Shard* shard, uint32_t now, size_t budget, std::vector<Bytes>* removals);
  Swept SweepClients(uint32_t now, size_t budget, std::vector<Bytes>* removals);
  // The reply points at the rows: it is encoded before they change.
  void Answer(const Request& request, Reply* reply);
  void Tell(const Request& request, Holdings::Turn* turn, Reply* reply);

  PartitionId id_;
  uint64_t incarnation_;
  std::map<uint64_t, std::unique_ptr<Shard>> shards_;
  std::map<ClientId, ClientState> clients_;
  ClientId client_at_;  // the sweep of clients goes on behind this one
  LoadMark loading_;
  Holdings holdings_;
};

}  // namespace het

#endif  // HET_TF_CORE_STORE_PARTITION_H_
