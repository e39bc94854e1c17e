// HetFollowDense and HetServe: the dense weights and the rows of a native export
// (ext/serving/cc/follow/followed_model.h). A kernel keeps the model of its last path, so that a call does
// not access the file system; kernels share it.
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "het_tf/ext/serving/cc/follow/followed_model.h"
#include "het_tf/kernels/tf/tf_util.h"

namespace het {
namespace {

using follow::DenseFile;
using follow::FollowedModel;

// The model of the path in one of the inputs.
class FollowedInput {
 public:
  Result<std::shared_ptr<FollowedModel>> Get(TF_OpKernelContext* context, int input) {
    HET_ASSIGN_OR_RETURN(auto tensor, GetInput(context, input));
    HET_ASSIGN_OR_RETURN(const auto path, GetStringScalar(tensor.get()));
    std::lock_guard<std::mutex> lock(mutex_);
    if (model_ == nullptr || path_ != path) {
      HET_ASSIGN_OR_RETURN(model_, FollowedModel::Open(std::string(path)));
      path_ = path;
    }
    return model_;
  }

 private:
  std::mutex mutex_;  // guards the members below
  std::string path_;
  std::shared_ptr<FollowedModel> model_;
};

// --- dense weights
// ------------------------------------------------------------------------------------------

struct Type {
  const char* dtype;  // of safetensors
  const char* name;   // of TensorFlow
  TF_DataType type;
};
constexpr Type kTypes[] = {
    {"F32", "float32", TF_FLOAT},      {"F64", "float64", TF_DOUBLE}, {"F16", "float16", TF_HALF},
    {"BF16", "bfloat16", TF_BFLOAT16}, {"I8", "int8", TF_INT8},       {"I16", "int16", TF_INT16},
    {"I32", "int32", TF_INT32},        {"I64", "int64", TF_INT64},    {"U8", "uint8", TF_UINT8},
    {"U16", "uint16", TF_UINT16},      {"U32", "uint32", TF_UINT32},  {"U64", "uint64", TF_UINT64},
    {"BOOL", "bool", TF_BOOL}};

struct Weight {
  std::string name;
  std::vector<int64_t> shape;
  const Type* type;
};

Result<std::vector<Weight>> ParseWeights(const std::string& text) {
  std::vector<Weight> weights;
  try {
    for (const auto& one : nlohmann::json::parse(text)) {
      Weight weight{one.at(0).get<std::string>(), one.at(1).get<std::vector<int64_t>>(), nullptr};
      for (const Type& type : kTypes) {
        if (one.at(2).get<std::string>() == type.name) weight.type = &type;
      }
      if (weight.type == nullptr) return InvalidArgument("HetFollowDense: weight " + one.dump());
      weights.push_back(std::move(weight));
    }
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument(std::string("HetFollowDense: attribute weights: ") + error.what());
  }
  return weights;
}

// Input: path of follow.json. Outputs: a tensor for each weight, then the number of their version.
class FollowDenseKernel {
 public:
  static Result<std::unique_ptr<FollowDenseKernel>> Create(TF_OpKernelConstruction* context) {
    HET_ASSIGN_OR_RETURN(const auto text, GetStringAttr(context, "weights"));
    auto kernel = std::make_unique<FollowDenseKernel>();
    HET_ASSIGN_OR_RETURN(kernel->weights_, ParseWeights(text));
    return kernel;
  }

  Status Compute(TF_OpKernelContext* context) {
    HET_ASSIGN_OR_RETURN(const auto model, input_.Get(context, 0));
    HET_ASSIGN_OR_RETURN(const auto dense, model->ReadDense());
    for (size_t i = 0; i < weights_.size(); ++i) {
      HET_RETURN_IF_ERROR(SetWeight(context, static_cast<int>(i), weights_[i], dense.file));
    }
    return SetScalar(context, static_cast<int>(weights_.size()), TF_INT64,
                     static_cast<int64_t>(dense.version));
  }

