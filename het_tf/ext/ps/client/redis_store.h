// Whole-table calls at Redis servers (table_store.h): one command a partition, pipelined for each server.
//
// Calls of several threads run concurrently: each borrows connections while it lasts.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "het_tf/core/store/table_store.h"
#include "het_tf/core/wire/reply.h"
#include "het_tf/ext/ps/client/cluster.h"

namespace het {

struct FoundPartitions {
  std::vector<std::string> keys;
  uint64_t hash_seed;
  std::string made;  // the rule by which rows lie in them (keyspace.h); "": they are not made yet
};
// Reads the key of a namespace. Empty: there is none. FailedPrecondition: it is something else.
Result<std::optional<FoundPartitions>> FindPartitions(RedisCluster* cluster, const std::string& name_space,
                                                      double seconds);

class RedisStore : public TableStore {
 public:
  // Opens a namespace, and makes its partitions if it is new. `seconds`: limit on one call, failover
  // included. On return the cluster's map is known.
  static Result<std::unique_ptr<RedisStore>> Open(const ServerAddress& address, const std::string& name_space,
                                                  double seconds, RedisCluster::Notice notice);

  const std::vector<std::string>& keys() const { return keys_; }

  Status CreateTable(const Schema& schema) override;
  Status DropTable(const TableSchema& schema) override;
  Status ClearTable(const TableSchema& schema) override;
  Result<TableSize> Size(const TableSchema& schema) override;
  Status Assign(const TableSchema& schema, Span<const Key> keys, const float* rows, bool with_slots,
                const Clock* ages = nullptr) override;
  Status Read(const TableSchema& schema, Span<const Key> keys, float* values) override;
  Result<size_t> Remove(const TableSchema& schema, Span<const Key> keys) override;

  uint32_t partitions() const override { return static_cast<uint32_t>(keys_.size()); }
  uint64_t hash_seed() const override { return hash_seed_; }
  Result<TableState> State(const TableSchema& schema) override;
  Status ScanSome(const TableSchema& schema, uint32_t partition, uint64_t* cursor, RowBatch* batch) override;
  Result<ChangesCount> CountChanges(const TableSchema& schema, Span<const Position> since,
                                    const std::vector<uint32_t>& partitions) override;
  Status ChangesSome(const TableSchema& schema, uint32_t partition, ChangesScan* scan, RowBatch* rows,
                     Vector<Key>* removed) override;
  Status BeginLoad(const std::string& loader, uint32_t seconds) override;
  Status CommitLoad(const std::string& loader) override;
  Status AbortLoad(const std::string& loader) override;
  // Partitions' indexes grow in steps, as in training.
  Status Reserve(const TableSchema&, Span<const uint64_t>) override { return Status(); }
  Status LoadBatch(const TableSchema& schema, const RowBatch& rows) override;
  Status RaiseFloor(const TableSchema& schema, Clock floor) override;

 private:
  RedisStore(const ServerAddress& address, double seconds, RedisCluster::Notice notice)
      : address_(address), seconds_(seconds), notice_(std::move(notice)) {}

  // An exclusive cluster for one caller.
  class Borrowed {
   public:
    explicit Borrowed(RedisStore* store);
    ~Borrowed();
    RedisCluster* get() { return cluster_.get(); }
    RedisCluster* operator->() { return get(); }

   private:
    RedisStore* const store_;
    std::unique_ptr<RedisCluster> cluster_;
  };

  Status MakePartitions(const std::string& name_space);
  // Sends `command KEY words` to one partition, or to all.
  Result<RedisReply> Ask(uint32_t partition, const std::string& command, std::vector<std::string> words);
  Result<std::vector<RedisReply>> AskAll(const std::string& command, const std::vector<std::string>& words,
                                         const char* fine = nullptr);
  Result<std::vector<RedisReply>> AskAll(const std::vector<RedisCluster::Command>& commands,
                                         const char* fine = nullptr);
  Result<size_t> Load(uint32_t partition, const Bytes& chunk);
  // Reads the rows of keys in one partition.
  Result<TableReply> Fetch(const TableSchema& schema, uint32_t partition, Vector<Key> keys);
  // Calls fn(partition, some keys, their positions) -> Status for at most `most` keys of a partition at a
  // time.
  template <typename Fn>
  Status ForPieces(const TableSchema& schema, Span<const Key> keys, size_t most, Fn fn) const;
  // Returns each partition's answer to HET.STAT TABLES for the table; null where it is missing.
  Result<std::vector<RedisReply>> AskTable(const TableSchema& schema);

  const ServerAddress address_;
  const double seconds_;
  const RedisCluster::Notice notice_;
  std::vector<std::string> keys_;  // this and hash_seed_ do not change after Open
  uint64_t hash_seed_ = 0;

  std::mutex mutex_;  // guards the members below
  std::vector<std::unique_ptr<RedisCluster>> idle_;
};

}  // namespace het
