// The layout of a row file: the rows of some tables in the safetensors format, which its library can read.
//
//   u64 length of the header | header: JSON, padded with spaces | tensors without gaps
//
// A table NAME has the tensors
//   NAME/keys       I64 [N]       NAME/last_used  U32 [N]     seconds since 1970
//   NAME/clocks     I64 [N]       NAME/counts     U16 [N]     ticks, saturating
//   NAME/values     F32 [N, D]    NAME/removed    I64 [R]     only in an increment: removed keys
//   NAME/slots      F32 [N, S]    absent where S is 0
// and row i of each belongs to the same key. Tensors of 8-byte items come first, then 4-byte, then 2-byte
// items, and data begins at a multiple of 64: in a mapped file every item is aligned. Rows have no particular
// order. `__metadata__` names the format and its version.
//
// Checksums are in the manifest beside the file.
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
  uint64_t begin = 0;  // offset in the file
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
  bool increment = false;    // has the tensor `removed`
  uint64_t removed = 0;
  std::array<RowTensor, kRowColumns> tensors;

  // Returns "NAME/keys" for the column of keys.
  std::string TensorName(RowColumn column) const;
};

// Lays out the tensors of all tables from their rows, widths and removals, and returns the file's head: all
// bytes before the first tensor, padded to `least`, a length that an earlier call returned.
std::string LayOut(std::vector<RowTable>* tables, size_t least = 0);
// Returns the end offset of the last tensor; 0 if there is none.
uint64_t EndOf(const std::vector<RowTable>& tables);
// Returns the tensors that are present, in file order.
std::vector<std::pair<size_t, RowColumn>> InOrder(const std::vector<RowTable>& tables);

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMostHeaderBytes = uint64_t{16} << 20;

// The inverse, for an untrusted header. `json`: without the length before it; `file_bytes`: size of the whole
// file, which the tensors must fill. InvalidArgument says what is wrong.
Result<std::vector<RowTable>> ParseRowHeader(Span<const uint8_t> json, uint64_t file_bytes);

}  // namespace het
