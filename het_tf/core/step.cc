#include "het_tf/core/step.h"

#include <algorithm>

#include "het_tf/core/row_ops.h"

namespace het {
namespace {

constexpr uint8_t kTouched = 1;
constexpr uint8_t kCreated = 2;
constexpr size_t kRowsAhead = 8;

// Scratch of the thread that works on a group.
thread_local Buffer<const float*> t_values;
thread_local Buffer<float> t_initial;

void PrefetchForWrite(const RowStore& rows, uint32_t row) {
  __builtin_prefetch(&rows.meta(row), 1);
  const char* data = reinterpret_cast<const char*>(rows.data(row));
  for (size_t at = 0; at < rows.row_floats() * sizeof(float); at += 64) __builtin_prefetch(data + at, 1);
}

}  // namespace

void Step::Build(const BatchCall& call, const PartitionId& store, ThreadPool* pool) {
  plan.Build(call.features, static_cast<uint32_t>(call.tables.size()), store, pool);
  any_cached = std::any_of(call.tables.begin(), call.tables.end(),
                           [](const TablePtr& table) { return table->options.cache.has_value(); });
}

void Step::PrepareSums(const BatchCall& call) {
  active.assign(call.features.size(), 0);
  sum_begin_.clear();
  size_t floats = 0;
  for (const BatchPlan::Group& group : plan.groups()) {
    sum_begin_.push_back(floats);
    floats += group.uniques * call.tables[group.table]->schema->dim();
  }
  sums_.Resize(floats);
  touched_.Resize(plan.entries());
}

void LookupGroup(const Shard& shard, BatchPlan& plan, const BatchPlan::Group& group,
                 Span<float* const> out) {
  const RowStore& store = shard.rows();
  const size_t dim = shard.schema().dim();
  uint32_t* rows = plan.rows(group);
  const Key* keys = plan.keys(group);
  store.FindBatch(keys, plan.hashes(group), group.uniques, rows);
  const size_t absent = static_cast<size_t>(std::count(rows, rows + group.uniques, kNoRow));
  float* initial = t_initial.Resize(absent * dim);
  const float** values = t_values.Resize(group.uniques);
  for (size_t u = 0; u < group.uniques; ++u) {
    if (rows[u] != kNoRow) {
      values[u] = store.data(rows[u]);
    } else {
      shard.schema().InitValue(keys[u], initial);
      values[u] = initial;
      initial += dim;
    }
  }
  GatherGroup(plan, group, values, dim, out);
}

bool MakeRows(Shard* shard, BatchPlan& plan, const BatchPlan::Group& group, uint8_t* touched) {
  RowStore& store = shard->rows();
  uint32_t* rows = plan.rows(group);
  const Key* keys = plan.keys(group);
  const uint64_t* hashes = plan.hashes(group);
  for (size_t u = 0; u < group.uniques; ++u) {
    if (u + kRowsAhead < group.uniques && rows[u + kRowsAhead] < store.end()) {
      __builtin_prefetch(&store.meta(rows[u + kRowsAhead]));
    }
    if (!touched[u]) continue;
    // The row number is of the lookup; the row may have been removed since, and its number given to another key.
    if (rows[u] < store.end() && store.meta(rows[u]).key == keys[u] && store.live(rows[u])) continue;
    try {
      bool created = false;
      rows[u] = shard->FindOrCreate(keys[u], hashes[u], &created);
      if (created) touched[u] = kTouched | kCreated;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  return true;
}

void DropNewRows(Shard* shard, BatchPlan& plan, const BatchPlan::Group& group, uint8_t* touched) {
  for (size_t u = 0; u < group.uniques; ++u) {
    if (touched[u] & kCreated) shard->rows().Erase(plan.rows(group)[u]);
    touched[u] = 0;
  }
}

void TickGroup(Shard* shard, BatchPlan* plan, const BatchPlan::Group& group, float learning_rate,
               float* sums, const uint8_t* touched, uint32_t step) {
  RowStore& store = shard->rows();
  const TableSchema& schema = shard->schema();
  const size_t dim = schema.dim();
  const uint32_t* rows = plan->rows(group);
  for (size_t u = 0; u < group.uniques; ++u) {
    if (u + kRowsAhead < group.uniques && touched[u + kRowsAhead]) PrefetchForWrite(store, rows[u + kRowsAhead]);
    if (!touched[u]) continue;
    schema.Tick(learning_rate, sums + u * dim, store.data(rows[u]), nullptr);
    RowMeta& meta = store.meta(rows[u]);
    ++meta.clock;
    meta.count = meta.count == 0xffff ? meta.count : static_cast<uint16_t>(meta.count + 1);
    meta.last_used = step;
  }
}

Status TableIsGone(const Table& table) {
  return FailedPrecondition("table '" + table.schema->spec().name +
                            "' was dropped; create it again (build the layer), or load a checkpoint");
}

}  // namespace het
