// The dense weights of a version: a safetensors file that comes from a server. Any bytes are opened or
// refused, and the tensors of an opened file lie in it.
//
// An input is the file.

#include "het_tf/ext/serving/cc/follow/dense_file.h"
#include "tests/fuzz/target.h"

namespace het::fuzz {
namespace {

using follow::DenseFile;

Bytes Input(const std::string& json, size_t data_bytes) {
  const uint64_t length = json.size();
  const auto* const size = reinterpret_cast<const uint8_t*>(&length);
  return Joined({{size, size + sizeof length}, Text(json), Bytes(data_bytes, 1)});
}

uint64_t BytesOf(const std::string& dtype) {
  for (const char* const known :
       {"F64", "I64", "U64", "F32", "I32", "U32", "F16", "BF16", "I16", "U16", "I8", "U8"}) {
    if (dtype == known) return std::stoul(dtype.substr(dtype.find_first_of("12368"))) / 8;
  }
  if (dtype != "BOOL") Fail("a tensor of no known type");
  return 1;
}

void CheckTensor(const DenseFile::Tensor& tensor, size_t file_bytes) {
  uint64_t bytes = BytesOf(tensor.dtype);
  for (const int64_t extent : tensor.shape) {
    if (extent < 0) Fail("a negative extent");
    bytes *= static_cast<uint64_t>(extent);
  }
  if (bytes != tensor.bytes.size() || bytes > file_bytes)
    Fail("a tensor of other bytes than its shape needs");
  uint8_t sum = 0;
  for (const uint8_t byte : tensor.bytes) sum = static_cast<uint8_t>(sum + byte);
  volatile uint8_t read = sum;  // all of it was read
  static_cast<void>(read);
}

std::vector<Bytes> Seeds() {
  return {
      Input("{}", 0), Input(R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 24),
      Input(R"({"__metadata__":{"a":"b"},"w":{"dtype":"BF16","shape":[3],"data_offsets":[64,70]},)"
            R"("e":{"dtype":"I64","shape":[0,5],"data_offsets":[70,70]},)"
            R"("s":{"dtype":"BOOL","shape":[],"data_offsets":[0,1]}}      )",
            70),
      Input(R"({"w":{"dtype":"U8","shape":[64],"data_offsets":[18446744073709551552,18446744073709551615]}})",
            64),
      Input(R"({"w":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 8)};
}

void Run(const uint8_t* data, size_t size) {
  static const std::string path = PathOf("dense");
  PutFile(path, Bytes(data, data + size));
  const auto opened = DenseFile::Open(path);
  unlink(path.c_str());
  if (!opened.ok()) {
    if (opened.status().code() != Code::kDataLoss) Fail("a damaged file is reported as something else");
    if (opened.status().message().size() > 2000 + 2 * size) Fail("a message larger than what it is about");
    return;
  }
  // The names: any of the file's strings may be one.
  const std::string text(data, data + size);
  for (size_t begin = text.find('"'); begin != std::string::npos;) {
    const size_t end = text.find('"', begin + 1);
    if (end == std::string::npos) break;
    const DenseFile::Tensor* const tensor = opened.value()->Find(text.substr(begin + 1, end - begin - 1));
    if (tensor != nullptr) CheckTensor(*tensor, size);
    begin = end;
  }
}

const bool registered = Register({"dense", Run, Seeds});

}  // namespace
}  // namespace het::fuzz