 private:
  // Sets an output to a tensor of the mapping, which holds the file until TensorFlow has dropped it.
  static Status SetWeight(TF_OpKernelContext* context, int output, const Weight& weight,
                          const std::shared_ptr<const DenseFile>& file) {
    const DenseFile::Tensor* tensor = file->Find(weight.name);
    if (tensor == nullptr || tensor->dtype != weight.type->dtype || tensor->shape != weight.shape) {
      return Status(Code::kDataLoss, file->path() + " does not have the weight '" + weight.name + "' with " +
                                         weight.type->name + " of shape " +
                                         ShapeText({weight.shape.data(), weight.shape.size()}) +
                                         "; publish from the model that was exported");
    }
    if (tensor->bytes.empty()) {
      return NewOutput(context, output, weight.type->type, {weight.shape.data(), weight.shape.size()}, 0)
          .status();
    }
    if (reinterpret_cast<uintptr_t>(tensor->bytes.data()) % DenseFile::kAlign != 0) {
      return file->Damaged("the weight '" + weight.name + "' does not begin at a multiple of 64");
    }
    // TensorFlow calls the function when the tensor's last user is gone, and also if it refuses to make one.
    const TfTensor made(TF_NewTensor(
        weight.type->type, weight.shape.data(), static_cast<int>(weight.shape.size()),
        const_cast<uint8_t*>(tensor->bytes.data()), tensor->bytes.size(),
        [](void*, size_t, void* held) { delete static_cast<std::shared_ptr<const DenseFile>*>(held); },
        new std::shared_ptr<const DenseFile>(file)));
    if (made == nullptr)
      return Status(Code::kInternal, "TensorFlow refuses the weight '" + weight.name + "'");
    const TfStatus status = NewTfStatus();
    TF_SetOutput(context, output, made.get(), status.get());
    return FromTf(status.get());
  }

  std::vector<Weight> weights_;
  FollowedInput input_;
};

// --- rows
// ---------------------------------------------------------------------------------------------------

// Inputs: ids * N, hints * N, path of follow.json, ticket * M. Outputs: rows * N.
class ServeKernel {
 public:
  static Result<std::unique_ptr<ServeKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<ServeKernel>();
    HET_ASSIGN_OR_RETURN(kernel->files_, GetStringListAttr(context, "files"));
    HET_ASSIGN_OR_RETURN(const auto features, GetIntAttr(context, "N"));
    if (kernel->files_.size() == static_cast<size_t>(features)) return kernel;
    return InvalidArgument("HetServe: attribute files names " + std::to_string(kernel->files_.size()) +
                           " files for " + std::to_string(features) + " features; give one each");
  }

  Status Compute(TF_OpKernelContext* context) {
    const int n = static_cast<int>(files_.size());
    HET_ASSIGN_OR_RETURN(const auto model, input_.Get(context, 2 * n));
    std::vector<TfTensor> tensors;
    std::vector<follow::LiveRead> reads;
    tensors.reserve(2 * files_.size());
    reads.reserve(files_.size());
    std::vector<int64_t> shape;
    for (int f = 0; f < n; ++f) {
      HET_ASSIGN_OR_RETURN(const size_t table, model->Find(files_[f]));
      const int64_t dim = model->base(table).dim();
      HET_ASSIGN_OR_RETURN(auto hint, GetInput(context, n + f));
      shape = ShapeOf(hint.get());
      if (shape.size() != 2 || shape[1] != dim) {
        return InvalidArgument("HetServe: the hint of table '" + model->base(table).schema().spec().name +
                               "' has shape " + ShapeText(shape) + "; it must be [0, " + std::to_string(dim) +
                               "], as " + model->base(table).path() + " has it");
      }
      HET_ASSIGN_OR_RETURN(auto ids, GetInput(context, f));
      shape = ShapeOf(ids.get());
      shape.push_back(dim);
      HET_ASSIGN_OR_RETURN(auto rows,
                           NewOutput(context, f, TF_FLOAT, {shape.data(), shape.size()}, sizeof(float)));
      reads.push_back({table,
                       {static_cast<const int64_t*>(TF_TensorData(ids.get())),
                        static_cast<size_t>(TF_TensorElementCount(ids.get()))},
                       static_cast<float*>(TF_TensorData(rows.get()))});
      tensors.push_back(std::move(ids));
      tensors.push_back(std::move(rows));
    }
    return model->Lookup({reads.data(), reads.size()});
  }

 private:
  std::vector<std::string> files_;
  FollowedInput input_;
};

const bool follow_registered = (RegisterCpuKernel<FollowDenseKernel>("HetFollowDense"),
                                RegisterCpuKernel<ServeKernel>("HetServe"), true);

}  // namespace
}  // namespace het
