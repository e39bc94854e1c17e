// The embedded store's tables as whole things (table_store.h).
#ifndef HET_TF_CORE_LOCAL_STORE_H_
#define HET_TF_CORE_LOCAL_STORE_H_

#include "het_tf/core/local_service.h"
#include "het_tf/core/table_store.h"

namespace het {

class LocalStore : public TableStore {
 public:
  // `service` outlives it.
  explicit LocalStore(LocalService* service) : service_(service) {}

  Status CreateTable(const Schema& schema) override { return service_->CreateTable(schema); }
  Status DropTable(const TableSchema& schema) override;
  Status ClearTable(const TableSchema& schema) override;
  Result<size_t> CountRows(const TableSchema& schema) override { return service_->Rows(schema.id()); }
  Result<size_t> CountBytes(const TableSchema& schema) override { return service_->TableBytes(schema.id()); }
  Status Assign(const TableSchema& schema, Span<const Key> keys, const float* rows, bool with_slots) override;
  Result<size_t> Remove(const TableSchema& schema, Span<const Key> keys) override;
  Result<TableRows> Scan(const TableSchema& schema) override;

 private:
  uint32_t PartitionOfKey(Key key) const {
    return PartitionOf(HashKey(key, service_->hash_seed()), service_->partitions());
  }

  LocalService* const service_;
};

}  // namespace het

#endif  // HET_TF_CORE_LOCAL_STORE_H_
