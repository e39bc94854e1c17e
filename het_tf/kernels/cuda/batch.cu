#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "het_tf/kernels/cuda/batch.h"

namespace het::dev {
namespace {

template <typename T>
Dev<T> Foreign(T* pointer) {
  return Dev<T>(static_cast<T*>(const_cast<void*>(runtime::ForeignAddress(pointer))));
}

UseView MakeUse(const HetDevUse& use, uint32_t number) {
  const std::string name = "use " + std::to_string(number);
  if (use.table == nullptr) Fail(HET_DEV_INVALID, name + " has no table");
  if (use.stamp >> 32 != 0) {
    Fail(HET_DEV_INVALID, name + " (table '" + use.table->name + "'): stamp " + std::to_string(use.stamp) +
                              " is not below 2^32. Remedy: restart the stamps, in a new table");
  }
  const bool keeps_updates = use.table->view.keep_updates != 0;
  if (use.push_bound < 0 || (use.push_bound > 0 && !keeps_updates)) {
    Fail(HET_DEV_INVALID, name + " (table '" + use.table->name + "'): push_bound " +
                              std::to_string(use.push_bound) +
                              (keeps_updates ? " is negative" : "; a table without keep_updates has 0"));
  }
  UseView view;
  view.table = use.table->view;
  view.pinned_from = use.pinned_from;
  view.push_bound = use.push_bound;
  view.push_every = use.push_every;
  view.push_early = use.push_early;
  view.push_from = use.push_from;
  view.stamp = static_cast<uint32_t>(use.stamp);
  view.learning_rate = use.learning_rate;
  view.check = use.check;
  view.trust = kTrustsNone;
  return view;
}

// *positions: number of ids of all features; *items: of their items.
std::vector<FeatureView> MakeFeatures(const HetDevBatch& batch, uint64_t* positions, uint64_t* items) {
  if (batch.n_features > kMostFeatures) {
    Fail(HET_DEV_INVALID, "the batch has " + std::to_string(batch.n_features) +
                              " features; a call takes at most " + std::to_string(kMostFeatures));
  }
  std::vector<FeatureView> features;
  for (uint32_t f = 0; f < batch.n_features; ++f) {
    const HetDevFeature& feature = batch.features[f];
    const std::string name = "feature " + std::to_string(f);
    if (feature.use >= batch.n_uses) {
      Fail(HET_DEV_INVALID,
           name + ": use " + std::to_string(feature.use) + "; there are " + std::to_string(batch.n_uses));
    }
    FeatureView view;
    view.rows = Foreign(feature.rows);
    view.gradients = Foreign(feature.gradients);
    view.begin = *positions;
    view.first_item = *items;
    view.n = feature.n;
    view.use = feature.use;
    view.has_padding = feature.has_padding;
    view.padding_id = feature.padding_id;
    features.push_back(view);
    constexpr uint64_t kMost = kEmpty - 1;
    if (feature.n > kMost - *positions) {
      Fail(HET_DEV_INVALID, name + " has " + std::to_string(feature.n) + " ids in addition to " +
                                std::to_string(*positions) + " of others; a call takes at most " +
                                std::to_string(kMost) + ". Remedy: smaller batches");
    }
    *positions += feature.n;
    *items += (feature.n + kItem - 1) / kItem;
  }
  return features;
}

}  // namespace

void HostBatch::SetIds(Dev<const int64_t> ids) {
  for (FeatureView& feature : features) feature.ids = ids.Plus(feature.begin);
}

int64_t* CopyIds(Context& context, const HetDevBatch& batch, uint64_t positions) {
  for (uint32_t f = 0; f < batch.n_features; ++f) {
    const HetDevFeature& feature = batch.features[f];
    if (feature.n == 0) continue;
    const std::string name = "feature " + std::to_string(f);
    if (feature.ids == nullptr) Fail(HET_DEV_INVALID, name + " has no ids");
    if (runtime::OnDevice(feature.ids)) {
      Fail(HET_DEV_INVALID,
           name + ": its ids are in the memory of a device. Remedy: give ids in host memory");
    }
  }
  int64_t* const ids = context.HostScratch<int64_t>(positions);
  int64_t* to = ids;
  for (uint32_t f = 0; f < batch.n_features; ++f) {
    to = std::copy_n(batch.features[f].ids, batch.features[f].n, to);
  }
  return ids;
}

void BringIds(Context& context, HetDevCall* call, const HetDevBatch& batch, HostBatch* host) {
  const uint64_t n = host->sizes.positions;
  if (!call->has_ids || call->positions != n) {
    int64_t* const ids = CopyIds(context, batch, n);
    call->Reserve(context, n);
    context.CopyIn(call->ids.as<int64_t>(), ids, n);
    call->has_ids = true;
    call->positions = n;
  }
  host->SetIds(call->ids.as<const int64_t>());
}

HostBatch CheckBatch(const HetDevCall& call, const HetDevBatch& batch) {
  HostBatch host;
  std::set<const HetDevTable*> tables;
  for (uint32_t u = 0; u < batch.n_uses; ++u) {
    host.uses.push_back(MakeUse(batch.uses[u], u));
    if (!tables.insert(batch.uses[u].table).second) {
      Fail(HET_DEV_INVALID, "use " + std::to_string(u) + ": table '" + batch.uses[u].table->name +
                                "' has a use already. Remedy: give all its features the same use");
    }
  }
  host.sizes = BatchSizes();
  host.features = MakeFeatures(batch, &host.sizes.positions, &host.sizes.items);
  for (UseView& use : host.uses) {
    use.first_bucket = host.sizes.buckets;
    host.sizes.buckets += use.table.buckets;
  }
  host.sizes.call = call.rows;
  host.sizes.n_uses = batch.n_uses;
  host.sizes.n_features = batch.n_features;
  return host;
}

BatchView Upload(Context& context, const HostBatch& batch) {
  // One copy for both arrays.
  static_assert(sizeof(UseView) % alignof(FeatureView) == 0);
  const size_t use_bytes = batch.uses.size() * sizeof(UseView);
  const size_t bytes = use_bytes + batch.features.size() * sizeof(FeatureView);
  char* host = context.HostScratch<char>(bytes);
  if (!batch.uses.empty()) std::memcpy(host, static_cast<const void*>(batch.uses.data()), use_bytes);
  if (!batch.features.empty()) {
    std::memcpy(host + use_bytes, static_cast<const void*>(batch.features.data()), bytes - use_bytes);
  }
  const Dev<char> device = context.Scratch<char>(bytes);
  context.CopyIn(device, host, bytes);
  BatchView view;
  static_cast<BatchSizes&>(view) = batch.sizes;
  view.uses = Dev<const UseView>(reinterpret_cast<const UseView*>(device.raw()));
  view.features = Dev<const FeatureView>(reinterpret_cast<const FeatureView*>(device.Plus(use_bytes).raw()));
  return view;
}

KernelBatch::KernelBatch(Context& context, HostBatch batch) : host_(std::move(batch)) {
  fits_ = host_.uses.size() <= ParameterBatch::kMostUses &&
          host_.features.size() <= ParameterBatch::kMostFeatures;
  if (!fits_) uploaded_ = Upload(context, host_);
}

ParameterBatch KernelBatch::AsParameter() const {
  ParameterBatch parameter;
  static_cast<BatchSizes&>(parameter) = host_.sizes;
  std::copy(host_.uses.begin(), host_.uses.end(), parameter.uses);
  std::copy(host_.features.begin(), host_.features.end(), parameter.features);
  return parameter;
}

WantedView MakeWanted(Context& context, const BatchSizes& batch, Dev<uint32_t> n) {
  uint64_t entries = 64;
  while (entries < 2 * batch.positions) entries *= 2;
  if (entries > uint64_t{1} << 32) entries = uint64_t{1} << 32;
  WantedView view;
  view.mask = static_cast<uint32_t>(entries - 1);
  view.visit = batch.visit;
  view.set = context.Unvisited(entries);
  view.n = n;
  view.uses = context.Scratch<uint32_t>(batch.positions);
  view.keys = context.Scratch<int64_t>(batch.positions);
  view.bases = context.Scratch<int64_t>(batch.positions);
  return view;
}

void ReadWanted(Context& context, const WantedView& view, uint32_t n, HetDevWanted* wanted) {
  *wanted = HetDevWanted{};
  if (n == 0) return;
  uint32_t* uses = context.HostScratch<uint32_t>(n);
  int64_t* keys = context.HostScratch<int64_t>(n);
  int64_t* bases = context.HostScratch<int64_t>(n);
  context.CopyOut(uses, view.uses, n);
  context.CopyOut(keys, view.keys, n);
  context.CopyOut(bases, view.bases, n);
  context.Wait();
  wanted->n = n;
  wanted->use = uses;
  wanted->keys = keys;
  wanted->bases = bases;
}

}  // namespace het::dev
