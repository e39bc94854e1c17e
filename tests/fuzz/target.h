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

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

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
