// Host side: checks a HetDevBatch and copies it to the device; reads the list of a call's wanted rows.
#pragma once

#include <vector>

#include "het_tf/kernels/cuda/context.h"
#include "het_tf/kernels/cuda/layout.h"
#include "het_tf/kernels/cuda/table.h"

namespace het::dev {

// A batch that was checked.
struct HostBatch {
  std::vector<UseView> uses;
  std::vector<FeatureView> features;
  BatchSizes sizes;

  // The ids of all positions.
  void SetIds(Dev<const int64_t> ids);
};
// HET_DEV_INVALID: a check failed. The ids are null.
HostBatch CheckBatch(const HetDevCall& call, const HetDevBatch& batch);
// Copies a batch's ids to page-locked memory. HET_DEV_INVALID: there are none, or they are on the device.
int64_t* CopyIds(Context& context, const HetDevBatch& batch, uint64_t positions);
// Sets the ids to the call's, which it first gets from the batch if it has none.
void BringIds(Context& context, HetDevCall* call, const HetDevBatch& batch, HostBatch* host);
// Copies it to device memory. Call after context.Begin().
BatchView Upload(Context& context, const HostBatch& batch);

// A checked batch for kernels: With(launch) calls launch(batch) with a ParameterBatch, or with a BatchView,
// which is copied to the device once, if the batch has too many uses or features for parameters.
class KernelBatch {
 public:
  KernelBatch(Context& context, HostBatch batch);
  KernelBatch() = default;

  template <typename F>
  void With(F launch) const {
    if (fits_) {
      launch(AsParameter());
    } else {
      launch(uploaded_);
    }
  }
  const BatchSizes& sizes() const { return host_.sizes; }
  bool fits() const { return fits_; }  // into parameters
  void SetCall(const CallRows& call) { host_.sizes.call = uploaded_.call = call; }
  const std::vector<UseView>& uses() const { return host_.uses; }

 private:
  ParameterBatch AsParameter() const;

  HostBatch host_;
  BatchView uploaded_ = {};
  bool fits_ = true;
};

// Wanted rows, for HetDevWanted; a set keeps each (use, key) once, for any number of positions.
struct WantedView {
  Dev<uint64_t> set;  // visit << 32 | position; mask + 1 entries. Those of other visits are free
  uint32_t mask;
  uint32_t visit;
  Dev<uint32_t> n;     // 0
  Dev<uint32_t> uses;  // room for one entry a position
  Dev<int64_t> keys;
  Dev<int64_t> bases;
};
WantedView MakeWanted(Context& context, const BatchSizes& batch, Dev<uint32_t> n);
// Copies the list to the host and waits. `reads` and `hits` stay null.
void ReadWanted(Context& context, const WantedView& view, uint32_t n, HetDevWanted* wanted);

}  // namespace het::dev
