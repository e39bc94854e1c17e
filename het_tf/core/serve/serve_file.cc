#include "het_tf/core/serve/serve_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include "het_tf/core/checkpoint/checksum.h"
#include "het_tf/core/serve/row_codec.h"

namespace het::serve {
namespace {

// Closes a descriptor; the mapping does not need it.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

Status CannotOpen(const std::string& path, int error) {
  const Code code = error == ENOENT || error == ENOTDIR ? Code::kNotFound : Code::kFile;
  return Status(code, "cannot open the serving file " + path + ": " + std::strerror(error) +
                          "; a SavedModel keeps its files under assets/: copy or move it as a whole");
}

// Whether [offset, offset + bytes) is a section between the header and the end.
bool IsSection(uint64_t offset, uint64_t bytes, uint64_t file_bytes) {
  return offset % kAlign == 0 && offset >= sizeof(Header) && offset <= file_bytes &&
         bytes <= file_bytes - offset;
}

// Which file a path leads to.
using Identity = std::tuple<dev_t, ino_t, off_t, int64_t, int64_t>;
Identity IdentityOf(const struct stat& status) {
  return {status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

struct OpenFiles {
  std::mutex mutex;
  std::map<Identity, std::weak_ptr<const ServeFile>> files;
};
// Never destroyed: kernels may end after everything else.
OpenFiles& Registry() {
  static auto* registry = new OpenFiles();
  return *registry;
}

}  // namespace

Result<std::shared_ptr<const ServeFile>> ServeFile::Open(const std::string& path) {
  // O_NONBLOCK: a FIFO is opened without waiting for its writer, and refused.
  const Descriptor descriptor(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat status;
  if (descriptor.get() < 0 || fstat(descriptor.get(), &status) != 0) return CannotOpen(path, errno);
  if (!S_ISREG(status.st_mode)) return InvalidArgument(path + " is no regular file; give a serving file");

  OpenFiles& open = Registry();
  std::lock_guard<std::mutex> lock(open.mutex);
  for (auto it = open.files.begin(); it != open.files.end();) {
    it = it->second.expired() ? open.files.erase(it) : std::next(it);
  }
  const Identity identity = IdentityOf(status);
  if (const auto known = open.files.find(identity); known != open.files.end()) {
    if (auto file = known->second.lock()) return file;
  }
  std::shared_ptr<ServeFile> file(new ServeFile(path));
  HET_RETURN_IF_ERROR(file->Map(descriptor.get(), static_cast<uint64_t>(status.st_size)));
  open.files[identity] = file;
  return std::shared_ptr<const ServeFile>(std::move(file));
}

size_t OpenServeFiles() {
  OpenFiles& open = Registry();
  std::lock_guard<std::mutex> lock(open.mutex);
  return static_cast<size_t>(std::count_if(open.files.begin(), open.files.end(),
                                           [](const auto& file) { return !file.second.expired(); }));
}

ServeFile::~ServeFile() {
  if (map_ != nullptr) munmap(const_cast<uint8_t*>(map_), map_bytes_);
}

Status ServeFile::Map(int descriptor, uint64_t size) {
  if (size < sizeof(Header)) {
    return Damaged("it has " + std::to_string(size) + " bytes, less than a header");
  }
  void* map = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (map == MAP_FAILED) return CannotOpen(path_, errno);
  map_ = static_cast<const uint8_t*>(map);
  map_bytes_ = size;
  std::memcpy(&header_, map_, sizeof header_);
  return Check(size);
}

Status ServeFile::Check(uint64_t file_bytes) {
  const Header& h = header_;
  if (std::memcmp(h.magic, kMagic, sizeof kMagic) != 0) {
    return Damaged("it does not begin as a serving file, or was not written to the end");
  }
  if (h.version != kVersion) {
    return FailedPrecondition("the serving file " + path_ + " has version " + std::to_string(h.version) +
                              ", and this het_tf reads version " + std::to_string(kVersion) +
                              "; export the model again, or load it with the het_tf that wrote it");
  }
  if (h.header_bytes != sizeof(Header) || h.checksum != Checksum::Of(&h, offsetof(Header, checksum))) {
    return Damaged("the checksum of its header is wrong");
  }
  if (h.file_bytes != file_bytes) {
    return Damaged("it has " + std::to_string(file_bytes) + " bytes and should have " +
                   std::to_string(h.file_bytes));
  }
  // The checksum keeps out accidents; what follows keeps out everything else.
  if (!IsRowType(h.row_type) || h.unknown > Unknown::kZeros || h.dim == 0 || h.dim > TableSchema::kMaxDim ||
      h.row_bytes != RowBytes(h.row_type, h.dim)) {
    return Damaged("its header describes no rows");
  }
  if (h.rows > kMaxRows || h.buckets == 0 || h.buckets > file_bytes / sizeof(Bucket) || h.probes == 0 ||
      h.probes > kMaxProbes || !IsSection(h.rows_offset, h.rows * h.row_bytes, file_bytes) ||
      !IsSection(h.buckets_offset, h.buckets * sizeof(Bucket), file_bytes) || h.spec_bytes > kMaxSpecBytes ||
      !IsSection(h.spec_offset, h.spec_bytes, file_bytes)) {
    return Damaged("its header names parts that are not in it");
  }
  const std::string spec(reinterpret_cast<const char*>(map_ + h.spec_offset), h.spec_bytes);
  if (Checksum::Of(spec.data(), spec.size()) != h.spec_checksum) {
    return Damaged("the checksum of its table's spec is wrong");
  }
  auto parsed = ParseTableSpec(spec);
  if (!parsed.ok()) return Damaged(parsed.status().message());
  auto schema = TableSchema::Create(parsed.value());
  if (!schema.ok()) return Damaged(schema.status().message());
  schema_ = std::move(schema.value());
  if (schema_->dim() != h.dim) return Damaged("its rows are not those of its table");
  rows_ = map_ + h.rows_offset;
  buckets_ = reinterpret_cast<const Bucket*>(map_ + h.buckets_offset);
  return Status();
}

Status ServeFile::Verify() const {
  const struct {
    const char* what;
    const void* data;
    uint64_t bytes;
    uint64_t checksum;
  } parts[] = {{"rows", rows_, header_.rows * header_.row_bytes, header_.rows_checksum},
               {"index", buckets_, header_.buckets * sizeof(Bucket), header_.buckets_checksum}};
  for (const auto& part : parts) {
    if (Checksum::Of(part.data, part.bytes) != part.checksum) {
      return Damaged(std::string("the checksum of its ") + part.what + " is wrong");
    }
  }
  return Status();
}

void ServeFile::FillUnknown(Key key, float* values) const {
  if (header_.unknown == Unknown::kZeros) {
    std::fill_n(values, header_.dim, 0.0f);
  } else {
    schema_->InitValue(key, values);
  }
}

Status ServeFile::Damaged(const std::string& what) const {
  return Status(Code::kDataLoss, "the serving file " + path_ + " is damaged: " + what +
                                     "; copy it again, or export the model again");
}

}  // namespace het::serve
