// Rows as a store keeps them: floats, or 16 or 8 bits a number. Arithmetic is float32 everywhere: a store
// reads a row, changes it and writes it back.
//
//   row        value: dim floats | slots: dim floats or one float each
//   kFloat32   the same
//   kBfloat16  slots of one float | the value, 16 bits a number | slots of dim floats, 16 bits a number
//   kInt8      slots of one float | the value, 8-bit integers | slots of dim floats, 16 bits a number |
//              a byte, the scale: a number of the value is its integer times 2^(byte - 127)
//
// with zeros up to a multiple of four bytes. The scale is the least by which no integer is above 127, so
// equal numbers have equal bytes. The integer -128 is not a number. A value with an infinite number has the
// scale 255, and the integers 127 and -127 for infinities; its finite numbers become 0.
//
// Rounding. Whoever changes a row rounds at random, up with the probability of the part that would be cut
// off: the nearest number would lose all steps below half a unit. The random bits are a function of the
// *draw*: the row's table, key and clock before the change, and the client and the number of its push. So all
// copies of a partition, a replay of its log, and the worker that has pushed round to the same bits; and a
// push without ticks, which leaves the clock, draws others. Draw 0: to the nearest. Rounded numbers stay what
// they are, so rows that are loaded, moved or copied change only once.
//
// A slot's sums of squares stay positive, and nothing becomes infinite by rounding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/base/hash.h"
#include "het_tf/core/base/status.h"
#include "het_tf/core/row/optimizer.h"

namespace het {

enum class Stored : uint8_t { kFloat32 = 0, kBfloat16 = 1, kInt8 = 2 };

const char* StoredName(Stored stored);
// "float32", "bfloat16", "int8". InvalidArgument lists them.
Result<Stored> ParseStored(const std::string& name);

// The part of a draw that a push's rows of one table share. `client_high`, `client_low`, `seq`: of the push;
// all 0: a table in this process.
inline uint64_t PushDraw(uint64_t table, uint64_t client_high, uint64_t client_low, uint64_t seq) {
  return Mix64(Mix64(Mix64(table ^ client_high) ^ client_low) ^ seq);
}
// `clock`: of the row before the change.
inline uint64_t RowDraw(uint64_t push, int64_t key, int64_t clock) {
  return Mix64(Mix64(push ^ static_cast<uint64_t>(key)) ^ static_cast<uint64_t>(clock)) | 1;
}

class StoredFormat {
 public:
  static constexpr size_t kMostDim = 65536;
  // InvalidArgument: rows of this optimizer and width cannot be stored so.
  static Status Check(Stored stored, const Optimizer& optimizer);
  StoredFormat(Stored stored, const Optimizer& optimizer);

  Stored stored() const { return stored_; }
  bool exact() const { return stored_ == Stored::kFloat32; }
  // The size of a row, in words of four bytes.
  size_t words() const { return words_; }

  // For formats that are not exact. `row`: all floats of a row.
  void Read(const float* words, float* row) const;
  void ReadValue(const float* words, float* value) const;
  void Write(const float* row, uint64_t draw, float* words) const;
  // row <- Read(Write(row)).
  void Round(uint64_t draw, float* row) const;
  void RoundValue(uint64_t draw, float* value) const;

 private:
  const Stored stored_;
  const size_t dim_;
  Vector<uint32_t> singles_;  // positions of the slots of one float in a row
  Vector<uint32_t> wides_;    // and of the others
  size_t words_;
};

}  // namespace het
