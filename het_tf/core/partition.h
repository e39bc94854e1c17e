// The truth about one slice of key space: all tables' rows whose keys hash into it, their clocks, and what
// has been applied from every client. Handle() is the whole server logic; the embedded store
// (local_service.h) calls it directly and the Redis module calls it for every command.
//
// A partition is owned by one thread at a time; the owner locks.
#ifndef HET_TF_CORE_PARTITION_H_
#define HET_TF_CORE_PARTITION_H_

#include <map>
#include <memory>

#include "het_tf/core/frame.h"
#include "het_tf/core/schema.h"

namespace het {

// One table's rows in one partition.
class Shard {
 public:
  Shard(Schema schema, uint64_t epoch, uint64_t hash_seed)
      : schema_(std::move(schema)), epoch_(epoch), rows_(schema_->row_floats(), hash_seed) {}

  const TableSchema& schema() const { return *schema_; }
  const Schema& shared_schema() const { return schema_; }
  uint64_t epoch() const { return epoch_; }
  RowStore& rows() { return rows_; }
  const RowStore& rows() const { return rows_; }

  // The row of `key`, created with its initial content if nobody wrote it before. Throws std::bad_alloc and
  // changes nothing then.
  uint32_t FindOrCreate(Key key, uint64_t hash, bool* created);

  // Drops all rows; caches notice by the new epoch.
  void Clear(uint64_t epoch);

 private:
  Schema schema_;
  uint64_t epoch_;  // random, new at load and clear; compared by !=
  RowStore rows_;
};

// What a frame came to.
struct Handled {
  FrameStatus status = FrameStatus::kBadFrame;
  bool applied = false;  // its push part, by this call
  size_t rows = 0;       // in the reply
};

class Partition {
 public:
  // `incarnation` is a random number drawn whenever a partition object comes to life; it is never saved.
  Partition(PartitionId id, uint64_t incarnation);

  const PartitionId& id() const { return id_; }
  uint64_t incarnation() const { return incarnation_; }

  // A second creation with an equal spec changes nothing; with another spec it is AlreadyExists, and the
  // message shows both.
  Status CreateTable(const Schema& schema, uint64_t epoch);
  void DropTable(uint64_t table) { shards_.erase(table); }
  // Null when there is no such table.
  Shard* Find(uint64_t table);
  const std::map<uint64_t, std::unique_ptr<Shard>>& shards() const { return shards_; }

  // Answers one request frame with one reply frame. Any bytes are safe: what is not a request of this
  // partition gets a reply that says so, and changes nothing. A push is applied whole or not at all. A reply
  // for which there is no memory becomes kOutOfMemory; throws std::bad_alloc, with nothing done, if not even
  // that fits.
  //
  // `push`, where given, receives what another copy of this partition has to Handle to become equal: the
  // frame's push part alone if this call applied it, else nothing.
  Handled Handle(Span<const uint8_t> frame, Bytes* reply, Bytes* push = nullptr);

  // Newest push that was applied from `client`; 0: none.
  uint64_t LastSeq(ClientId client) const;
  const std::map<ClientId, uint64_t>& clients() const { return last_seq_; }
  // For loading (chunk.h).
  void SetLastSeq(ClientId client, uint64_t seq) { last_seq_[client] = seq; }
  void ForgetClients() { last_seq_.clear(); }

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

  FrameStatus Check(const Request& request, std::string* message);
  FrameStatus Apply(const Request& request);
  void Answer(const Request& request, Reply* reply);

  PartitionId id_;
  uint64_t incarnation_;
  std::map<uint64_t, std::unique_ptr<Shard>> shards_;
  std::map<ClientId, uint64_t> last_seq_;
};

}  // namespace het

#endif  // HET_TF_CORE_PARTITION_H_
