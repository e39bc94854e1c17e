// HetApplyGrad: the gradient of HetLookup, which is the update itself. HetApplyCount: the step of a schedule.
#include <cmath>
#include <limits>

#include "het_tf/kernels/call_spec.h"

namespace het {
namespace {

Result<float> GetScalar(TF_OpKernelContext* context, int index, const char* name) {
  auto tensor = GetInput(context, index);
  if (!tensor.ok()) return tensor.status();
  const std::vector<int64_t> shape = ShapeOf(tensor.value().get());
  if (TF_TensorElementCount(tensor.value().get()) != 1) {
    return InvalidArgument(std::string("HetApplyGrad: ") + name + " has shape " + ShapeText(shape) +
                           "; it must be a scalar");
  }
  return *static_cast<const float*>(TF_TensorData(tensor.value().get()));
}

class ApplyGradKernel {
 public:
  static Result<std::unique_ptr<ApplyGradKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<ApplyGradKernel>();
    auto spec = CallSpec::Create(context);
    if (!spec.ok()) return spec.status();
    kernel->spec_ = std::move(spec.value());
    return kernel;
  }

  // Inputs: ids * N, grads * N, token, learning_rates, scale, loss_scale. Output: anchor_grad.
  Status Compute(TF_OpKernelContext* context) {
    const int n = static_cast<int>(spec_->features().size());
    auto resolved = spec_->Resolve();
    if (!resolved.ok()) return resolved.status();
    auto inputs = GetIdInputs(context, *spec_, 0);
    if (!inputs.ok()) return inputs.status();
    auto gradients = GetGradients(context, inputs.value(), *resolved.value());
    if (!gradients.ok()) return gradients.status();

    auto token = GetInput(context, 2 * n);
    if (!token.ok()) return token.status();
    auto rates = GetInput(context, 2 * n + 1);
    if (!rates.ok()) return rates.status();
    const size_t rates_given = static_cast<size_t>(TF_TensorElementCount(rates.value().get()));
    if (rates_given != spec_->tables().size()) {
      return InvalidArgument("HetApplyGrad: " + std::to_string(rates_given) + " learning rates for " +
                             std::to_string(spec_->tables().size()) + " tables");
    }
    auto scale = GetScalar(context, 2 * n + 2, "scale");
    if (!scale.ok()) return scale.status();
    auto loss_scale = GetScalar(context, 2 * n + 3, "loss_scale");
    if (!loss_scale.ok()) return loss_scale.status();
    // 0 arrives when the probe is no part of the loss.
    if (loss_scale.value() == 0 && spec_->needs_loss_scale()) {
      return FailedPrecondition(
          "the layer computes in float16, and its probe is no part of the loss, so the loss scale is unknown "
          "and "
          "the tables would be trained with scaled gradients. In a custom loop add the model's losses before "
          "scaling: loss += tf.add_n(model.losses)");
    }
    const float divisor = loss_scale.value() == 0 ? 1.0f : loss_scale.value();

    Engine::ApplyArgs args;
    args.token = static_cast<uint64_t>(*static_cast<const int64_t*>(TF_TensorData(token.value().get())));
    args.gradients = gradients.value().pointers;
    args.learning_rates = {static_cast<const float*>(TF_TensorData(rates.value().get())), rates_given};
    for (size_t t = 0; t < rates_given; ++t) {
      if (!std::isfinite(args.learning_rates[t])) {
        return InvalidArgument("HetApplyGrad: the learning rate of table '" + spec_->tables()[t] +
                               "' is not finite");
      }
    }
    args.scale = scale.value() / divisor;
    // Under a loss scale an overflow is an ordinary event: the table sits the step out, and the NaN makes the
    // LossScaleOptimizer do the same and lower the scale.
    args.non_finite = divisor == 1.0f ? NonFinite::kRaise : NonFinite::kSkip;
    bool skipped = false;
    const BatchCall call{resolved.value()->tables, inputs.value().features};
    HET_RETURN_IF_ERROR(resolved.value()->engine->Apply(call, args, &skipped));
    return SetScalar<float>(context, 0, TF_FLOAT, skipped ? std::numeric_limits<float>::quiet_NaN() : 0.0f);
  }

 private:
  struct Gradients {
    std::vector<TfTensor> tensors;
    std::vector<const float*> pointers;
  };

  Result<Gradients> GetGradients(TF_OpKernelContext* context, const IdInputs& ids,
                                 const CallSpec::Resolved& resolved) const {
    const int n = static_cast<int>(spec_->features().size());
    Gradients gradients;
    for (int f = 0; f < n; ++f) {
      auto tensor = GetInput(context, n + f);
      if (!tensor.ok()) return tensor.status();
      const uint32_t table = spec_->features()[f].table;
      std::vector<int64_t> wanted = ShapeOf(ids.tensors[f].get());
      wanted.push_back(resolved.tables[table]->schema->dim());
      const std::vector<int64_t> given = ShapeOf(tensor.value().get());
      if (given != wanted) {
        return InvalidArgument("HetApplyGrad: the gradient of feature " + std::to_string(f) + " (table '" +
                               spec_->tables()[table] + "') has shape " + ShapeText(given) + "; it must be " +
                               ShapeText(wanted));
      }
      gradients.pointers.push_back(static_cast<const float*>(TF_TensorData(tensor.value().get())));
      gradients.tensors.push_back(std::move(tensor.value()));
    }
    return gradients;
  }

  std::unique_ptr<CallSpec> spec_;
};

class ApplyCountKernel {
 public:
  static Result<std::unique_ptr<ApplyCountKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<ApplyCountKernel>();
    auto spec = CallSpec::Create(context);
    if (!spec.ok()) return spec.status();
    kernel->spec_ = std::move(spec.value());
    return kernel;
  }

  Status Compute(TF_OpKernelContext* context) {
    auto resolved = spec_->Resolve();
    if (!resolved.ok()) return resolved.status();
    const std::vector<TablePtr>& tables = resolved.value()->tables;
    const int64_t shape[] = {static_cast<int64_t>(tables.size())};
    auto counts = NewOutput(context, 0, TF_INT64, {shape, 1}, sizeof(int64_t));
    if (!counts.ok()) return counts.status();
    int64_t* out = static_cast<int64_t*>(TF_TensorData(counts.value().get()));
    for (const TablePtr& table : tables) *out++ = table->applies.load();
    return Status();
  }

 private:
  std::unique_ptr<CallSpec> spec_;
};

const bool registered = (RegisterCpuKernel<ApplyGradKernel>("HetApplyGrad"),
                         RegisterCpuKernel<ApplyCountKernel>("HetApplyCount"), true);

}  // namespace
}  // namespace het
