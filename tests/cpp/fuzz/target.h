// A fuzz target: a reader of bytes from elsewhere, fed with any bytes. Each *_target.cc is one, and is linked
// twice:
//
//   with libFuzzer (preset `fuzz`, clang)   finds inputs that reach new code, for as long as one likes
//   with replay.cc (every build)            runs the kept inputs (corpus/NAME.pack) and the seeds once, as a
//   test
//
// A target ends the process (Fail, a sanitizer, a crash) when a reader does what it must not.
#ifndef HET_TESTS_CPP_FUZZ_TARGET_H_
#define HET_TESTS_CPP_FUZZ_TARGET_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "het_tf/core/base/bytes.h"
#include "het_tf/core/row/schema.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace het::fuzz {

// Inputs that the reader accepts, to begin with.
std::vector<Bytes> Seeds();

[[noreturn]] inline void Fail(const char* what) {
  std::fprintf(stderr, "fuzz target: %s\n", what);
  std::abort();
}

// Reading n bytes may take so much memory: a table of a frame takes 20 bytes there and some 200 here.
inline size_t Allowance(size_t n) { return 64 * n + 8192; }

inline Schema MakeSchema(const char* name, const char* optimizer, uint32_t dim) {
  TableSpec spec;
  spec.name = name;
  spec.dim = dim;
  spec.optimizer.name = optimizer;
  return TableSchema::Create(spec).value();
}

inline const std::vector<Schema>& Schemas() {
  static const std::vector<Schema> schemas = {MakeSchema("a", "sgd", 2), MakeSchema("b", "adam", 3),
                                              MakeSchema("c", "ftrl", 1)};
  return schemas;
}

}  // namespace het::fuzz

#endif  // HET_TESTS_CPP_FUZZ_TARGET_H_
