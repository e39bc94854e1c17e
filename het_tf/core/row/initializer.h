// Deterministic initial rows: a pure function of (seed, table, key), so that all servers, workers and
// restarts agree on a row without updates, and such a row costs no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "het_tf/core/base/hash.h"
#include "het_tf/core/base/status.h"

namespace het {

// name              a              b             values
// "zeros"           -              -             0
// "constant"        value          -             a
// "uniform"         low            high          U[a, b)
// "normal"          mean           stddev        N(a, b)
struct InitializerSpec {
  std::string name = "uniform";
  double a = -0.05;
  double b = 0.05;
};

class Initializer {
 public:
  // `table` is HashName(table's name, or its drawn_as). InvalidArgument: unknown name, non-finite or
  // unordered bounds, stddev < 0.
  static Result<Initializer> Create(const InitializerSpec& spec, uint64_t seed, uint64_t table, size_t dim);
  static std::vector<std::string> Names();

  // Writes value[0, dim) of `key`'s initial row. Thread-safe.
  void Fill(Key key, float* value) const;

 private:
  enum class Kind { kConstant, kUniform, kNormal };
  Kind kind_ = Kind::kConstant;
  float a_ = 0;
  float b_ = 0;
  uint64_t stream_ = 0;  // from (seed, table)
  size_t dim_ = 0;
};

}  // namespace het
