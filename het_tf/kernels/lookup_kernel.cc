// HetLookup: the rows of all features of a model, in one call.
#include "het_tf/kernels/id_inputs.h"
#include "het_tf/kernels/online_tables.h"

namespace het {
namespace {

class LookupKernel {
 public:
  static Result<std::unique_ptr<LookupKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<LookupKernel>();
    auto spec = GetCallSpec(context);
    if (!spec.ok()) return spec.status();
    auto training = GetBoolAttr(context, "training");
    if (!training.ok()) return training.status();
    kernel->spec_ = std::move(spec.value());
    kernel->training_ = training.value();
    if (!kernel->spec_->online().empty()) {
      if (kernel->training_) {
        return InvalidArgument(
            "HetLookup: specs has 'online', and training is true; a serving process never "
            "trains");
      }
      auto online = OnlineTables::Create(*kernel->spec_);
      if (!online.ok()) return online.status();
      kernel->online_ = std::move(online.value());
    }
    return kernel;
  }

  // Inputs: ids * N, anchor, hints * N. Outputs: rows * N, token, probe.
  Status Compute(TF_OpKernelContext* context) {
    const int n = static_cast<int>(spec_->features().size());
    CallSpec::Resolved resolved;
    OnlineTables::Resolved online;
    if (online_ == nullptr) {
      auto found = spec_->Resolve();
      if (!found.ok()) return found.status();
      resolved = std::move(found.value());
    } else {
      auto found = online_->Resolve();
      if (!found.ok()) return found.status();
      online = std::move(found.value());
    }
    auto inputs = GetIdInputs(context, *spec_, 0);
    if (!inputs.ok()) return inputs.status();

    std::vector<TfTensor> rows;
    std::vector<float*> out;
    for (int f = 0; f < n; ++f) {
      const uint32_t table = spec_->features()[f].table;
      const int64_t dim = spec_->schemas()[table]->dim();  // Resolve has compared
      HET_RETURN_IF_ERROR(CheckHint(context, n + 1 + f, table, dim));
      std::vector<int64_t> shape = ShapeOf(inputs.value().tensors[f].get());
      shape.push_back(dim);
      auto tensor = NewOutput(context, f, TF_FLOAT, shape, sizeof(float));
      if (!tensor.ok()) return tensor.status();
      out.push_back(static_cast<float*>(TF_TensorData(tensor.value().get())));
      rows.push_back(std::move(tensor.value()));
    }

    uint64_t token = 0;
    if (online_ == nullptr) {
      const BatchCall call{*resolved.tables, inputs.value().features};
      HET_RETURN_IF_ERROR(resolved.engine->Lookup(call, out, training_ ? &token : nullptr));
    } else {
      HET_RETURN_IF_ERROR(online.Lookup(inputs.value().features, out));
    }
    HET_RETURN_IF_ERROR(SetScalar<int64_t>(context, n, TF_INT64, static_cast<int64_t>(token)));
    return SetScalar<float>(context, n + 1, TF_FLOAT, 0.0f);
  }

 private:
  // The static shape of the rows came from the hint, so it must tell the truth.
  Status CheckHint(TF_OpKernelContext* context, int index, uint32_t table, int64_t dim) const {
    auto hint = GetInput(context, index);
    if (!hint.ok()) return hint.status();
    const std::vector<int64_t> shape = ShapeOf(hint.value().get());
    if (shape.size() == 2 && shape[1] == dim) return Status();
    return InvalidArgument("HetLookup: the hint of table '" + spec_->tables()[table] + "' has shape " +
                           ShapeText(shape) + "; it must be [0, " + std::to_string(dim) + "]");
  }

  std::unique_ptr<CallSpec> spec_;
  std::unique_ptr<OnlineTables> online_;  // null: the tables are this process's own
  bool training_ = false;
};

const bool registered = (RegisterCpuKernel<LookupKernel>("HetLookup"), true);

}  // namespace
}  // namespace het
