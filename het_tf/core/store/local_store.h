// The embedded store's whole-table operations (table_store.h).
#pragma once

#include "het_tf/core/store/local_service.h"
#include "het_tf/core/store/table_store.h"

namespace het {

class LocalStore : public TableStore {
 public:
  // `service` must outlive it.
  explicit LocalStore(LocalService* service) : service_(service) {}

  Status CreateTable(const Schema& schema) override { return service_->CreateTable(schema); }
  Status DropTable(const TableSchema& schema) override;
  Status ClearTable(const TableSchema& schema) override;
  Result<TableSize> Size(const TableSchema& schema) override;
  Status Assign(const TableSchema& schema, Span<const Key> keys, const float* rows, bool with_slots,
                const Clock* ages = nullptr) override;
  Status Read(const TableSchema& schema, Span<const Key> keys, float* values) override;
  Result<size_t> Remove(const TableSchema& schema, Span<const Key> keys) override;

  uint32_t partitions() const override { return service_->partitions(); }
  uint64_t hash_seed() const override { return service_->hash_seed(); }
  Result<TableState> State(const TableSchema& schema) override;
  Status ScanSome(const TableSchema& schema, uint32_t partition, uint64_t* cursor, RowBatch* batch) override;
  Result<ChangesCount> CountChanges(const TableSchema& schema, Span<const Position> since,
                                    const std::vector<uint32_t>& partitions) override;
  Status ChangesSome(const TableSchema& schema, uint32_t partition, ChangesScan* scan, RowBatch* rows,
                     Vector<Key>* removed) override;
  // Only this process could see a partial load, and the engine excludes that (engine/loads.h).
  Status BeginLoad(const std::string& loader, uint32_t seconds) override;
  Status CommitLoad(const std::string&) override { return Status(); }
  Status AbortLoad(const std::string&) override { return Status(); }
  Status Reserve(const TableSchema& schema, Span<const uint64_t> more_rows) override;
  Status LoadBatch(const TableSchema& schema, const RowBatch& rows) override;
  Status RaiseFloor(const TableSchema& schema, Clock floor) override;

 private:
  // Calls f(partition, shard) under the partition's mutex. FailedPrecondition: the table was dropped.
  template <typename F>
  Status WithShard(const TableSchema& schema, uint32_t partition, F f) {
    return service_->WithPartition(partition, [&](Partition& p) -> Status {
      Shard* const shard = p.Find(schema.id());
      if (shard == nullptr) return FailedPrecondition("table '" + schema.spec().name + "' was dropped");
      f(&p, shard);
      return Status();
    });
  }

  LocalService* const service_;
};

}  // namespace het
