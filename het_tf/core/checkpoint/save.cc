#include "het_tf/core/checkpoint/save.h"

#include <algorithm>
#include <new>

#include "het_tf/core/checkpoint/chain.h"

namespace het {
namespace {

constexpr size_t kKeysAtOnce = 65536;
// How often a save starts again with more room, because rows arrived while it wrote.
constexpr int kMostTries = 4;

// Plans one table's room in the file.
Result<RowTable> Plan(TableStore* store, const SavedTable& table, const std::vector<uint32_t>& partitions) {
  const TableSchema& schema = *table.schema;
  RowTable plan;
  plan.name = schema.spec().name;
  plan.dim = schema.dim();
  plan.slot_floats = static_cast<uint32_t>(schema.row_floats() - schema.dim());
  HET_ASSIGN_OR_RETURN(const TableState state, store->State(schema));
  for (uint32_t p : partitions) plan.rows += state.rows[p];
  if (!table.increment) return plan;
  plan.increment = true;
  HET_ASSIGN_OR_RETURN(plan.removed, Chain::MostRows(table.since, plan.name));
  return plan;
}

// Sets *full if there was not room for all rows: some rows that existed throughout are missing.
Status SaveTable(TableStore* store, const SavedTable& table, const std::vector<uint32_t>& partitions,
                 size_t number, RowWriter* writer, bool* full) {
  const TableSchema& schema = *table.schema;
  Chain chain(store->LayoutOf(schema), partitions);
  for (const std::string& path : table.since) {
    HET_ASSIGN_OR_RETURN(const auto file, RowReader::Open(path));
    HET_RETURN_IF_ERROR(chain.Add(*file, schema.spec().name));
  }
  RowBatch scanned(schema, kBatchBytes);
  RowBatch changed(schema, table.increment ? kBatchBytes : 0);
  const auto write = [&](RowBatch* rows) {
    *full = *full || rows->size() > writer->RowsLeft(number);
    if (*full) rows->Clear();
    const Status status = writer->Append(number, *rows);
    rows->Clear();
    return status;
  };
  for (uint32_t p : partitions) {
    for (uint64_t cursor = 0; cursor != TableStore::kScanned && !*full;) {
      HET_RETURN_IF_ERROR(store->ScanSome(schema, p, &cursor, &scanned));
      if (!table.increment) {
        if (scanned.left() == 0) HET_RETURN_IF_ERROR(write(&scanned));
        continue;
      }
      for (size_t i = 0; i < scanned.size(); ++i) {
        if (!chain.Changed(scanned.keys()[i], scanned.clocks()[i])) continue;
        changed.Add(scanned, i);
        if (changed.left() == 0) HET_RETURN_IF_ERROR(write(&changed));
      }
      scanned.Clear();
    }
  }
  HET_RETURN_IF_ERROR(write(table.increment ? &changed : &scanned));
  if (!table.increment || *full) return Status();
  Vector<Key> keys;
  bool more = true;
  for (uint64_t cursor = 0; more; keys.clear()) {
    more = chain.Removed(&cursor, kKeysAtOnce, &keys);
    HET_RETURN_IF_ERROR(writer->AppendRemoved(number, {keys.data(), keys.size()}));
  }
  return Status();
}

}  // namespace

Result<RowFileSummary> SaveRows(TableStore* store, const std::string& path,
                                const std::vector<SavedTable>& tables,
                                const std::vector<uint32_t>& partitions) {
  for (uint32_t p : partitions) {
    if (p < store->partitions()) continue;
    return InvalidArgument("partition " + std::to_string(p) +
                           " cannot be saved; the store has the partitions 0 to " +
                           std::to_string(store->partitions() - 1));
  }
  try {
    for (int tries = 0; tries < kMostTries; ++tries) {
      std::vector<RowTable> plans;
      for (const SavedTable& table : tables) {
        HET_ASSIGN_OR_RETURN(auto plan, Plan(store, table, partitions));
        plans.push_back(std::move(plan));
        // Unused room costs time but no space: the columns are moved together.
        if (tries > 0) plans.back().rows += (plans.back().rows / 4 + kKeysAtOnce) << tries;
      }
      HET_ASSIGN_OR_RETURN(auto writer, RowWriter::Create(path, std::move(plans)));
      bool full = false;
      for (size_t t = 0; t < tables.size() && !full; ++t) {
        HET_RETURN_IF_ERROR(SaveTable(store, tables[t], partitions, t, writer.get(), &full));
      }
      if (!full) return writer->Finish();
    }
    return FailedPrecondition("rows were added faster than they were saved to '" + path +
                              "', several times over; save while training pauses, or fewer partitions into "
                              "one file");
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted, "out of memory while rows were saved to '" + path +
                                                "'; save fewer partitions into one file");
  }
}

}  // namespace het
