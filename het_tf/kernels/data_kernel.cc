// HetReadLines and HetParseCriteo: the stages of a pass over a file of Criteo's format (core/data).
#include <algorithm>
#include <cstring>
#include <string>

#include "het_tf/core/data/criteo.h"
#include "het_tf/core/data/line_reader.h"
#include "het_tf/kernels/tf_util.h"

namespace het {
namespace {

template <typename T>
Result<T> GetScalar(TF_OpKernelContext* context, int index) {
  HET_ASSIGN_OR_RETURN(const TfTensor input, GetInput(context, index));
  return *static_cast<const T*>(TF_TensorData(input.get()));
}

template <typename T>
Status SetVector(TF_OpKernelContext* context, int index, TF_DataType type, Span<const int64_t> shape,
                 const T* values, size_t count) {
  HET_ASSIGN_OR_RETURN(const TfTensor output, NewOutput(context, index, type, shape, sizeof(T)));
  if (count > 0) std::memcpy(TF_TensorData(output.get()), values, count * sizeof(T));
  return Status();
}

class ReadLinesKernel {
 public:
  static Result<std::unique_ptr<ReadLinesKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<ReadLinesKernel>();
    HET_ASSIGN_OR_RETURN(const int32_t chunk, GetIntAttr(context, "chunk_bytes"));
    HET_ASSIGN_OR_RETURN(const int32_t longest, GetIntAttr(context, "longest_line"));
    kernel->limits_ = {static_cast<size_t>(chunk), static_cast<size_t>(longest)};
    return kernel;
  }

  // Inputs: path, offset, line. Outputs: text, next offset, next line.
  Status Compute(TF_OpKernelContext* context) {
    HET_ASSIGN_OR_RETURN(const TfTensor path, GetInput(context, 0));
    HET_ASSIGN_OR_RETURN(const std::string_view name, GetStringScalar(path.get()));
    LinePosition at;
    HET_ASSIGN_OR_RETURN(at.offset, GetScalar<int64_t>(context, 1));
    HET_ASSIGN_OR_RETURN(at.line, GetScalar<int64_t>(context, 2));
    std::string text;
    HET_RETURN_IF_ERROR(ReadLines(std::string(name), limits_, &at, &text));
    const int64_t shape[] = {static_cast<int64_t>(text.size())};
    HET_RETURN_IF_ERROR(SetVector(context, 0, TF_UINT8, {shape, 1}, text.data(), text.size()));
    HET_RETURN_IF_ERROR(SetScalar(context, 1, TF_INT64, at.offset));
    return SetScalar(context, 2, TF_INT64, at.line);
  }

 private:
  LineLimits limits_;
};

class ParseCriteoKernel {
 public:
  static Result<std::unique_ptr<ParseCriteoKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<ParseCriteoKernel>();
    HET_ASSIGN_OR_RETURN(kernel->path_, GetStringAttr(context, "path"));
    HET_ASSIGN_OR_RETURN(kernel->format_.skip, GetBoolAttr(context, "skip"));
    return kernel;
  }

  // Inputs: text, first line, salts [27], selection [5] (criteo.h). Outputs: labels, numeric, ids, skipped.
  Status Compute(TF_OpKernelContext* context) {
    CriteoFormat format = format_;
    HET_ASSIGN_OR_RETURN(const TfTensor text, GetInput(context, 0));
    HET_ASSIGN_OR_RETURN(const int64_t line, GetScalar<int64_t>(context, 1));
    HET_ASSIGN_OR_RETURN(const TfTensor salts, GetInput(context, 2));
    HET_ASSIGN_OR_RETURN(const TfTensor selection, GetInput(context, 3));
    if (TF_TensorElementCount(salts.get()) != kCriteoCategories + 1 ||
        TF_TensorElementCount(selection.get()) != 5) {
      return InvalidArgument("HetParseCriteo: salts has 27 elements, and selection 5");
    }
    const auto* salt = static_cast<const uint64_t*>(TF_TensorData(salts.get()));
    std::copy_n(salt, kCriteoCategories, format.salts.begin());
    format.part_salt = salt[kCriteoCategories];
    const auto* select = static_cast<const int64_t*>(TF_TensorData(selection.get()));
    format.first_tenth = static_cast<uint64_t>(select[0]);
    format.end_tenth = static_cast<uint64_t>(select[1]);
    format.shard = static_cast<uint64_t>(select[2]);
    format.shards = static_cast<uint64_t>(std::max<int64_t>(select[3], 1));
    format.buckets = static_cast<uint64_t>(select[4]);

    CriteoRows rows;
    const Status parsed = ParseCriteo(format,
                                      {static_cast<const char*>(TF_TensorData(text.get())),
                                       static_cast<size_t>(TF_TensorElementCount(text.get()))},
                                      static_cast<uint64_t>(line), &rows);
    if (!parsed.ok()) {
      return Status(parsed.code(), path_ + ", " + parsed.message() +
                                       ". Repair the file, or pass errors='skip' to leave such lines out.");
    }
    const int64_t n = static_cast<int64_t>(rows.labels.size());
    const int64_t numeric[] = {n, static_cast<int64_t>(kCriteoIntegers)};
    const int64_t ids[] = {n, static_cast<int64_t>(kCriteoCategories)};
    HET_RETURN_IF_ERROR(
        SetVector(context, 0, TF_FLOAT, {numeric, 1}, rows.labels.data(), rows.labels.size()));
    HET_RETURN_IF_ERROR(
        SetVector(context, 1, TF_FLOAT, {numeric, 2}, rows.numeric.data(), rows.numeric.size()));
    HET_RETURN_IF_ERROR(SetVector(context, 2, TF_INT64, {ids, 2}, rows.ids.data(), rows.ids.size()));
    return SetScalar(context, 3, TF_INT64, static_cast<int64_t>(rows.skipped));
  }

 private:
  std::string path_;
  CriteoFormat format_;
};

const bool data_registered = (RegisterCpuKernel<ReadLinesKernel>("HetReadLines"),
                              RegisterCpuKernel<ParseCriteoKernel>("HetParseCriteo"), true);

}  // namespace
}  // namespace het
