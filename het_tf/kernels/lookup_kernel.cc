// HetLookup: the rows of all features of a model, in one call. Outputs: rows * N, token.
#include <string>
#include <vector>

#include "het_tf/kernels/id_inputs.h"

namespace het {
namespace {

struct RowOutputs {
  std::vector<TfTensor> tensors;
  std::vector<float*> rows;  // for each feature
};

// Inputs of the op: ids * N, anchor, hints * N. Allocates rows for the ids. InvalidArgument: a hint, which
// gave the rows their static shape, has another dim than the table.
Result<RowOutputs> NewRowOutputs(TF_OpKernelContext* context, const CallSpec& spec, const IdInputs& ids) {
  const int n = static_cast<int>(spec.features().size());
  RowOutputs outputs;
  for (int f = 0; f < n; ++f) {
    const uint32_t table = spec.features()[f].table;
    const int64_t dim = spec.schemas()[table]->dim();
    HET_ASSIGN_OR_RETURN(const TfTensor hint, GetInput(context, n + 1 + f));
    const std::vector<int64_t> hinted = ShapeOf(hint.get());
    if (hinted.size() != 2 || hinted[1] != dim) {
      return InvalidArgument("HetLookup: the hint of table '" + spec.tables()[table] + "' has shape " +
                             ShapeText(hinted) + "; it must be [0, " + std::to_string(dim) + "]");
    }
    std::vector<int64_t> shape = ShapeOf(ids.tensors[f].get());
    shape.push_back(dim);
    HET_ASSIGN_OR_RETURN(TfTensor rows, NewOutput(context, f, TF_FLOAT, shape, sizeof(float)));
    outputs.rows.push_back(static_cast<float*>(TF_TensorData(rows.get())));
    outputs.tensors.push_back(std::move(rows));
  }
  return outputs;
}

class LookupKernel {
 public:
  static Result<std::unique_ptr<LookupKernel>> Create(TF_OpKernelConstruction* context) {
    HET_ASSIGN_OR_RETURN(std::unique_ptr<CallSpec> spec, GetCallSpec(context));
    HET_ASSIGN_OR_RETURN(const bool training, GetBoolAttr(context, "training"));
    return std::unique_ptr<LookupKernel>(new LookupKernel(std::move(spec), training));
  }

  Status Compute(TF_OpKernelContext* context) {
    HET_ASSIGN_OR_RETURN(const CallSpec::Resolved resolved, spec_->Resolve());
    HET_ASSIGN_OR_RETURN(const IdInputs ids, GetIdInputs(context, *spec_, 0));
    HET_RETURN_IF_ERROR(CheckIds(*spec_, ids.features));
    HET_ASSIGN_OR_RETURN(const RowOutputs outputs, NewRowOutputs(context, *spec_, ids));
    uint64_t token = 0;
    HET_RETURN_IF_ERROR(resolved.engine->steps().Lookup({*resolved.tables, ids.features, spec_->signature()},
                                                        outputs.rows, training_ ? &token : nullptr));
    const int features = static_cast<int>(spec_->features().size());
    return SetScalar<int64_t>(context, features, TF_INT64, static_cast<int64_t>(token));
  }

 private:
  LookupKernel(std::unique_ptr<CallSpec> spec, bool training) : spec_(std::move(spec)), training_(training) {}

  const std::unique_ptr<CallSpec> spec_;
  const bool training_;
};

const bool lookup_registered = (RegisterCpuKernel<LookupKernel>("HetLookup"), true);

}  // namespace
}  // namespace het
