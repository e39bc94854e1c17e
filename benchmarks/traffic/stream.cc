#include "benchmarks/traffic/stream.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace het::traffic {
namespace {

constexpr uint64_t kMagic = 0x31534d4152545348;  // "HSTRAMS1"

}  // namespace

Result<std::unique_ptr<Stream>> Stream::Open(const std::string& path) {
  auto bad = [&path](const std::string& what) {
    return InvalidArgument("stream '" + path + "': " + what + "; benchmarks/traffic.py writes such files");
  };
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return bad(std::strerror(errno));
  struct stat info {};
  const bool known = fstat(file, &info) == 0;
  const size_t size = known ? static_cast<size_t>(info.st_size) : 0;
  constexpr size_t kHead = 4 * sizeof(uint64_t);
  void* mapped = size < kHead ? MAP_FAILED : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return bad(size < kHead ? "it has no head" : std::strerror(errno));

  std::unique_ptr<Stream> stream(new Stream());
  stream->mapped_ = mapped;
  stream->size_ = size;
  uint64_t head[4];
  std::memcpy(head, mapped, sizeof(head));
  if (head[0] != kMagic) return bad("it does not begin as a stream does");
  stream->samples_ = head[1];
  stream->fields_ = head[2];
  stream->distinct_ = head[3];
  // No product of these overflows, and each is checked against what is there.
  if (head[1] > size || head[2] == 0 || head[2] > size || head[3] > size ||
      static_cast<double>(head[1]) * static_cast<double>(head[2]) > static_cast<double>(size) ||
      kHead + head[3] * sizeof(Key) + head[1] * head[2] * sizeof(uint32_t) != size) {
    return bad("its size does not fit its head");
  }
  stream->keys_ = reinterpret_cast<const Key*>(static_cast<const char*>(mapped) + kHead);
  stream->ids_ = reinterpret_cast<const uint32_t*>(stream->keys_ + stream->distinct_);
  for (size_t i = 0; i < stream->samples_ * stream->fields_; ++i) {
    if (stream->ids_[i] >= stream->distinct_) return bad("an id is past the last key");
  }
  return stream;
}

Stream::~Stream() {
  if (mapped_ != nullptr) munmap(mapped_, size_);
}

}  // namespace het::traffic
