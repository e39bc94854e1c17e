// A file as an object: reads and writes at an offset that end whole or with an error that names the file and
// what the operating system said.
#pragma once

#include <cstdint>
#include <string>

#include "het_tf/core/base/status.h"

namespace het {

class File {
 public:
  File() = default;
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  // A new file, open for reading and writing; one that is there is left alone: an error.
  static Result<File> Create(const std::string& path);
  // NotFound where there is none.
  static Result<File> Open(const std::string& path);

  const std::string& path() const { return path_; }
  Result<uint64_t> Size() const;

  // Safe to call from several threads, as all that follow.
  Status WriteAt(uint64_t offset, const void* data, size_t size) const;
  // InvalidArgument: the file ends before.
  Status ReadAt(uint64_t offset, void* data, size_t size) const;
  Status Truncate(uint64_t size) const;
  // The kernel begins to write these bytes to the disk, so that Sync has less to wait for.
  void StartWriting(uint64_t offset, uint64_t size) const;
  // What was written survives a loss of power.
  Status Sync() const;
  Status Close();

 private:
  Status Error(const std::string& during) const;

  std::string path_;
  int fd_ = -1;
};

}  // namespace het
