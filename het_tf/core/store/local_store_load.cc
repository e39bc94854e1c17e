// LocalStore's piecewise saving and loading of tables.
#include <algorithm>
#include <new>

#include "het_tf/core/store/local_store.h"

namespace het {
namespace {

// Prefetch distance in keys.
constexpr size_t kAhead = 16;

Status OutOfMemory(const TableSchema& schema) {
  return Status(Code::kResourceExhausted,
                "out of memory while table '" + schema.spec().name +
                    "' was loaded; some of its rows are there. Load on a machine with "
                    "more memory, or fewer tables");
}

}  // namespace

Result<TableState> LocalStore::State(const TableSchema& schema) {
  TableState state;
  for (uint32_t p = 0; p < partitions(); ++p) {
    HET_RETURN_IF_ERROR(WithShard(schema, p, [&](Partition* partition, const Shard* shard) {
      state.positions.push_back({partition->incarnation(), partition->changes().now()});
      state.limits = shard->limits();
      state.clock_floor = std::max(state.clock_floor, shard->clock_floor());
      state.rows.push_back(shard->rows().size());
    }));
  }
  return state;
}

Status LocalStore::ScanSome(const TableSchema& schema, uint32_t partition, uint64_t* cursor,
                            RowBatch* batch) {
  return WithShard(schema, partition, [&](Partition*, const Shard* shard) {
    const RowStore& rows = shard->rows();
    uint64_t row = *cursor;
    for (; row < rows.end() && batch->left() > 0; ++row) {
      const auto number = static_cast<uint32_t>(row);
      const RowMeta& meta = rows.meta(number);
      if ((meta.flags & RowStore::kLive) != 0) batch->Add(meta, shard->Read(rows.data(number)));
    }
    *cursor = row < rows.end() ? row : kScanned;
  });
}

Result<ChangesCount> LocalStore::CountChanges(const TableSchema& schema, Span<const Position> since,
                                              const std::vector<uint32_t>& some) {
  ChangesCount count;
  if (since.size() != partitions()) count.kind = ChangesKind::kWhole;
  for (size_t i = 0; i < some.size() && count.kind != ChangesKind::kWhole; ++i) {
    count += service_->WithPartition(some[i], [&](const Partition& partition) {
      return het::CountChanges(partition, since[some[i]], schema.id());
    });
  }
  return count;
}

Status LocalStore::ChangesSome(const TableSchema& schema, uint32_t partition, ChangesScan* scan,
                               RowBatch* rows, Vector<Key>* removed) {
  ChangesPage page;
  const ChangesRequest request = NextOf(*scan, schema, *rows);
  HET_RETURN_IF_ERROR(
      WithShard(schema, partition, [&](Partition* p, Shard*) { ReadChanges(*p, request, &page); }));
  return TakePage(page, schema, scan, rows, removed);
}

Status LocalStore::BeginLoad(const std::string&, uint32_t) {
  const uint64_t epoch = RandomId();
  for (uint32_t p = 0; p < partitions(); ++p) {
    service_->WithPartition(p, [&](Partition& partition) {
      for (const auto& [table, shard] : partition.shards()) shard->set_epoch(epoch);
      partition.clients().ForgetAll();
    });
  }
  return Status();
}

Status LocalStore::Reserve(const TableSchema& schema, Span<const uint64_t> more_rows) {
  try {
    for (uint32_t p = 0; p < partitions(); ++p) {
      if (more_rows[p] == 0) continue;
      HET_RETURN_IF_ERROR(
          WithShard(schema, p, [&](Partition*, Shard* shard) { shard->rows().Reserve(more_rows[p]); }));
    }
  } catch (const std::bad_alloc&) {
    return OutOfMemory(schema);
  }
  return Status();
}

Status LocalStore::LoadBatch(const TableSchema& schema, const RowBatch& rows) {
  try {
    // Groups positions by partition: one lock for each, and its index stays in the CPU's cache.
    const TableLayout layout = LayoutOf(schema);
    Vector<uint64_t> hashes(rows.size());
    Vector<uint32_t> order(rows.size());
    Vector<uint32_t> end(partitions() + 1);
    for (size_t i = 0; i < rows.size(); ++i) {
      hashes[i] = layout.Hash(rows.keys()[i]);
      ++end[layout.Of(hashes[i]) + 1];
    }
    for (uint32_t p = 0; p < partitions(); ++p) end[p + 1] += end[p];
    for (size_t i = 0; i < rows.size(); ++i) {
      order[end[layout.Of(hashes[i])]++] = static_cast<uint32_t>(i);
    }
    for (uint32_t p = 0, begin = 0; p < partitions(); begin = end[p++]) {
      if (begin == end[p]) continue;
      HET_RETURN_IF_ERROR(WithShard(schema, p, [&](Partition* partition, Shard* shard) {
        const uint64_t number = partition->RowsChanged(schema.id());
        RowStore& store = shard->rows();
        for (uint32_t at = begin; at < end[p]; ++at) {
          if (at + kAhead < end[p]) store.Prefetch(hashes[order[at + kAhead]]);
          const uint32_t i = order[at];
          uint32_t row = store.Find(rows.keys()[i], hashes[i]);
          if (row == kNoRow) row = shard->Insert(rows.keys()[i], hashes[i]);
          RowMeta& meta = store.meta(row);
          meta.clock = rows.clocks()[i];
          meta.last_used = rows.last_used()[i];
          meta.count = rows.counts()[i];
          shard->MarkChanged(row, number);
          rows.CopyRow(i, shard->Edit(row));
          shard->Set(row);
        }
      }));
    }
  } catch (const std::bad_alloc&) {
    return OutOfMemory(schema);
  }
  return Status();
}

Status LocalStore::RaiseFloor(const TableSchema& schema, Clock floor) {
  for (uint32_t p = 0; p < partitions(); ++p) {
    HET_RETURN_IF_ERROR(WithShard(schema, p, [&](Partition*, Shard* shard) { shard->RaiseFloor(floor); }));
  }
  return Status();
}

}  // namespace het
