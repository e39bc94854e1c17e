// HetReadCriteo and HetParseCriteo: the stages of a pass over a file of Criteo's format (inputs/criteo).
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "het_tf/inputs/criteo/criteo.h"
#include "het_tf/inputs/criteo/line_reader.h"
#include "het_tf/kernels/tf/tf_util.h"

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

// Reads input `index`, which must have `count` elements.
template <typename T>
Result<std::vector<T>> GetVector(TF_OpKernelContext* context, int index, int64_t count) {
  HET_ASSIGN_OR_RETURN(const TfTensor input, GetInput(context, index));
  if (TF_TensorElementCount(input.get()) != count) {
    return InvalidArgument("input " + std::to_string(index) + " has " + std::to_string(count) + " elements");
  }
  const auto* begin = static_cast<const T*>(TF_TensorData(input.get()));
  return std::vector<T>(begin, begin + count);
}

// Reads input `index`: first tenth, end of the tenths, shard, shards, salt of the parts.
Result<CriteoSelection> GetSelection(TF_OpKernelContext* context, int index) {
  HET_ASSIGN_OR_RETURN(const std::vector<int64_t> select, GetVector<int64_t>(context, index, 5));
  const auto at = [&](size_t i) { return static_cast<uint64_t>(select[i]); };
  return CriteoSelection{at(4), at(0), at(1), at(2), std::max<uint64_t>(at(3), 1)};
}

class ReadCriteoKernel {
 public:
  static Result<std::unique_ptr<ReadCriteoKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<ReadCriteoKernel>();
    HET_ASSIGN_OR_RETURN(const int32_t chunk, GetIntAttr(context, "chunk_bytes"));
    HET_ASSIGN_OR_RETURN(const int32_t longest, GetIntAttr(context, "longest_line"));
    kernel->limits_ = {static_cast<size_t>(chunk), static_cast<size_t>(longest)};
    HET_ASSIGN_OR_RETURN(const int32_t batch, GetIntAttr(context, "batch"));
    HET_ASSIGN_OR_RETURN(const int32_t batches, GetIntAttr(context, "batches"));
    kernel->multiple_ = static_cast<size_t>(batch);
    kernel->most_ = static_cast<size_t>(batch) * static_cast<size_t>(batches);
    HET_ASSIGN_OR_RETURN(kernel->skip_, GetBoolAttr(context, "skip"));
    return kernel;
  }

  // Inputs: path, offset, line, selection. Outputs: text, next offset, next line, skipped.
  Status Compute(TF_OpKernelContext* context) {
    HET_ASSIGN_OR_RETURN(const TfTensor path, GetInput(context, 0));
    HET_ASSIGN_OR_RETURN(const std::string_view name, GetStringScalar(path.get()));
    LinePosition at;
    HET_ASSIGN_OR_RETURN(at.offset, GetScalar<int64_t>(context, 1));
    HET_ASSIGN_OR_RETURN(at.line, GetScalar<int64_t>(context, 2));
    HET_ASSIGN_OR_RETURN(const CriteoSelection selection, GetSelection(context, 3));
    std::vector<int64_t> bad;
    const auto wanted = [&](uint64_t number, std::string_view line) {
      if (!selection.Selects(number)) return false;
      if (!skip_ || IsCriteoLine(line)) return true;
      bad.push_back(static_cast<int64_t>(number));
      return false;
    };
    std::string text;
    HET_RETURN_IF_ERROR(ReadLines(std::string(name), limits_, {multiple_, most_, wanted}, &at, &text));
    const auto skipped =
        std::count_if(bad.begin(), bad.end(), [&](int64_t number) { return number < at.line; });
    const int64_t shape[] = {static_cast<int64_t>(text.size())};
    HET_RETURN_IF_ERROR(SetVector(context, 0, TF_UINT8, {shape, 1}, text.data(), text.size()));
    HET_RETURN_IF_ERROR(SetScalar(context, 1, TF_INT64, at.offset));
    HET_RETURN_IF_ERROR(SetScalar(context, 2, TF_INT64, at.line));
    return SetScalar(context, 3, TF_INT64, static_cast<int64_t>(skipped));
  }

 private:
  LineLimits limits_;
  size_t multiple_ = 1, most_ = 1;
  bool skip_ = false;
};

