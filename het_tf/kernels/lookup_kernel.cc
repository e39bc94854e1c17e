// HetLookup: the rows of all features of a model, in one call. The specs choose the kernel: one for tables of
// this process's engine, one for a serving process that reads tables from a live server.
#include "het_tf/ext/serving/kernels/online_tables.h"
#include "het_tf/kernels/lookup_outputs.h"

namespace het {
namespace {

class LookupKernel {
 public:
  virtual ~LookupKernel() = default;
  static Result<std::unique_ptr<LookupKernel>> Create(TF_OpKernelConstruction* context);

  virtual Status Compute(TF_OpKernelContext* context) = 0;

 protected:
  explicit LookupKernel(std::unique_ptr<CallSpec> spec) : spec_(std::move(spec)) {}

  const std::unique_ptr<CallSpec> spec_;
};

class EngineLookup final : public LookupKernel {
 public:
  EngineLookup(std::unique_ptr<CallSpec> spec, bool training)
      : LookupKernel(std::move(spec)), training_(training) {}

  Status Compute(TF_OpKernelContext* context) override {
    HET_ASSIGN_OR_RETURN(const CallSpec::Resolved resolved, spec_->Resolve());
    HET_ASSIGN_OR_RETURN(const IdInputs ids, GetIdInputs(context, *spec_, 0));
    HET_RETURN_IF_ERROR(CheckIds(*spec_, ids.features));
    HET_ASSIGN_OR_RETURN(const RowOutputs outputs, NewRowOutputs(context, *spec_, ids));
    uint64_t token = 0;
    HET_RETURN_IF_ERROR(resolved.engine->steps().Lookup({*resolved.tables, ids.features, spec_->signature()},
                                                        outputs.rows, training_ ? &token : nullptr));
    return SetToken(context, *spec_, token);
  }

 private:
  const bool training_;
};

class OnlineLookup final : public LookupKernel {
 public:
  OnlineLookup(std::unique_ptr<CallSpec> spec, std::unique_ptr<OnlineTables> tables)
      : LookupKernel(std::move(spec)), tables_(std::move(tables)) {}

  Status Compute(TF_OpKernelContext* context) override {
    HET_ASSIGN_OR_RETURN(const OnlineTables::Resolved resolved, tables_->Resolve());
    HET_ASSIGN_OR_RETURN(const IdInputs ids, GetIdInputs(context, *spec_, 0));
    HET_ASSIGN_OR_RETURN(const RowOutputs outputs, NewRowOutputs(context, *spec_, ids));
    HET_RETURN_IF_ERROR(resolved.Lookup(ids.features, outputs.rows));
    return SetToken(context, *spec_, 0);
  }

 private:
  const std::unique_ptr<OnlineTables> tables_;
};

Result<std::unique_ptr<LookupKernel>> LookupKernel::Create(TF_OpKernelConstruction* context) {
  HET_ASSIGN_OR_RETURN(std::unique_ptr<CallSpec> spec, GetCallSpec(context));
  HET_ASSIGN_OR_RETURN(const bool training, GetBoolAttr(context, "training"));
  std::unique_ptr<LookupKernel> kernel;
  if (spec->online().empty()) {
    kernel = std::make_unique<EngineLookup>(std::move(spec), training);
    return kernel;
  }
  if (training) {
    return InvalidArgument(
        "HetLookup: specs has 'online', and training is true; a serving process never trains");
  }
  HET_ASSIGN_OR_RETURN(std::unique_ptr<OnlineTables> tables, OnlineTables::Create(*spec));
  kernel = std::make_unique<OnlineLookup>(std::move(spec), std::move(tables));
  return kernel;
}

const bool lookup_registered = (RegisterCpuKernel<LookupKernel>("HetLookup"), true);

}  // namespace
}  // namespace het
