// Writes a row file (row_file.h) in one pass, whatever its size: each column is one run at its place in the
// file, and batches are appended to all columns at once.
//
// How many rows there will be must be said first, because a column's place depends on it. It may become
// fewer, when rows went meanwhile, or when an increment turns out small: at the end the columns are moved
// together then. What was never written takes no space on the disk.
//
// The file belongs to one writer and one thread. Until Finish it is not worth anything, and it goes with the
// writer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/base/checksum.h"
#include "het_tf/core/checkpoint/file.h"
#include "het_tf/core/checkpoint/row_file.h"
#include "het_tf/core/row/row_batch.h"

namespace het {

// What a manifest says of a row file, but for its name and partitions.
struct RowFileSummary {
  uint64_t bytes = 0;
  uint64_t header_checksum = 0;                              // of everything before the first tensor
  std::vector<RowTable> tables;                              // as they are in the file
  std::vector<std::array<uint64_t, kRowColumns>> checksums;  // of each table's tensors
};

class RowWriter {
 public:
  // `tables`: with names, widths, and at most so many rows and removals. The file must not be there.
  static Result<std::unique_ptr<RowWriter>> Create(const std::string& path, std::vector<RowTable> tables);
  ~RowWriter();

  // Rows that table number `table` may still get.
  uint64_t RowsLeft(size_t table) const { return tables_[table].rows - state_[table].rows; }
  // At most RowsLeft of them.
  Status Append(size_t table, const RowBatch& rows);
  Status AppendRemoved(size_t table, Span<const Key> keys);

  // The file is whole, and on the disk.
  Result<RowFileSummary> Finish();

 private:
  struct State {
    uint64_t rows = 0;
    uint64_t removed = 0;
    std::array<Checksum, kRowColumns> checksums;
  };

  RowWriter(File file, std::vector<RowTable> tables)
      : file_(std::move(file)), tables_(std::move(tables)), state_(tables_.size()) {}

  Status Write(size_t table, RowColumn column, uint64_t row, const void* data, uint64_t rows);
  Status CloseUp();

  File file_;
  std::vector<RowTable> tables_;
  std::vector<State> state_;
  size_t head_bytes_ = 0;
  bool finished_ = false;
};

}  // namespace het
