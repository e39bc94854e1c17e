#include "het_tf/core/engine/direct_backend.h"

#include <algorithm>
#include <atomic>

#include "het_tf/core/plan/row_ops.h"

namespace het {
namespace {

// Bits of Step::touched.
constexpr uint8_t kTouched = 1;
constexpr uint8_t kCreated = 2;

constexpr size_t kAhead = 16;  // rows

// Finds the rows of a group's unique keys: in the store or, for absent keys, in step->values.
void FindRows(const Shard& shard, const BatchPlan::Group& group, Step* step) {
  const RowStore& store = shard.rows();
  const size_t dim = shard.schema().dim();
  uint32_t* const numbers = step->plan.rows(group);
  const Key* const keys = step->plan.keys(group);
  const float** const rows = step->rows(group);
  const StoredFormat& format = shard.schema().stored();
  store.FindBatch(keys, step->plan.hashes(group), group.uniques, numbers, std::min(dim, store.row_floats()));
  step->plan.set_generation(group, store.generation());
  for (size_t u = 0; u < group.uniques; ++u) {
    float* const own = step->values(group) + u * dim;
    rows[u] = own;
    if (numbers[u] == kNoRow) {
      shard.schema().InitValue(keys[u], own);
    } else if (format.exact()) {
      rows[u] = store.data(numbers[u]);
    } else {
      format.ReadValue(store.data(numbers[u]), own);
    }
  }
}

// Makes a row for every touched key and sets plan.rows. Throws std::bad_alloc; the rows made so far are
// marked in `touched`.
void MakeRows(Shard* shard, const BatchPlan::Group& group, Step* step) {
  uint32_t* const rows = step->plan.rows(group);
  uint8_t* const touched = step->touched(group);
  // The row numbers are the lookup's. If a row was removed since, its number may be another key's.
  const bool numbers_hold = group.generation == shard->rows().generation();
  for (size_t u = 0; u < group.uniques; ++u) {
    if (!touched[u]) continue;
    touched[u] = kTouched;  // an earlier update by the same sums may have created the row
    if (numbers_hold && rows[u] != kNoRow) continue;
    bool created = false;
    rows[u] = shard->FindOrCreate(step->plan.keys(group)[u], step->plan.hashes(group)[u], &created);
    if (created) touched[u] = kTouched | kCreated;
  }
}

// Ticks every touched key with its scaled sum at time `now`, as the partition's change `number`.
void TickGroup(Shard* shard, const BatchPlan::Group& group, float learning_rate, float scale, uint32_t now,
               uint64_t number, Step* step) {
  RowStore& store = shard->rows();
  const TableSchema& schema = shard->schema();
  const size_t dim = schema.dim();
  const uint64_t draw = PushDraw(schema.id(), 0, 0, 0);
  const uint32_t* const rows = step->plan.rows(group);
  const uint8_t* const touched = step->touched(group);
  const float* const sums = step->values(group);
  float* const scratch = step->scratch(group);
  for (size_t u = 0; u < group.uniques; ++u) {
    if (u + kAhead < group.uniques && touched[u + kAhead]) store.PrefetchRow(rows[u + kAhead]);
    if (!touched[u]) continue;
    shard->MarkChanged(rows[u], number);
    RowMeta& meta = store.meta(rows[u]);
    schema.Tick(learning_rate, sums + u * dim, scale, scratch, meta.clock, shard->Edit(rows[u]), nullptr);
    shard->Keep(rows[u], draw);
    CountTick(now, &meta);
  }
}

}  // namespace

// Calls fn(partition, shard, group) for every non-empty group of a direct table, with its partition locked;
// before that it finds the group's unique keys if it has to.
template <typename Fn>
Status DirectBackend::ForShards(StepCall* call, Fn fn, bool finds_unique) {
  std::atomic<const Table*> missing{nullptr};
  call->step->ForPartitions(call->pool, [&](uint32_t p) {
    const auto for_groups = [&](auto each) {
      for (const BatchPlan::Group& group : call->step->GroupsOf(p)) {
        const Table& table = *call->call.tables[group.table];
        if (group.entries != 0 && Serves(table.options)) each(group, table);
      }
    };
    if (finds_unique) {
      for_groups([&](const BatchPlan::Group& group, const Table&) { call->step->plan.Unique(group); });
    }
    service_->WithPartition(p, [&](Partition& partition) {
      for_groups([&](const BatchPlan::Group& group, const Table& table) {
        Shard* const shard = partition.Find(table.schema->id());
        if (shard == nullptr) {
          missing.store(&table);
        } else {
          fn(&partition, shard, group);
        }
      });
    });
  });
  const Table* const table = missing.load();
  return table == nullptr ? Status() : TableIsGone(*table);
}

Status DirectBackend::Lookup(StepCall* call, Span<float* const> out) {
  Step* const step = call->step;
  return ForShards(
      call,
      [step, out](Partition*, Shard* shard, const BatchPlan::Group& group) {
        FindRows(*shard, group, step);
        if (!out.empty()) CopyToFeatures(step->plan, group, step->rows(group), shard->schema().dim(), out);
      },
      /*finds_unique=*/!call->planned);
}

Status DirectBackend::Prepare(StepCall* call) {
  return ForShards(call, [call](Partition*, Shard* shard, const BatchPlan::Group& group) {
    MakeRows(shard, group, call->step);
  });
}

void DirectBackend::Undo(StepCall* call) {
  static_cast<void>(ForShards(call, [call](Partition*, Shard* shard, const BatchPlan::Group& group) {
    uint8_t* const touched = call->step->touched(group);
    for (size_t u = 0; u < group.uniques; ++u) {
      if (touched[u] & kCreated) shard->rows().Erase(call->step->plan.rows(group)[u]);
      touched[u] = 0;
    }
  }));
}

Status DirectBackend::Tick(StepCall* call, const ApplyArgs& args) {
  const uint32_t now = service_->Now();
  return ForShards(call, [&](Partition* partition, Shard* shard, const BatchPlan::Group& group) {
    const uint64_t number = partition->RowsChanged(shard->schema().id());
    TickGroup(shard, group, args.learning_rates[group.table], args.scale, now, number, call->step);
    partition->SweepTable(shard, now, group.uniques, nullptr);
  });
}

}  // namespace het
