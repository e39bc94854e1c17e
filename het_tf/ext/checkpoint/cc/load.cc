#include "het_tf/ext/checkpoint/cc/load.h"

#include <algorithm>
#include <new>

#include "het_tf/core/store/shard.h"
#include "het_tf/ext/checkpoint/cc/save.h"

namespace het {
namespace {

constexpr uint64_t kSomeKeys = 65536;

Status CheckWidths(const RowReader& file, const RowTable& table, const TableSchema& to, bool slots) {
  const std::string whose = "table '" + table.name + "' in '" + file.path() + "' has ";
  const size_t slot_floats = to.row_floats() - to.dim();
  if (table.dim != to.dim()) {
    return InvalidArgument(whose + "dim " + std::to_string(table.dim) + "; table '" + to.spec().name +
                           "' has " + std::to_string(to.dim()) + ". Declare it with the same dim");
  }
  if (slots && table.slot_floats != slot_floats) {
    return InvalidArgument(whose + std::to_string(table.slot_floats) + " floats of slots a row; table '" +
                           to.spec().name + "' (" + to.spec().optimizer.name + ") has " +
                           std::to_string(slot_floats) +
                           ". Declare it with the same optimizer, or load it without slots");
  }
  if (!slots && to.optimizer().value_is_derived()) {
    return InvalidArgument("table '" + to.spec().name + "' computes its values from its slots (" +
                           to.spec().optimizer.name + "): it cannot be loaded without them");
  }
  return Status();
}

Status ReserveRows(TableStore* store, const RowReader& file, const RowTable& table, const TableSchema& to) {
  const TableLayout layout = store->LayoutOf(to);
  Vector<uint64_t> rows_of(layout.partitions());
  Buffer<Key> keys;
  for (uint64_t first = 0; first < table.rows; first += kSomeKeys) {
    const auto rows = static_cast<size_t>(std::min(kSomeKeys, table.rows - first));
    HET_RETURN_IF_ERROR(file.Read(table, kKeysColumn, first, rows, keys.Resize(rows)));
    for (size_t i = 0; i < rows; ++i) ++rows_of[layout.OfKey(keys[i])];
  }
  return store->Reserve(to, {rows_of.data(), rows_of.size()});
}

// Fills in the slots, and the age, of a row without ticks.
void FillSlots(const TableSchema& to, RowBatch* batch) {
  Vector<float> row(to.row_floats());
  to.optimizer().InitSlots(row.data());
  for (size_t i = 0; i < batch->size(); ++i) {
    std::copy(row.begin() + to.dim(), row.end(), batch->slots() + i * batch->slot_floats());
    batch->clocks()[i] = std::min(BornAfter(batch->clocks()[i]), Shard::kMaxClock);
  }
}

Status CheckClocks(const RowReader& file, const RowTable& table, const RowBatch& batch) {
  for (size_t i = 0; i < batch.size(); ++i) {
    if (batch.clocks()[i] >= 0 && batch.clocks()[i] <= Shard::kMaxClock) continue;
    return InvalidArgument("'" + file.path() + "' has the clock " + std::to_string(batch.clocks()[i]) +
                           " of key " + std::to_string(batch.keys()[i]) + " in table '" + table.name +
                           "', which is out of range");
  }
  return Status();
}

}  // namespace

Result<LoadedRows> LoadRows(TableStore* store, const RowReader& file, const RowTable& table,
                            const TableSchema& to, bool slots) {
  HET_RETURN_IF_ERROR(CheckWidths(file, table, to, slots));
  LoadedRows loaded;
  try {
    Buffer<Key> keys;
    for (uint64_t first = 0; first < table.removed; first += kSomeKeys) {
      const auto rows = static_cast<size_t>(std::min(kSomeKeys, table.removed - first));
      HET_RETURN_IF_ERROR(file.Read(table, kRemovedColumn, first, rows, keys.Resize(rows)));
      HET_ASSIGN_OR_RETURN(const uint64_t removed, store->Remove(to, {keys.data(), rows}));
      loaded.removed += removed;
    }
    // Most rows of an increment replace rows that exist.
    if (!table.increment) HET_RETURN_IF_ERROR(ReserveRows(store, file, table, to));
    RowBatch batch(to, kBatchBytes);
    for (; loaded.rows < table.rows; loaded.rows += batch.size()) {
      HET_RETURN_IF_ERROR(file.ReadRows(table, loaded.rows, slots, &batch));
      HET_RETURN_IF_ERROR(CheckClocks(file, table, batch));
      if (!slots) FillSlots(to, &batch);
      HET_RETURN_IF_ERROR(store->LoadBatch(to, batch));
    }
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted,
                  "out of memory while rows were loaded from '" + file.path() + "'; some of them are there");
  }
  return loaded;
}

}  // namespace het
