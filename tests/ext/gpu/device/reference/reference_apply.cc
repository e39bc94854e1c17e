// A step's gradients: sum and tick.
#include <algorithm>
#include <cmath>

#include "tests/ext/gpu/device/reference/reference.h"

namespace {

using het::Key;
using het::reference::CheckBatch;
using het::reference::Fail;
using het::reference::IsPadding;
using het::reference::kChunk;
using het::reference::Keys;
using het::reference::LeavingOfUse;
using het::reference::Row;

// One key's sum over whole chunks, and the sum of the current chunk.
struct Sum {
  std::vector<float> total, chunk;
  uint64_t occurrences = 0;
  bool active = false;

  // Null: of a feature that is not active.
  void Add(const float* gradient, size_t dim) {
    if (occurrences == 0) total.assign(dim, 0.0f);
    if (occurrences % kChunk == 0) {
      if (occurrences > 0) EndChunk();
      chunk.assign(dim, 0.0f);
    }
    ++occurrences;
    if (gradient == nullptr) return;
    active = true;
    for (size_t i = 0; i < dim; ++i) chunk[i] += gradient[i];
  }
  void EndChunk() {
    for (size_t i = 0; i < total.size(); ++i) total[i] += chunk[i];
  }
};
using SumsOfUse = std::map<Key, Sum, het::reference::AsUnsigned>;

int64_t PushBound(const HetDevUse& use, int64_t clock) {
  if (use.push_every == 0) return use.push_bound;
  const int64_t age = clock % (int64_t{1} << 20);
  return std::min(use.push_bound, age / use.push_every);
}

bool WillLeave(const HetDevUse& use, const Row& row, bool of_call) {
  const int64_t ticks = int64_t{row.ticks} + 1;
  return of_call || ticks > PushBound(use, row.base + ticks);
}

// The update that then leaves has more than one tick past the bound.
bool IsOverdue(const HetDevUse& use, const Row& row, bool of_call) {
  const int64_t ticks = int64_t{row.ticks} + 1;
  return !of_call && ticks - 1 > PushBound(use, row.base + ticks);
}

void AddFeature(const HetDevFeature& feature, bool active, size_t dim, SumsOfUse* sums) {
  for (uint64_t i = 0; i < feature.n; ++i) {
    if (IsPadding(feature, feature.ids[i])) continue;
    (*sums)[feature.ids[i]].Add(active ? feature.gradients + i * dim : nullptr, dim);
  }
}

}  // namespace

int HetDevSum(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch, float scale,
              const uint8_t* active, HetDevStream, HetDevWanted* wanted, HetDevSummed* summed) {
  if (const int bad = CheckBatch(context, call, batch, call->ids.empty())) return bad;
  const het::reference::Readable readable(*call, *batch);
  batch = &readable.batch;
  for (uint32_t f = 0; f < batch->n_features; ++f) {
    const HetDevFeature& feature = batch->features[f];
    if (feature.n > 0 && feature.gradients == nullptr && (active == nullptr || active[f])) {
      return Fail(HET_DEV_INVALID, "feature " + std::to_string(f) + " has no gradients");
    }
  }
  if (!context->Begin()) return context->OutOfMemory();
  std::vector<uint8_t> counts(batch->n_features);
  for (uint32_t f = 0; f < batch->n_features; ++f) {
    const HetDevFeature& feature = batch->features[f];
    const size_t floats = feature.n * batch->uses[feature.use].table->config.dim;
    counts[f] = active != nullptr ? active[f] != 0
                                  : std::any_of(feature.gradients, feature.gradients + floats,
                                                [](float g) { return g != 0; });
  }
  context->active = counts;
  *summed = HetDevSummed();
  summed->active = context->active.data();

  context->wanted = {};
  const std::vector<Keys> keys = het::reference::KeysOf(*batch, counts.data());
  for (uint32_t u = 0; u < batch->n_uses; ++u) {
    for (Key key : keys[u]) {
      const Row* row = call->Find(batch->uses[u].table, key);
      if (row == nullptr || row->invalid()) context->wanted.Add(u, key, HET_DEV_NO_BASE);
    }
  }
  context->wanted.Show(wanted);
  wanted->reads = wanted->hits = nullptr;
  if (wanted->n > 0) return HET_DEV_OK;

  std::vector<SumsOfUse> sums(batch->n_uses);
  for (uint32_t f = 0; f < batch->n_features; ++f) {
    const HetDevFeature& feature = batch->features[f];
    AddFeature(feature, counts[f] != 0, batch->uses[feature.use].table->config.dim, &sums[feature.use]);
  }
  het::reference::Sums result{call, {}};
  result.of_use.resize(batch->n_uses);
  context->ticks.assign(batch->n_uses, 0);
  summed->ticks = context->ticks.data();
  for (uint32_t u = 0; u < batch->n_uses; ++u) {
    for (auto& [key, sum] : sums[u]) {
      if (!sum.active) continue;
      bool of_call = false;
      const Row* row = call->Find(batch->uses[u].table, key, &of_call);
      ++summed->uniques;
      ++context->ticks[u];
      summed->due += WillLeave(batch->uses[u], *row, of_call);
      summed->overdue += IsOverdue(batch->uses[u], *row, of_call);
      sum.EndChunk();
      bool finite = true;
      for (float& value : sum.total) {
        value *= scale;
        finite = finite && std::isfinite(value);
      }
      if (!finite && !summed->non_finite) {
        summed->non_finite = 1;
        summed->bad_use = u;
        summed->bad_key = key;
      }
      result.of_use[u][key] = sum.total;
    }
  }
  if (!summed->non_finite) context->sums = std::move(result);
  return HET_DEV_OK;
}

int HetDevTick(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch, HetDevStream,
               HetDevExport* due) {
  if (const int bad = CheckBatch(context, call, batch, false)) return bad;
  if (!context->sums || context->sums->call != call || context->sums->of_use.size() != batch->n_uses) {
    return Fail(
        HET_DEV_INVALID,
        "HetDevTick must follow a HetDevSum of the same call that wanted no key and found no NaN or Inf");
  }
  het::reference::Sums sums = *context->sums;
  if (!context->Begin()) return context->OutOfMemory();
  std::vector<LeavingOfUse> leaving(batch->n_uses);
  for (uint32_t u = 0; u < batch->n_uses; ++u) {
    const HetDevUse& use = batch->uses[u];
    for (auto& [key, gradient] : sums.of_use[u]) {
      bool of_call = false;
      Row* row = call->Find(use.table, key, &of_call);
      const bool leaves = WillLeave(use, *row, of_call);
      use.table->schema->Tick(use.learning_rate, gradient.data(), row->base + row->ticks, row->row.data(),
                              row->update.data());
      ++row->ticks;
      if (!leaves) continue;
      leaving[u][key] = row->Update();
      row->base += row->ticks;
      row->ticks = 0;
      row->update.assign(row->update.size(), 0.0f);
    }
  }
  context->leaving.Fill(leaving, due);
  return HET_DEV_OK;
}
