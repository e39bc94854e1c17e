#include "het_tf/ext/serving/cc/follow/dense_file.h"

#include <limits>
#include <nlohmann/json.hpp>

namespace het::follow {
namespace {

constexpr MappedFile::Kind kDenseFiles = {"file of dense weights",
                                          "copy the SavedModel as a whole, or restart its follower",
                                          "copy it again, or publish a new version",
                                          "publish a new version",
                                          Code::kDataLoss,
                                          Code::kDataLoss};
constexpr uint64_t kMaxHeader = uint64_t{100} << 20;  // as safetensors has it

// Returns 0 for a dtype that is not known.
uint64_t BytesOf(const std::string& dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  return dtype == "I8" || dtype == "U8" || dtype == "BOOL" ? 1 : 0;
}

// Returns false for anything except natural numbers. (nlohmann converts floats, which may be out of range.)
bool Numbers(const nlohmann::json& array, std::vector<uint64_t>* numbers) {
  if (!array.is_array()) return false;
  for (const auto& one : array) {
    if (!one.is_number_unsigned()) return false;
    numbers->push_back(one.get<uint64_t>());
  }
  return true;
}

}  // namespace

Result<std::shared_ptr<const DenseFile>> DenseFile::Open(const std::string& path) {
  HET_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path, kDenseFiles));
  std::shared_ptr<DenseFile> file(new DenseFile(std::move(mapped)));
  try {
    HET_RETURN_IF_ERROR(file->ReadHeader());
  } catch (const nlohmann::json::exception& error) {
    return file->Damaged(std::string("its header is not that of safetensors: ") + error.what());
  }
  return std::shared_ptr<const DenseFile>(std::move(file));
}

Status DenseFile::ReadHeader() {
  HET_ASSIGN_OR_RETURN(const auto length, file_.At<uint64_t>(0, 1));
  if (length[0] > kMaxHeader) return Damaged("its header is longer than 100 MB");
  HET_ASSIGN_OR_RETURN(const auto text, file_.At<char>(sizeof(uint64_t), length[0]));
  const uint64_t begin = sizeof(uint64_t) + length[0];
  const auto json = nlohmann::json::parse(text.begin(), text.end());
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") continue;
    Tensor tensor;
    tensor.dtype = entry.at("dtype").get<std::string>();
    std::vector<uint64_t> offsets;
    std::vector<uint64_t> shape;
    uint64_t bytes = BytesOf(tensor.dtype);
    if (bytes == 0 || !Numbers(entry.at("data_offsets"), &offsets) || !Numbers(entry.at("shape"), &shape) ||
        offsets.size() != 2 || offsets[0] > offsets[1]) {
      return Damaged("its header does not describe the tensor '" + name + "'");
    }
    for (const uint64_t size : shape) {
      if (size > file_.size() || (size > 0 && bytes > std::numeric_limits<int64_t>::max() / size)) {
        return Damaged("the tensor '" + name + "' is larger than the file");
      }
      bytes *= size;
      tensor.shape.push_back(static_cast<int64_t>(size));
    }
    if (offsets[1] - offsets[0] != bytes || offsets[0] > file_.size()) {
      return Damaged("the tensor '" + name + "' does not have the bytes of its shape");
    }
    HET_ASSIGN_OR_RETURN(tensor.bytes, file_.At<uint8_t>(begin + offsets[0], bytes));
    tensors_.emplace(name, std::move(tensor));
  }
  return Status();
}

const DenseFile::Tensor* DenseFile::Find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace het::follow
