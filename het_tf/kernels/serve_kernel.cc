// HetServe: the rows of all features of a model, from serving files.
//
// A kernel keeps the files of its last paths, so that a call does not access the file system. Kernels of the
// same files share one mapping, and the last kernel closes it.
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "het_tf/core/serve/serve_lookup.h"
#include "het_tf/kernels/tf/tf_util.h"

namespace het {
namespace {

class ServeKernel {
 public:
  static Result<std::unique_ptr<ServeKernel>> Create(TF_OpKernelConstruction* context) {
    HET_ASSIGN_OR_RETURN(auto tables, GetStringListAttr(context, "tables"));
    HET_ASSIGN_OR_RETURN(auto features, GetIntAttr(context, "N"));
    if (tables.size() != static_cast<size_t>(features)) {
      return InvalidArgument("HetServe: attribute tables names " + std::to_string(tables.size()) +
                             " tables for " + std::to_string(features) + " features; give one each");
    }
    auto kernel = std::make_unique<ServeKernel>();
    kernel->tables_ = std::move(tables);
    return kernel;
  }

  // Inputs: ids * N, paths * N, hints * N. Outputs: rows * N.
  Status Compute(TF_OpKernelContext* context) {
    const int n = static_cast<int>(tables_.size());
    HET_ASSIGN_OR_RETURN(auto opened, GetFiles(context));
    const Files files = std::move(opened);

    std::vector<TfTensor> tensors;
    std::vector<serve::ServeRead> reads;
    tensors.reserve(2 * tables_.size());
    reads.reserve(tables_.size());
    std::vector<int64_t> shape;
    for (int f = 0; f < n; ++f) {
      const serve::ServeFile& file = *files->at(f);
      HET_ASSIGN_OR_RETURN(auto input, GetInput(context, f));
      const TF_Tensor* ids = input.get();
      shape = ShapeOf(ids);
      shape.push_back(file.dim());
      HET_ASSIGN_OR_RETURN(auto output, NewOutput(context, f, TF_FLOAT, shape, sizeof(float)));
      reads.push_back(
          {&file,
           {static_cast<const int64_t*>(TF_TensorData(ids)), static_cast<size_t>(TF_TensorElementCount(ids))},
           static_cast<float*>(TF_TensorData(output.get()))});
      tensors.push_back(std::move(input));
      tensors.push_back(std::move(output));
    }
    return serve::Lookup(Span<const serve::ServeRead>(reads.data(), reads.size()));
  }

 private:
  using Files = std::shared_ptr<const std::vector<std::shared_ptr<const serve::ServeFile>>>;

  // Returns the files of the inputs: the previous call's, or newly opened ones.
  Result<Files> GetFiles(TF_OpKernelContext* context) {
    const int n = static_cast<int>(tables_.size());
    std::vector<TfTensor> tensors;
    std::vector<std::string_view> paths;
    tensors.reserve(tables_.size());
    paths.reserve(tables_.size());
    for (int f = 0; f < n; ++f) {
      HET_ASSIGN_OR_RETURN(auto input, GetInput(context, n + f));
      auto path = GetStringScalar(input.get());
      if (!path.ok()) return InvalidArgument("HetServe: paths: " + path.status().message());
      paths.push_back(path.value());
      tensors.push_back(std::move(input));
    }
    std::lock_guard<std::mutex> lock(mutex_);
    bool same = files_ != nullptr;
    for (size_t f = 0; same && f < paths.size(); ++f) same = paths_[f] == paths[f];
    if (same) return files_;
    auto files = std::make_shared<std::vector<std::shared_ptr<const serve::ServeFile>>>();
    for (int f = 0; f < n; ++f) {
      HET_ASSIGN_OR_RETURN(auto file, serve::ServeFile::Open(std::string(paths[f])));
      HET_RETURN_IF_ERROR(CheckFile(context, f, *file));
      files->push_back(std::move(file));
    }
    paths_.assign(paths.begin(), paths.end());
    files_ = std::move(files);
    return files_;
  }

  // Checks that the file is the one that the graph was made for: the hint gave the rows their static shape.
  Status CheckFile(TF_OpKernelContext* context, int f, const serve::ServeFile& file) const {
    const std::string& table = file.schema().spec().name;
    if (table != tables_[f]) {
      return InvalidArgument("HetServe: " + file.path() + " has the rows of table '" + table +
                             "', and this graph reads table '" + tables_[f] +
                             "'; the SavedModel mixes parts of several models: copy it as a whole");
    }
    HET_ASSIGN_OR_RETURN(auto hint, GetInput(context, 2 * static_cast<int>(tables_.size()) + f));
    const std::vector<int64_t> shape = ShapeOf(hint.get());
    if (shape.size() == 2 && shape[1] == file.dim()) return Status();
    return InvalidArgument("HetServe: the hint of table '" + table + "' has shape " + ShapeText(shape) +
                           "; it must be [0, " + std::to_string(file.dim()) + "], as " + file.path() +
                           " has it");
  }

  std::vector<std::string> tables_;

  std::mutex mutex_;  // guards the members below: the last call's files
  std::vector<std::string> paths_;
  Files files_;
};

const bool serve_registered = (RegisterCpuKernel<ServeKernel>("HetServe"), true);

}  // namespace
}  // namespace het
