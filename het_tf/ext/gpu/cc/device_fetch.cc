// DeviceTables::Fetch: gets a step's wanted rows from the store.
#include <algorithm>
#include <cstring>
#include <new>

#include "het_tf/core/client/client.h"
#include "het_tf/core/wire/layout.h"
#include "het_tf/ext/gpu/cc/device_step.h"

namespace het {

static_assert(kNoBase == HET_DEV_NO_BASE && kOldBase == HET_DEV_OLD_BASE);

void DeviceTables::Fetched::Sort(const HetDevWanted& wanted, Span<DeviceTable* const> tables,
                                 const PartitionId& store) {
  const size_t n = wanted.n, groups = tables.size() * store.count;
  group_of.resize(n);
  begin.assign(groups + 1, 0);
  const Layout layout(store);
  for (size_t i = 0; i < n; ++i) {
    const uint64_t table = tables[wanted.use[i]]->schema().id();
    group_of[i] = wanted.use[i] * store.count + layout.OfKey(table, wanted.keys[i]);
    ++begin[group_of[i] + 1];
  }
  for (size_t g = 0; g < groups; ++g) begin[g + 1] += begin[g];
  at.assign(begin.begin(), begin.end());
  rows.resize(n);
  for (size_t i = 0; i < n; ++i) rows[at[group_of[i]]++] = {wanted.keys[i], wanted.bases[i]};
  // Sort them: requests, and which row leaves a full bucket, must not depend on the device's order.
  for (size_t g = 0; g < groups; ++g) {
    std::sort(rows.begin() + static_cast<ptrdiff_t>(begin[g]),
              rows.begin() + static_cast<ptrdiff_t>(begin[g + 1]),
              [](const Row& x, const Row& y) { return x.key < y.key; });
  }
  keys.resize(n);
  bases.resize(n);
  for (size_t i = 0; i < n; ++i) {
    keys[i] = rows[i].key;
    bases[i] = rows[i].base;
  }
  clocks.resize(n);
  came.assign(n, 0);
  admit.assign(n, 0);
  subscribed.assign(n, 0);
  answers.reserve(2 * tables.size());
}

void DeviceTables::Fetched::Pack(Span<DeviceTable* const> tables, uint32_t partitions, float* floats) {
  answers.clear();
  stay.clear();
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!came[i] && subscribed[i]) stay.push_back(keys[i]);
  }
  are.assign(stay.size(), 1);
  const Key* stays = stay.data();
  for (uint32_t u = 0; u < tables.size(); ++u) {
    const size_t first = begin[size_t{u} * partitions], end = begin[size_t{u + 1} * partitions];
    const size_t width = tables[u]->schema().row_floats();
    size_t to = first, staying = 0;
    for (size_t i = first; i < end; ++i) {
      if (!came[i]) {
        staying += subscribed[i];
        continue;
      }
      if (to != i) {
        keys[to] = keys[i];
        clocks[to] = clocks[i];
        admit[to] = admit[i];
        subscribed[to] = subscribed[i];
        std::memcpy(floats + (to - first) * width, floats + (i - first) * width, width * sizeof(float));
      }
      ++to;
    }
    if (to > first) {
      answers.push_back(
          {u, to - first, &keys[first], &clocks[first], &admit[first], floats, &subscribed[first]});
    }
    if (staying > 0) answers.push_back({u, staying, stays, nullptr, nullptr, nullptr, are.data()});
    stays += staying;
    floats += (end - first) * width;
  }
}

Status DeviceTables::Fetch(Batch* batch, HetDevCall* call, const HetDevWanted& wanted, bool training,
                           bool* went) {
  Fetched& f = *fetched_;
  const Span<DeviceTable* const> tables(batch->tables.data(), batch->tables.size());
  f.Sort(wanted, tables, store_);
  size_t floats = 0;
  DeviceRead read;
  const Layout layout(store_);
  for (size_t g = 0; g + 1 < f.begin.size(); ++g) {
    const size_t first = f.begin[g], rows = f.begin[g + 1] - first;
    const TableSchema& schema = batch->tables[g / store_.count]->schema();
    const auto partition = static_cast<uint32_t>(g % store_.count);
    if (rows == 0 && !(batch->asks && layout.OfTable(schema.id()).Has(partition))) continue;
    floats += rows * schema.row_floats();
    read.parts.push_back({schema.id(), partition, rows, f.keys.data() + first, f.bases.data() + first,
                          f.came.data() + first, f.admit.data() + first, f.subscribed.data() + first,
                          f.clocks.data() + first, nullptr});
  }

  // From here on `wanted` is invalid.
  void* memory = nullptr;
  if (floats > 0)
    HET_RETURN_IF_ERROR(Done(library_->HetDevStage(context_, floats * sizeof(float), &memory), *batch));
  auto* at = static_cast<float*>(memory);
  for (DeviceRead::Part& part : read.parts) {
    part.rows = at;
    at += part.n * client_->cache(part.table)->schema()->row_floats();
  }
  HET_RETURN_IF_ERROR(devices_.Read(&read, training));
  HET_RETURN_IF_ERROR(CatchUp(batch->stream, went));
  for (const DeviceRead::Part& part : read.parts) {
    if (std::count(part.subscribed, part.subscribed + part.n, 1) > 0)
      tables_.at(part.table)->Subscribe(part.partition);
  }

  f.Pack(tables, store_.count, static_cast<float*>(memory));
  if (f.answers.empty()) return Status();
  HetDevExport victims = {};
  HET_RETURN_IF_ERROR(
      Done(library_->HetDevInstall(context_, call, &batch->batch, f.answers.data(),
                                   static_cast<uint32_t>(f.answers.size()), batch->stream, &victims),
           *batch));
  if (training) calls_.Changed();
  // As LineMarks::End.
  try {
    for (uint64_t i = 0; i < victims.n_left; ++i) {
      client_->cache(tables[victims.left_uses[i]]->schema().id())
          ->marks()
          .left()
          .push_back(victims.left_keys[i]);
    }
  } catch (const std::bad_alloc&) {
  }
  Gave(victims, tables, true);
  PushExports();
  return Status();
}

}  // namespace het
