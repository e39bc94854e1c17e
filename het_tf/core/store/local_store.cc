#include "het_tf/core/store/local_store.h"

#include <algorithm>
#include <cstring>

namespace het {

Status LocalStore::DropTable(const TableSchema& schema) {
  service_->DropTable(schema.id());
  return Status();
}

Status LocalStore::ClearTable(const TableSchema& schema) {
  service_->ClearTable(schema.id());
  return Status();
}

Result<TableSize> LocalStore::Size(const TableSchema& schema) {
  TableSize size;
  for (uint32_t p = 0; p < partitions(); ++p) {
    service_->WithPartition(p, [&](Partition& partition) {
      const Shard* const shard = partition.Find(schema.id());
      if (shard == nullptr) return;
      size.rows += shard->rows().size();
      size.bytes += shard->bytes();
    });
  }
  return size;
}

Status LocalStore::Assign(const TableSchema& schema, Span<const Key> keys, const float* rows, bool with_slots,
                          const Clock* ages) {
  const size_t given = with_slots ? schema.row_floats() : schema.dim();
  const TableLayout layout = LayoutOf(schema);
  try {
    for (size_t i = 0; i < keys.size(); ++i) {
      HET_RETURN_IF_ERROR(WithShard(schema, layout.OfKey(keys[i]), [&](Partition* partition, Shard* shard) {
        bool created = false;
        const uint32_t row = shard->FindOrCreate(keys[i], shard->rows().Hash(keys[i]), &created);
        float* data = shard->Edit(row);
        schema.InitRow(keys[i], data);
        std::memcpy(data, rows + i * given, given * sizeof(float));
        shard->Set(row);
        CountTick(service_->Now(), &shard->rows().meta(row));
        shard->Renew(row, ages == nullptr ? 0 : ages[i]);
        shard->MarkChanged(row, partition->RowsChanged(schema.id()));
      }));
    }
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted, "out of memory during an assignment of table '" +
                                                schema.spec().name + "'; rows written before this one stay");
  }
  return Status();
}

Status LocalStore::Read(const TableSchema& schema, Span<const Key> keys, float* values) {
  const TableLayout layout = LayoutOf(schema);
  for (Key key : keys) {
    service_->WithPartition(layout.OfKey(key), [&](Partition& partition) {
      const Shard* shard = partition.Find(schema.id());
      const uint32_t row = shard == nullptr ? kNoRow : shard->rows().Find(key);
      if (row == kNoRow) {
        schema.InitValue(key, values);
      } else {
        std::copy_n(shard->Read(shard->rows().data(row), /*slots=*/false), schema.dim(), values);
      }
    });
    values += schema.dim();
  }
  return Status();
}

Result<size_t> LocalStore::Remove(const TableSchema& schema, Span<const Key> keys) {
  size_t removed = 0;
  const TableLayout layout = LayoutOf(schema);
  for (Key key : keys) {
    service_->WithPartition(layout.OfKey(key), [&](Partition& partition) {
      Shard* shard = partition.Find(schema.id());
      const uint32_t row = shard == nullptr ? kNoRow : shard->rows().Find(key);
      if (row == kNoRow) return;
      partition.RemoveRow(shard, row);
      ++removed;
    });
  }
  return removed;
}

}  // namespace het
