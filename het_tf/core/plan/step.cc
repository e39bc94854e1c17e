#include "het_tf/core/plan/step.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "het_tf/core/plan/row_ops.h"

namespace het {
namespace {

constexpr uint8_t kTouched = 1;
constexpr uint8_t kCreated = 2;
constexpr size_t kRowsAhead = 16;

void PrefetchForWrite(const RowStore& rows, uint32_t row) {
  __builtin_prefetch(&rows.meta(row), 1);
  const char* data = reinterpret_cast<const char*>(rows.data(row));
  for (size_t at = 0; at < rows.row_floats() * sizeof(float); at += 64) __builtin_prefetch(data + at, 1);
}

}  // namespace

void Step::Scatter(const BatchCall& call, const PartitionId& store, ThreadPool* pool) {
  plan.Scatter(call.features, static_cast<uint32_t>(call.tables.size()), store, pool);
  any_cached = std::any_of(call.tables.begin(), call.tables.end(),
                           [](const TablePtr& table) { return table->options.cache.has_value(); });
}

void Step::Build(const BatchCall& call, const PartitionId& store, ThreadPool* pool) {
  Scatter(call, store, pool);
  plan.UniqueAll(pool);
}

void Step::PrepareValues(const BatchCall& call) {
  table_begin_.clear();
  size_t floats = 0;
  for (uint32_t t = 0; t < call.tables.size(); ++t) {
    table_begin_.push_back(floats);
    floats += plan.table_entries(t) * call.tables[t]->schema->dim();
  }
  values_.Resize(floats);
}

void Step::PrepareTouched(const BatchCall& call) {
  active.assign(call.features.size(), 0);
  touched_.Resize(plan.entries());
}

void LookupGroup(const Shard& shard, BatchPlan& plan, const BatchPlan::Group& group, float* values) {
  const RowStore& store = shard.rows();
  const size_t dim = shard.schema().dim();
  uint32_t* rows = plan.rows(group);
  const Key* keys = plan.keys(group);
  store.FindBatch(keys, plan.hashes(group), group.uniques, rows, dim);
  plan.set_generation(group, store.generation());
  for (size_t u = 0; u < group.uniques; ++u) {
    if (rows[u] != kNoRow) {
      std::memcpy(values + u * dim, store.data(rows[u]), dim * sizeof(float));
    } else {
      shard.schema().InitValue(keys[u], values + u * dim);
    }
  }
}

void GatherFeatures(const BatchCall& call, Step* step, ThreadPool* pool, Span<float* const> out) {
  constexpr size_t kChunk = 4096;
  struct Chunk {
    uint32_t feature;
    size_t begin;
    size_t end;
  };
  Vector<Chunk> chunks;
  for (uint32_t f = 0; f < call.features.size(); ++f) {
    const size_t n = call.features[f].ids.size();
    for (size_t begin = 0; begin < n; begin += kChunk)
      chunks.push_back({f, begin, std::min(n, begin + kChunk)});
  }
  step->ForTasks(pool, chunks.size(), [&](size_t c) {
    const Chunk& chunk = chunks[c];
    const uint32_t table = call.features[chunk.feature].table;
    const size_t dim = call.tables[table]->schema->dim();
    std::array<uint32_t, kChunk> numbers;
    step->plan.Numbers(chunk.feature, chunk.begin, chunk.end - chunk.begin, numbers.data());
    Gather(numbers.data(), chunk.end - chunk.begin, step->values(table), dim,
           out[chunk.feature] + chunk.begin * dim);
  });
}

bool MakeRows(Shard* shard, BatchPlan& plan, const BatchPlan::Group& group, uint8_t* touched) {
  RowStore& store = shard->rows();
  uint32_t* rows = plan.rows(group);
  const Key* keys = plan.keys(group);
  const uint64_t* hashes = plan.hashes(group);
  // The row numbers are of the lookup. If a row was removed since then, its number may be another key's now.
  const bool numbers_hold = group.generation == store.generation();
  for (size_t u = 0; u < group.uniques; ++u) {
    if (!touched[u] || (numbers_hold && rows[u] != kNoRow)) continue;
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

void TickGroup(Shard* shard, BatchPlan* plan, const BatchPlan::Group& group, float learning_rate, float* sums,
               const uint8_t* touched, uint32_t now) {
  RowStore& store = shard->rows();
  const TableSchema& schema = shard->schema();
  const size_t dim = schema.dim();
  const uint32_t* rows = plan->rows(group);
  for (size_t u = 0; u < group.uniques; ++u) {
    if (u + kRowsAhead < group.uniques && touched[u + kRowsAhead])
      PrefetchForWrite(store, rows[u + kRowsAhead]);
    if (!touched[u]) continue;
    schema.Tick(learning_rate, sums + u * dim, store.data(rows[u]), nullptr);
    CountTick(now, &store.meta(rows[u]));
  }
}

Status TableIsGone(const Table& table) {
  return FailedPrecondition("table '" + table.schema->spec().name +
                            "' was dropped; create it again (build the layer), or load a checkpoint");
}

Status NonFiniteGradient(const Table& table, Key key) {
  return InvalidArgument(
      "gradient of table '" + table.schema->spec().name + "' for id " + std::to_string(key) +
      " is NaN or Inf; no row was changed. Lower the learning rate, clip the loss, or check "
      "the inputs");
}

Status NonFiniteGradient(const BatchCall& call, Step* step, const BatchPlan::Group& group) {
  const size_t dim = call.tables[group.table]->schema->dim();
  size_t u = 0;
  while (u + 1 < group.uniques && ScaleAndCheckFinite(step->values_of(group, dim) + u * dim, dim, 1)) ++u;
  return NonFiniteGradient(*call.tables[group.table], step->plan.keys(group)[u]);
}

}  // namespace het
