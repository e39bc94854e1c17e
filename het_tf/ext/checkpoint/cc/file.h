// A file whose reads and writes at an offset complete, or return an error with the file's name and the
// system's message.
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

  // Creates a file for reading and writing; the destructor deletes it unless Keep was called. It is an error
  // if it exists.
  static Result<File> Create(const std::string& path);
  // NotFound: there is no such file.
  static Result<File> Open(const std::string& path);

  const std::string& path() const { return path_; }
  Result<uint64_t> Size() const;

  // Safe to call from several threads, like all methods below except Close.
  Status WriteAt(uint64_t offset, const void* data, size_t size) const;
  // InvalidArgument: the file is too short.
  Status ReadAt(uint64_t offset, void* data, size_t size) const;
  Status Truncate(uint64_t size) const;
  // Starts to write these bytes to the disk, so that Sync has less to wait for.
  void StartWriting(uint64_t offset, uint64_t size) const;
  // Makes all written bytes survive a loss of power.
  Status Sync() const;
  Status Close();
  void Keep() { temporary_ = false; }

 private:
  Status Error(const std::string& during) const;

  std::string path_;
  int fd_ = -1;
  bool temporary_ = false;
};

}  // namespace het
