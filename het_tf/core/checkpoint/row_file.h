// The layout of a row file: the rows of some tables, in the format of the safetensors library, so that
// anybody can read it with that library.
//
//   u64 length of the header | header: JSON, padded with spaces | tensors, one behind the other without holes
//
// A table NAME has the tensors
//   NAME/keys       I64 [N]       NAME/last_used  U32 [N]     seconds since 1970
//   NAME/clocks     I64 [N]       NAME/counts     U16 [N]     ticks, saturating
//   NAME/values     F32 [N, D]    NAME/removed    I64 [R]     an increment's alone: keys that are gone
//   NAME/slots      F32 [N, S]    absent where S is 0
// and row i of each belongs to the same key. All tensors of 8-byte items come first, then those of 4, then
// those of 2, and data begins at a multiple of 64: mapped into memory every item is aligned. Nothing says
// which order rows have. `__metadata__` names the format and its version.
//
// Checksums are not in the file, but beside it, in the manifest.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "het_tf/core/base/span.h"
#include "het_tf/core/base/status.h"

namespace het {

enum RowColumn : uint8_t {
  kKeysColumn,
  kClocksColumn,
  kValuesColumn,
  kSlotsColumn,
  kLastUsedColumn,
  kCountsColumn,
  kRemovedColumn
};
constexpr size_t kRowColumns = 7;

struct RowTensor {
  bool present = false;
  uint64_t begin = 0;  // in the file
  uint64_t rows = 0;
  uint64_t row_bytes = 0;

  uint64_t bytes() const { return rows * row_bytes; }
};

// One table of a row file.
struct RowTable {
  std::string name;
  uint64_t rows = 0;
  uint32_t dim = 0;
  uint32_t slot_floats = 0;  // 0: no slots
  bool increment = false;    // has `removed`
  uint64_t removed = 0;
  std::array<RowTensor, kRowColumns> tensors;

  // "NAME/keys"
  std::string TensorName(RowColumn column) const;
};

// Sets the tensors of all tables by their rows, widths and removals, and returns the file's head: everything
// before the first tensor. It is at least `least` bytes long, a number that an earlier call answered.
std::string LayOut(std::vector<RowTable>* tables, size_t least = 0);
// Of the tensors' ends the last; 0: there are none.
uint64_t EndOf(const std::vector<RowTable>& tables);
// Tensors that are present, in the order in which they lie in the file.
std::vector<std::pair<size_t, RowColumn>> InOrder(const std::vector<RowTable>& tables);

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMostHeaderBytes = uint64_t{16} << 20;

// The inverse, for a header that comes from anywhere. `json`: without the length before it; `file_bytes`: of
// the whole file, which the tensors must fill. InvalidArgument says what is wrong.
Result<std::vector<RowTable>> ParseRowHeader(Span<const uint8_t> json, uint64_t file_bytes);

}  // namespace het
