#include "het_tf/core/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "het_tf/core/base/checksum.h"

namespace het {
namespace {

MappedFile::Identity IdentityOf(const struct stat& status) {
  return {status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

Status CannotOpen(const std::string& path, const MappedFile::Kind& kind, int error) {
  const Code code = error == ENOENT || error == ENOTDIR ? Code::kNotFound : Code::kFile;
  return Status(code, std::string("cannot open the ") + kind.name + " " + path + ": " + std::strerror(error) +
                          "; " + kind.if_missing);
}

// The beginning of every head.
struct HeadStart {
  char magic[MappedFile::kMagicBytes];
  uint32_t version;
  uint32_t head_bytes;
  uint64_t file_bytes;
};

}  // namespace

Result<MappedFile::Identity> MappedFile::Find(const std::string& path, const Kind& kind) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return CannotOpen(path, kind, errno);
  return IdentityOf(status);
}

Result<MappedFile> MappedFile::Open(const std::string& path, const Kind& kind) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer; it is refused below.
  const int descriptor = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return CannotOpen(path, kind, errno);
  MappedFile file(path, kind);
  const Status mapped = file.Map(descriptor);
  (void)close(descriptor);  // the mapping does not need the descriptor
  HET_RETURN_IF_ERROR(mapped);
  return file;
}

Status MappedFile::Map(int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) return CannotOpen(path_, *kind_, errno);
  if (!S_ISREG(status.st_mode))
    return InvalidArgument(path_ + " is not a regular file; give a " + kind_->name);
  if (status.st_size == 0) return Damaged("it is empty");
  const auto size = static_cast<size_t>(status.st_size);
  void* map = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (map == MAP_FAILED) return CannotOpen(path_, *kind_, errno);
  bytes_ = {static_cast<const uint8_t*>(map), Unmap{size}};
  identity_ = IdentityOf(status);
  return Status();
}

void MappedFile::Unmap::operator()(const uint8_t* bytes) const { munmap(const_cast<uint8_t*>(bytes), size); }

Status MappedFile::ReadHead(const char* magic, uint32_t version, void* head, size_t bytes) {
  if (size() < bytes) return Damaged("it has " + std::to_string(size()) + " bytes, less than a header");
  std::memcpy(head, bytes_.get(), bytes);
  HeadStart start;
  std::memcpy(&start, head, sizeof start);
  if (std::memcmp(start.magic, magic, kMagicBytes) != 0) {
    return Damaged(std::string("it does not begin as a ") + kind_->name + ", or was not written to the end");
  }
  if (start.version != version) {
    return Status(kind_->versioned, std::string("the ") + kind_->name + " " + path_ + " has version " +
                                        std::to_string(start.version) + ", and this het_tf reads version " +
                                        std::to_string(version) + "; " + kind_->if_versioned);
  }
  uint64_t checksum;
  const size_t checked = bytes - sizeof checksum;
  std::memcpy(&checksum, bytes_.get() + checked, sizeof checksum);
  if (start.head_bytes != bytes || checksum != Checksum::Of(head, checked)) {
    return Damaged("the checksum of its header is wrong");
  }
  if (start.file_bytes != size()) {
    return Damaged("it has " + std::to_string(size()) + " bytes and should have " +
                   std::to_string(start.file_bytes));
  }
  head_bytes_ = bytes;
  return Status();
}

Status MappedFile::CheckRange(uint64_t offset, uint64_t count, size_t element, size_t align,
                              uint64_t least) const {
  if (offset >= least && offset <= size() && offset % align == 0 && count <= (size() - offset) / element) {
    return Status();
  }
  return Damaged("its header names parts that are not in it");
}

Status MappedFile::Damaged(const std::string& what) const {
  return Status(kind_->damaged, std::string("the ") + kind_->name + " " + path_ + " is damaged: " + what +
                                    "; " + kind_->if_damaged);
}

}  // namespace het
