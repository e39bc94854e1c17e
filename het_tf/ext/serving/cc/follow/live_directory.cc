#include "het_tf/ext/serving/cc/follow/live_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace het::follow {
namespace {

constexpr char kLock[] = "lock";

}  // namespace

void WritableMap::Unmap::operator()(uint8_t* bytes) const { munmap(bytes, size); }

Status LiveDirectory::Error(const std::string& during, const std::string& name, int error) const {
  const std::string file = name.empty() ? path_ : path_ + "/" + name;
  std::string remedy;
  if (error == ENOSPC || error == EDQUOT) remedy = ". Free some space there; the live files serve on";
  if (error == EFBIG) remedy = ". The limit on the size of a file (ulimit -f) is too small";
  if (error == EACCES || error == EPERM || error == EROFS) {
    remedy = ". The follower writes beside the model: let its user write there";
  }
  return Status(error == ENOENT ? Code::kNotFound : Code::kFile,
                "cannot " + during + " '" + file + "': " + std::strerror(error) + remedy);
}

Result<std::unique_ptr<LiveDirectory>> LiveDirectory::Open(const std::string& path) {
  int error = 0;
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) error = errno;
  const int directory = error != 0 ? -1 : open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0 && error == 0) error = errno;
  std::unique_ptr<LiveDirectory> opened(new LiveDirectory(path, directory));
  if (error != 0) return opened->Error("open the live directory", "", error);
  HET_RETURN_IF_ERROR(opened->Lock());
  return opened;
}

LiveDirectory::~LiveDirectory() {
  if (lock_ >= 0) close(lock_);
  if (directory_ >= 0) close(directory_);
}

Status LiveDirectory::Lock() {
  lock_ = openat(directory_, kLock, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) return Error("open", kLock, errno);
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Error("lock", kLock, errno);
    char text[32] = {};
    const ssize_t size = pread(lock_, text, sizeof text - 1, 0);
    return FailedPrecondition("process " + (size > 0 ? std::string(text) : std::string("of unknown ID")) +
                              " follows into '" + path_ +
                              "' already; a model has one follower on each machine. Stop that one first");
  }
  const std::string pid = std::to_string(getpid());
  if (ftruncate(lock_, 0) != 0 ||
      pwrite(lock_, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return Error("write", kLock, errno);
  }
  return Status();
}

std::vector<std::string> LiveDirectory::Names() const {
  std::vector<std::string> names;
  const int copy = openat(directory_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return names;
  DIR* listing = fdopendir(copy);
  if (listing == nullptr) {
    close(copy);
    return names;
  }
  while (const dirent* entry = readdir(listing)) names.emplace_back(entry->d_name);
  closedir(listing);
  return names;
}

Result<WritableMap> LiveDirectory::Create(const std::string& name, uint64_t bytes) const {
  Remove(name);
  const int descriptor = openat(directory_, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor < 0) return Error("create", name, errno);
  int error = 0;
  do {
    error = posix_fallocate(descriptor, 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  Result<WritableMap> map =
      error == 0 ? Map(name, descriptor, bytes) : Result<WritableMap>(Error("make room for", name, error));
  close(descriptor);
  if (!map.ok()) Remove(name);
  return map;
}

Result<WritableMap> LiveDirectory::Map(const std::string& name) const {
  const int descriptor = openat(directory_, name.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return Error("open", name, errno);
  struct stat status {};
  const int error = fstat(descriptor, &status) == 0 ? 0 : errno;
  Result<WritableMap> map = error != 0 ? Result<WritableMap>(Error("read", name, error))
                                       : Map(name, descriptor, static_cast<uint64_t>(status.st_size));
  close(descriptor);
  return map;
}

Result<WritableMap> LiveDirectory::Map(const std::string& name, int descriptor, uint64_t bytes) const {
  if (bytes == 0) return Status(Code::kDataLoss, "'" + path_ + "/" + name + "' is empty");
  void* bytes_at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (bytes_at == MAP_FAILED) return Error("map", name, errno);
  WritableMap map;
  map.bytes_ = {static_cast<uint8_t*>(bytes_at), WritableMap::Unmap{bytes}};
  return map;
}

Status LiveDirectory::Rename(const std::string& from, const std::string& to) const {
  if (renameat(directory_, from.c_str(), directory_, to.c_str()) == 0) return Status();
  return Error("rename to", to, errno);
}

void LiveDirectory::Remove(const std::string& name) const { (void)unlinkat(directory_, name.c_str(), 0); }

}  // namespace het::follow