class ParseCriteoKernel {
 public:
  static Result<std::unique_ptr<ParseCriteoKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<ParseCriteoKernel>();
    HET_ASSIGN_OR_RETURN(kernel->path_, GetStringAttr(context, "path"));
    HET_ASSIGN_OR_RETURN(const int32_t batch, GetIntAttr(context, "batch"));
    kernel->batch_ = batch;
    HET_ASSIGN_OR_RETURN(kernel->shuffle_, GetBoolAttr(context, "shuffle"));
    return kernel;
  }

  // Inputs: text, first line, selection, salts, buckets, seed. Outputs: labels, numeric, ids.
  Status Compute(TF_OpKernelContext* context) {
    HET_ASSIGN_OR_RETURN(const TfTensor text, GetInput(context, 0));
    HET_ASSIGN_OR_RETURN(const int64_t first, GetScalar<int64_t>(context, 1));
    HET_ASSIGN_OR_RETURN(const CriteoSelection selection, GetSelection(context, 2));
    CriteoHash hash;
    HET_ASSIGN_OR_RETURN(const std::vector<uint64_t> salts,
                         GetVector<uint64_t>(context, 3, kCriteoCategories));
    std::copy(salts.begin(), salts.end(), hash.salts.begin());
    HET_ASSIGN_OR_RETURN(const int64_t buckets, GetScalar<int64_t>(context, 4));
    hash.buckets = static_cast<uint64_t>(buckets);
    HET_ASSIGN_OR_RETURN(const int64_t seed, GetScalar<int64_t>(context, 5));

    CriteoLines lines({static_cast<const char*>(TF_TensorData(text.get())),
                       static_cast<size_t>(TF_TensorElementCount(text.get()))});
    if (shuffle_) lines.Shuffle(static_cast<uint64_t>(seed));
    const auto rows = static_cast<int64_t>(lines.size());
    const int64_t batch = rows % batch_ == 0 ? batch_ : rows;
    const int64_t batches = rows / std::max<int64_t>(batch, 1);
    const int64_t numeric_shape[] = {batches, batch, static_cast<int64_t>(kCriteoIntegers)};
    const int64_t ids_shape[] = {batches, static_cast<int64_t>(kCriteoCategories), batch};
    HET_ASSIGN_OR_RETURN(const TfTensor labels, NewOutput(context, 0, TF_FLOAT, {numeric_shape, 2}, 4));
    HET_ASSIGN_OR_RETURN(const TfTensor numeric, NewOutput(context, 1, TF_FLOAT, {numeric_shape, 3}, 4));
    HET_ASSIGN_OR_RETURN(const TfTensor ids, NewOutput(context, 2, TF_INT64, {ids_shape, 3}, 8));
    if (rows == 0) return Status();
    Status parsed = lines.Parse(
        hash, selection, static_cast<uint64_t>(first),
        {static_cast<size_t>(batch), static_cast<float*>(TF_TensorData(labels.get())),
         static_cast<float*>(TF_TensorData(numeric.get())), static_cast<int64_t*>(TF_TensorData(ids.get()))});
    if (parsed.ok()) return parsed;
    return Status(parsed.code(), path_ + ", " + parsed.message() +
                                     ". Repair the file, or pass errors='skip' to leave such lines out.");
  }

 private:
  std::string path_;
  int64_t batch_ = 1;
  bool shuffle_ = false;
};

const bool data_registered = (RegisterCpuKernel<ReadCriteoKernel>("HetReadCriteo"),
                              RegisterCpuKernel<ParseCriteoKernel>("HetParseCriteo"), true);

}  // namespace
}  // namespace het
