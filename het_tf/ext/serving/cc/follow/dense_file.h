// The dense weights of one version: a safetensors file (https://github.com/huggingface/safetensors), mapped.
//
//   u64 length of the JSON | JSON {name: {"dtype", "shape", "data_offsets"}} | tensors
//
// Tensors begin at multiples of 64 of the file, so that TensorFlow can use them in place; the writer fills
// the gaps with tensors that nothing reads. Open checks that each tensor lies in the file and has as many
// bytes as its dtype and shape need. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/base/mapped_file.h"

namespace het::follow {

class DenseFile {
 public:
  static constexpr size_t kAlign = 64;

  struct Tensor {
    std::string dtype;  // as safetensors names it: "F32", "BF16", "I64", "BOOL", ...
    std::vector<int64_t> shape;
    Span<const uint8_t> bytes;
  };

  // NotFound: there is no such file. DataLoss: it is not a whole safetensors file.
  static Result<std::shared_ptr<const DenseFile>> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  // Returns null if there is no such tensor.
  const Tensor* Find(const std::string& name) const;
  Status Damaged(const std::string& what) const { return file_.Damaged(what); }

 private:
  explicit DenseFile(MappedFile file) : file_(std::move(file)) {}
  Status ReadHeader();

  MappedFile file_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace het::follow
