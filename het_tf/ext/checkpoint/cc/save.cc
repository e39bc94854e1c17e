#include "het_tf/ext/checkpoint/cc/save.h"

#include <new>
#include <unordered_set>

namespace het {
namespace {

constexpr size_t kMoreRows = 65536;
// How often a save starts again with more room, because rows arrived while it wrote.
constexpr int kMostTries = 4;

// Plans one table's room in the file. If the changes are not known, the table is no increment any more.
Result<RowTable> Plan(TableStore* store, const std::vector<uint32_t>& partitions, SavedTable* table) {
  const TableSchema& schema = *table->schema;
  RowTable plan;
  plan.name = schema.spec().name;
  plan.dim = schema.dim();
  plan.slot_floats = static_cast<uint32_t>(schema.row_floats() - schema.dim());
  if (table->since) {
    HET_ASSIGN_OR_RETURN(const ChangesCount count, store->CountChanges(schema, *table->since, partitions));
    if (count.kind != ChangesKind::kChanges) table->since.reset();
    plan.rows = count.rows;
    plan.removed = count.removed;
  }
  plan.increment = table->since.has_value();
  if (plan.increment) return plan;
  HET_ASSIGN_OR_RETURN(const TableState state, store->State(schema));
  plan.rows = plan.removed = 0;
  for (uint32_t p : partitions) plan.rows += state.rows[p];
  return plan;
}

// Saves one table of one file, if it is neither full nor lost.
class TableSaver {
 public:
  TableSaver(TableStore* store, const SavedTable& table, size_t number, RowWriter* writer)
      : store_(store), table_(table), number_(number), writer_(writer), rows_(*table.schema, kBatchBytes) {}

  Status Save(const std::vector<uint32_t>& partitions) {
    for (const uint32_t p : partitions) {
      HET_RETURN_IF_ERROR(table_.since ? SaveChanges(p) : SaveRows(p));
      if (full_ || lost_) return Status();
    }
    return Write();
  }
  // There was not room for all rows: some rows that existed throughout are missing.
  bool full() const { return full_; }
  // The store no longer knows all changes.
  bool lost() const { return lost_; }

 private:
  Status Write() {
    full_ = full_ || rows_.size() > writer_->RowsLeft(number_);
    if (full_) rows_.Clear();
    const Status status = writer_->Append(number_, rows_);
    rows_.Clear();
    return status;
  }

  Status SaveRows(uint32_t partition) {
    for (uint64_t cursor = 0; cursor != TableStore::kScanned && !full_;) {
      HET_RETURN_IF_ERROR(store_->ScanSome(*table_.schema, partition, &cursor, &rows_));
      if (rows_.left() == 0) HET_RETURN_IF_ERROR(Write());
    }
    return Status();
  }

  Status SaveChanges(uint32_t partition) {
    ChangesScan scan;
    scan.since = (*table_.since)[partition];
    std::unordered_set<Key> gone;
    Vector<Key> removed;
    while (!scan.complete && !full_) {
      const size_t before = rows_.size();
      HET_RETURN_IF_ERROR(store_->ChangesSome(*table_.schema, partition, &scan, &rows_, &removed));
      lost_ = scan.kind != ChangesKind::kChanges;
      if (lost_) return Status();
      gone.insert(removed.begin(), removed.end());
      removed.clear();
      // Removals come before rows: these keys are back.
      for (size_t i = before; i < rows_.size() && !gone.empty(); ++i) gone.erase(rows_.keys()[i]);
      if (rows_.left() == 0) HET_RETURN_IF_ERROR(Write());
    }
    full_ = full_ || gone.size() > writer_->RemovedLeft(number_);
    if (full_) return Status();
    removed.assign(gone.begin(), gone.end());
    return writer_->AppendRemoved(number_, {removed.data(), removed.size()});
  }

  TableStore* const store_;
  const SavedTable& table_;
  const size_t number_;
  RowWriter* const writer_;
  RowBatch rows_;
  bool full_ = false;
  bool lost_ = false;
};

}  // namespace

Result<RowFileSummary> SaveRows(TableStore* store, const std::string& path, std::vector<SavedTable> tables,
                                const std::vector<uint32_t>& partitions) {
  for (uint32_t p : partitions) {
    if (p < store->partitions()) continue;
    return InvalidArgument("partition " + std::to_string(p) +
                           " cannot be saved; the store has the partitions 0 to " +
                           std::to_string(store->partitions() - 1));
  }
  for (const SavedTable& table : tables) {
    if (!table.since || table.since->size() == store->partitions()) continue;
    return InvalidArgument("table '" + table.schema->spec().name + "' has " +
                           std::to_string(table.since->size()) + " positions; the store has " +
                           std::to_string(store->partitions()) + " partitions");
  }
  try {
    for (int full = 0; full < kMostTries;) {
      std::vector<RowTable> plans;
      for (SavedTable& table : tables) {
        HET_ASSIGN_OR_RETURN(auto plan, Plan(store, partitions, &table));
        plans.push_back(std::move(plan));
        // Unused room costs time but no space: the columns are moved together.
        if (full > 0) plans.back().rows += (plans.back().rows / 4 + kMoreRows) << full;
        if (full > 0 && table.since) plans.back().removed += kMoreRows << 4 * full;
      }
      HET_ASSIGN_OR_RETURN(auto writer, RowWriter::Create(path, std::move(plans)));
      bool again = false;
      for (size_t t = 0; t < tables.size() && !again; ++t) {
        TableSaver saver(store, tables[t], t, writer.get());
        HET_RETURN_IF_ERROR(saver.Save(partitions));
        again = saver.full() || saver.lost();
        if (saver.full()) ++full;
        if (saver.lost()) tables[t].since.reset();
      }
      if (!again) return writer->Finish();
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
