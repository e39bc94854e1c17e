#include "het_tf/core/store/table_store.h"

#include <new>

namespace het {
namespace {

constexpr size_t kVisitBytes = size_t{8} << 20;

}  // namespace

Status TableStore::Visit(const TableSchema& schema, const std::function<Status(const RowBatch&)>& fn) {
  RowBatch batch(schema, kVisitBytes);
  for (uint32_t p = 0; p < partitions(); ++p) {
    for (uint64_t cursor = 0; cursor != kScanned; batch.Clear()) {
      HET_RETURN_IF_ERROR(ScanSome(schema, p, &cursor, &batch));
      HET_RETURN_IF_ERROR(fn(batch));
    }
  }
  return Status();
}

Result<TableRows> TableStore::Scan(const TableSchema& schema) {
  TableRows all;
  try {
    HET_RETURN_IF_ERROR(Visit(schema, [&](const RowBatch& batch) {
      all.keys.insert(all.keys.end(), batch.keys(), batch.keys() + batch.size());
      all.clocks.insert(all.clocks.end(), batch.clocks(), batch.clocks() + batch.size());
      all.last_used.insert(all.last_used.end(), batch.last_used(), batch.last_used() + batch.size());
      all.counts.insert(all.counts.end(), batch.counts(), batch.counts() + batch.size());
      size_t at = all.rows.size();
      all.rows.resize(at + batch.size() * schema.row_floats());
      for (size_t i = 0; i < batch.size(); ++i, at += schema.row_floats())
        batch.CopyRow(i, all.rows.data() + at);
      return Status();
    }));
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted, "out of memory while table '" + schema.spec().name +
                                                "' was read as a whole; save it to a file instead");
  }
  return all;
}

}  // namespace het
