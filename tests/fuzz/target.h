// A fuzz target: a reader of bytes from elsewhere, fed with any bytes. Each
// *_target.cc registers one.
//
//   libfuzzer.cc (preset `fuzz`, clang)   a program a target: searches for
//                                         inputs that reach new code
//   replay.cc (every build)               one program of all targets: runs
//                                         seeds and corpus/NAME.pack once
//
// A target ends the process (Fail, a sanitizer, a crash) when a reader does
// what it must not.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/base/bytes.h"
#include "het_tf/core/row/schema.h"

namespace het::fuzz {

struct Target {
  const char *name;
  void (*run)(const uint8_t *data, size_t size);
  std::vector<Bytes> (*seeds)();  // inputs that the reader accepts, to begin with
};

// Those that are linked into this program.
inline std::vector<Target> &Targets() {
  static std::vector<Target> targets;
  return targets;
}

inline bool Register(const Target &target) {
  Targets().push_back(target);
  return true;
}

[[noreturn]] inline void Fail(const char *what) {
  std::fprintf(stderr, "fuzz target: %s\n", what);
  std::abort();
}

// Reading n bytes may take so much memory: a table of a frame takes 20 bytes
// there and some 200 here.
inline size_t Allowance(size_t n) { return 64 * n + 8192; }

// Runs a reader, which may take so much memory more.
template <typename Reading>
void Within(size_t allowance, const char *reading, const Reading &read) {
  SetAllocLimit(AllocatedBytes() + allowance);
  try {
    read();
  } catch (const std::bad_alloc &) {
    Fail((std::string(reading) + " takes too much memory").c_str());
  }
  SetAllocLimit(SIZE_MAX);
}

inline Bytes Joined(const std::vector<Bytes> &parts) {
  Bytes all;
  for (const Bytes &part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}
inline Bytes Text(const std::string &text) { return Bytes(text.begin(), text.end()); }
inline Bytes SizeOf(const Bytes &bytes) {  // in two bytes
  return {static_cast<uint8_t>(bytes.size()), static_cast<uint8_t>(bytes.size() >> 8)};
}

// A file of this process. A new one each time: what is mapped must not change.
inline std::string PathOf(const std::string &name) {
  return "/tmp/het_fuzz_" + name + "_" + std::to_string(getpid());
}
inline void PutFile(const std::string &path, const Bytes &bytes) {
  unlink(path.c_str());
  const int file = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
  if (write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) Fail("no file");
  close(file);
}
inline Bytes ReadFile(const std::string &path) {
  const int file = open(path.c_str(), O_RDONLY);
  Bytes bytes(static_cast<size_t>(lseek(file, 0, SEEK_END)));
  if (pread(file, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) Fail("no seed");
  close(file);
  return bytes;
}

inline Schema MakeSchema(const char *name, const char *optimizer, uint32_t dim) {
  TableSpec spec;
  spec.name = name;
  spec.dim = dim;
  spec.optimizer.name = optimizer;
  return TableSchema::Create(spec).value();
}

inline const std::vector<Schema> &Schemas() {
  static const std::vector<Schema> schemas = {MakeSchema("a", "sgd", 2), MakeSchema("b", "adam", 3),
                                              MakeSchema("c", "ftrl", 1)};
  return schemas;
}

}  // namespace het::fuzz
