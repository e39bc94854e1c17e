// The live directory as its one writer has it: the lock, and files that are mapped for writing.
//
// All names are relative to the open directory: a writer whose directory was replaced by another one of the
// same name never touches that.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/base/status.h"

namespace het::follow {

// A file mapped for writing. Its blocks are allocated, so that a store into it cannot fail (SIGBUS).
class WritableMap {
 public:
  WritableMap() = default;
  explicit operator bool() const { return bytes_ != nullptr; }
  uint8_t* data() const { return bytes_.get(); }
  size_t size() const { return bytes_ ? bytes_.get_deleter().size : 0; }
  template <typename T>
  T* At(uint64_t offset) const {
    return reinterpret_cast<T*>(data() + offset);
  }

 private:
  friend class LiveDirectory;
  struct Unmap {
    size_t size;
    void operator()(uint8_t* bytes) const;
  };
  std::unique_ptr<uint8_t, Unmap> bytes_;
};

class LiveDirectory {
 public:
  // Makes the directory if it is missing, and locks it. FailedPrecondition: another process has it (names its
  // ID). kFile: the system refuses.
  static Result<std::unique_ptr<LiveDirectory>> Open(const std::string& path);
  ~LiveDirectory();
  LiveDirectory(const LiveDirectory&) = delete;
  LiveDirectory& operator=(const LiveDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::vector<std::string> Names() const;

  // A new file of zeros. Nothing is left of it after an error: kFile, for example because the disk is full.
  Result<WritableMap> Create(const std::string& name, uint64_t bytes) const;
  // NotFound: there is no such file. kFile: the system refuses. DataLoss: it is empty.
  Result<WritableMap> Map(const std::string& name) const;
  Status Rename(const std::string& from, const std::string& to) const;
  void Remove(const std::string& name) const;

 private:
  LiveDirectory(std::string path, int directory) : path_(std::move(path)), directory_(directory) {}
  Status Lock();
  Status Error(const std::string& during, const std::string& name, int error) const;
  Result<WritableMap> Map(const std::string& name, int descriptor, uint64_t bytes) const;

  const std::string path_;
  const int directory_;
  int lock_ = -1;
};

}  // namespace het::follow
