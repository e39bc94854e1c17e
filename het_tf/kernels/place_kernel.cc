// HetPlaceSamples: the workers of a global batch's samples, by who used their rows last
// (core/data/location.h).
//
// What the rule knows lives here, and a scalar in the pipeline stands for it: tf.data hands it from batch to
// batch of one pass. A pass takes its state out while a batch is placed, so two that have one number (an
// iterator that was saved and restored beside the first) never share it.
#include <deque>
#include <mutex>
#include <random>

#include "het_tf/core/base/hash.h"
#include "het_tf/core/data/location.h"
#include "het_tf/kernels/tf_util.h"

namespace het {
namespace {

// Where a pass is.
struct Pass {
  int64_t handle;
  int64_t batches;  // that it has placed
  std::unique_ptr<Location> rule;
};

int64_t NewHandle() {
  std::random_device random;
  const uint64_t word = static_cast<uint64_t>(random()) << 32 | random();
  return static_cast<int64_t>(word >> 1) | 1;  // none is 0
}

// The newest passes of this process, newest last.
class Passes {
 public:
  // Without a rule where there is none: it was begun elsewhere, has gone on since, or is older than others.
  Pass Take(int64_t handle, int64_t batches) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto pass = kept_.begin(); pass != kept_.end(); ++pass) {
      if (pass->handle != handle || pass->batches != batches) continue;
      Pass found = std::move(*pass);
      kept_.erase(pass);
      return found;
    }
    return {NewHandle(), batches, nullptr};
  }

  void Keep(Pass pass) {
    const std::lock_guard<std::mutex> lock(mutex_);
    kept_.push_back(std::move(pass));
    if (kept_.size() > kMost) kept_.pop_front();
  }

  static Passes* Get() {
    static auto* const passes = new Passes;  // pipelines may outlive what the process destroys at its end
    return passes;
  }

 private:
  static constexpr size_t kMost = 4;  // of 64 MB: a pass to train, one to look at, one that was left, and one
  std::mutex mutex_;
  std::deque<Pass> kept_;
};

class PlaceSamplesKernel {
 public:
  static Result<std::unique_ptr<PlaceSamplesKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<PlaceSamplesKernel>();
    HET_ASSIGN_OR_RETURN(kernel->workers_, GetIntAttr(context, "workers"));
    HET_ASSIGN_OR_RETURN(kernel->batch_, GetIntAttr(context, "batch"));
    if (kernel->workers_ < 1 || kernel->workers_ > static_cast<int32_t>(Location::kMostWorkers)) {
      return InvalidArgument("workers is " + std::to_string(kernel->workers_) + "; give 1 to " +
                             std::to_string(Location::kMostWorkers));
    }
    return kernel;
  }

  // Inputs: keys, handle, batches. Outputs: owners, prints, handle.
  Status Compute(TF_OpKernelContext* context) {
    HET_ASSIGN_OR_RETURN(const TfTensor input, GetInput(context, 0));
    HET_ASSIGN_OR_RETURN(const int64_t handle, GetInt64(context, 1));
    HET_ASSIGN_OR_RETURN(const int64_t batches, GetInt64(context, 2));
    const Span<const uint64_t> keys(static_cast<const uint64_t*>(TF_TensorData(input.get())),
                                    static_cast<size_t>(TF_TensorElementCount(input.get())));
    const int64_t samples = TF_NumDims(input.get()) == 2 ? TF_Dim(input.get(), 0) : 0;
    HET_ASSIGN_OR_RETURN(const TfTensor owners, NewOutput(context, 0, TF_INT64, {&samples, 1}, 8));
    HET_ASSIGN_OR_RETURN(const TfTensor prints, NewOutput(context, 1, TF_UINT64, {&samples, 1}, 8));
    const Span<int64_t> found(static_cast<int64_t*>(TF_TensorData(owners.get())),
                              static_cast<size_t>(samples));

    Pass pass = Passes::Get()->Take(handle, batches);
    if (pass.rule == nullptr) {
      pass.rule = std::make_unique<Location>(static_cast<size_t>(workers_), static_cast<size_t>(batch_));
    }
    HET_RETURN_IF_ERROR(pass.rule->Place(static_cast<uint64_t>(batches), keys, found));
    ++pass.batches;
    HET_RETURN_IF_ERROR(SetScalar(context, 2, TF_INT64, pass.handle));
    Passes::Get()->Keep(std::move(pass));
    SetPrints(keys, {found.data(), found.size()}, static_cast<uint64_t*>(TF_TensorData(prints.get())));
    return Status();
  }

 private:
  static Result<int64_t> GetInt64(TF_OpKernelContext* context, int index) {
    HET_ASSIGN_OR_RETURN(const TfTensor input, GetInput(context, index));
    return *static_cast<const int64_t*>(TF_TensorData(input.get()));
  }

  // Of keys and owner: ranks that have read other samples differ, and so do those that remember others.
  static void SetPrints(Span<const uint64_t> keys, Span<const int64_t> owners, uint64_t* prints) {
    const size_t width = keys.size() / owners.size();
    for (size_t i = 0; i < owners.size(); ++i) {
      uint64_t sum = static_cast<uint64_t>(owners[i]);
      for (const uint64_t key : keys.subspan(i * width, width)) sum += key;
      prints[i] = Mix64(sum);
    }
  }

  int32_t workers_ = 1, batch_ = 1;
};

const bool place_registered = (RegisterCpuKernel<PlaceSamplesKernel>("HetPlaceSamples"), true);

}  // namespace
}  // namespace het
