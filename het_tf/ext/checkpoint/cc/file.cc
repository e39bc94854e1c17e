#include "het_tf/ext/checkpoint/cc/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace het {
namespace {

constexpr char kOpening[] = "cannot open";  // to read

Status FromErrno(int error, const std::string& during, const std::string& path) {
  std::string text =
      during + " '" + path + "': " + std::strerror(error) + " (errno " + std::to_string(error) + ")";
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      text += ". Free some space there, or choose another directory";
      break;
    case EFBIG:
      text += ". The limit on the size of a file (ulimit -f) or of the file system is too small";
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      text +=
          during == kOpening ? ". Let this user read it" : ". Choose a directory that this user may write to";
      break;
    case EEXIST:
      text += ". Nothing is overwritten: choose another name, or remove it";
      break;
    default:
      break;
  }
  return Status(Code::kFile, std::move(text));
}

// Bytes per system call; one call transfers at most about 2 GB.
constexpr size_t kMostBytes = size_t{1} << 30;

}  // namespace

File::~File() {
  if (fd_ >= 0) ::close(fd_);
  if (temporary_) ::unlink(path_.c_str());
}

File::File(File&& other) noexcept { *this = std::move(other); }

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(temporary_, other.temporary_);
  return *this;
}

Status File::Error(const std::string& during) const { return FromErrno(errno, during, path_); }

Result<File> File::Create(const std::string& path) {
  File file;
  file.path_ = path;
  file.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file.fd_ < 0) return file.Error("cannot create");
  file.temporary_ = true;
  return Result<File>(std::move(file));
}

Result<File> File::Open(const std::string& path) {
  File file;
  file.path_ = path;
  // O_NONBLOCK: opening a FIFO must not wait for a writer; it is refused below.
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file.fd_ < 0) {
    const Code code = errno == ENOENT ? Code::kNotFound : Code::kFile;
    return Status(code, file.Error(kOpening).message());
  }
  HET_RETURN_IF_ERROR(file.Size().status());
  return Result<File>(std::move(file));
}

Result<uint64_t> File::Size() const {
  struct stat about {};
  if (::fstat(fd_, &about) != 0) return Error("cannot look at");
  if (!S_ISREG(about.st_mode)) return InvalidArgument("'" + path_ + "' is not a regular file");
  return static_cast<uint64_t>(about.st_size);
}

Status File::WriteAt(uint64_t offset, const void* data, size_t size) const {
  const auto* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written =
        ::pwrite(fd_, at, size < kMostBytes ? size : kMostBytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Error("cannot write to");
    at += written;
    offset += static_cast<uint64_t>(written);
    size -= static_cast<size_t>(written);
  }
  return Status();
}

Status File::ReadAt(uint64_t offset, void* data, size_t size) const {
  auto* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t read = ::pread(fd_, at, size < kMostBytes ? size : kMostBytes, static_cast<off_t>(offset));
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return Error("cannot read");
    if (read == 0) {
      return InvalidArgument("'" + path_ + "' ends at byte " + std::to_string(offset) + "; " +
                             std::to_string(size) + " more bytes were expected: it was cut off meanwhile");
    }
    at += read;
    offset += static_cast<uint64_t>(read);
    size -= static_cast<size_t>(read);
  }
  return Status();
}

Status File::Truncate(uint64_t size) const {
  return ::ftruncate(fd_, static_cast<off_t>(size)) == 0 ? Status() : Error("cannot resize");
}

void File::StartWriting(uint64_t offset, uint64_t size) const {
#if defined(__linux__)
  // Only a hint: Sync writes what is left.
  static_cast<void>(
      ::sync_file_range(fd_, static_cast<off_t>(offset), static_cast<off_t>(size), SYNC_FILE_RANGE_WRITE));
#endif
}

Status File::Sync() const { return ::fsync(fd_) == 0 ? Status() : Error("cannot write to"); }

Status File::Close() {
  // The descriptor is closed even if close reports an error.
  return ::close(std::exchange(fd_, -1)) == 0 ? Status() : Error("cannot write to");
}

}  // namespace het
