#include "het_tf/ext/checkpoint/cc/merge.h"

#include <algorithm>
#include <new>

#include "het_tf/ext/checkpoint/cc/chain.h"
#include "het_tf/ext/checkpoint/cc/save.h"

namespace het {
namespace {

constexpr size_t kGoneAtOnce = 65536;

// Returns null if the file does not have the table.
Result<const RowTable*> TableOf(const RowReader& file, const MergedTable& wanted) {
  const auto& tables = file.tables();
  const auto table =
      std::find_if(tables.begin(), tables.end(), [&](const RowTable& t) { return t.name == wanted.name; });
  if (table == tables.end()) return static_cast<const RowTable*>(nullptr);
  if (table->dim == wanted.dim && table->slot_floats == wanted.slot_floats) return &*table;
  return InvalidArgument("rows of table '" + wanted.name + "' in '" + file.path() + "' have " +
                         std::to_string(table->dim) + " floats and " + std::to_string(table->slot_floats) +
                         " of slots; those of the merged table have " + std::to_string(wanted.dim) + " and " +
                         std::to_string(wanted.slot_floats));
}

Result<Chain> ChainOf(const MergeRequest& request, const MergedTable& table) {
  Chain chain(request.layout.OfTable(HashName(table.name)), request.partitions);
  for (const std::string& path : table.files) {
    HET_ASSIGN_OR_RETURN(const auto file, RowReader::Open(path));
    HET_RETURN_IF_ERROR(TableOf(*file, table).status());
    HET_RETURN_IF_ERROR(chain.Add(*file, table.name));
  }
  return chain;
}

Status MergeTable(const MergedTable& table, size_t number, Chain* chain, RowWriter* writer) {
  const size_t capacity = RowBatch::RowsOf(kBatchBytes, size_t{table.dim} + table.slot_floats);
  RowBatch read(table.dim, table.slot_floats, capacity);
  RowBatch newest(table.dim, table.slot_floats, capacity);
  const auto write = [&] {
    const Status status = writer->Append(number, newest);
    newest.Clear();
    return status;
  };
  for (auto path = table.files.rbegin(); path != table.files.rend(); ++path) {
    HET_ASSIGN_OR_RETURN(const auto file, RowReader::Open(*path));
    HET_ASSIGN_OR_RETURN(const RowTable* rows, TableOf(*file, table));
    for (uint64_t first = 0; rows != nullptr && first < rows->rows; first += read.size()) {
      HET_RETURN_IF_ERROR(file->ReadRows(*rows, first, true, &read));
      for (size_t i = 0; i < read.size(); ++i) {
        if (!chain->Take(read.keys()[i])) continue;
        newest.Add(read, i);
        if (newest.left() == 0) HET_RETURN_IF_ERROR(write());
      }
    }
  }
  HET_RETURN_IF_ERROR(write());
  if (table.complete) return Status();
  Vector<Key> keys;
  bool more = true;
  for (uint64_t cursor = 0; more; keys.clear()) {
    more = chain->Gone(&cursor, kGoneAtOnce, &keys);
    HET_RETURN_IF_ERROR(writer->AppendRemoved(number, {keys.data(), keys.size()}));
  }
  return Status();
}

}  // namespace

Result<RowFileSummary> MergeRows(const std::string& path, const MergeRequest& request) {
  for (uint32_t p : request.partitions) {
    if (p < request.layout.partitions()) continue;
    return InvalidArgument("partition " + std::to_string(p) +
                           " cannot be merged; the store has the partitions 0 to " +
                           std::to_string(request.layout.partitions() - 1));
  }
  try {
    std::vector<Chain> chains;
    std::vector<RowTable> plans;
    for (const MergedTable& table : request.tables) {
      HET_ASSIGN_OR_RETURN(Chain chain, ChainOf(request, table));
      const Chain::Counts counts = chain.Count();
      chains.push_back(std::move(chain));
      RowTable plan;
      plan.name = table.name;
      plan.dim = table.dim;
      plan.slot_floats = table.slot_floats;
      plan.rows = counts.rows;
      plan.increment = !table.complete;
      plan.removed = table.complete ? 0 : counts.gone;
      plans.push_back(std::move(plan));
    }
    HET_ASSIGN_OR_RETURN(auto writer, RowWriter::Create(path, std::move(plans)));
    for (size_t t = 0; t < request.tables.size(); ++t) {
      HET_RETURN_IF_ERROR(MergeTable(request.tables[t], t, &chains[t], writer.get()));
    }
    return writer->Finish();
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted, "out of memory while rows were merged into '" + path +
                                                "'; merge where more is free, or save a full checkpoint");
  }
}

}  // namespace het
