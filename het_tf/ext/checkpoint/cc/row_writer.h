// Writes a row file (row_file.h) of any size in one pass: each column is one run at its place in the file,
// and batches are appended to all columns at once.
//
// The caller must say first how many rows there will be at most, because the columns' places depend on it. If
// fewer come, the columns are moved together at the end. Bytes that were never written take no disk space.
//
// The file belongs to one writer and one thread. It is invalid before Finish; the destructor deletes it then.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/base/checksum.h"
#include "het_tf/core/row/row_batch.h"
#include "het_tf/ext/checkpoint/cc/file.h"
#include "het_tf/ext/checkpoint/cc/row_file.h"

namespace het {

// A manifest's entry of a row file, except name and partitions.
struct RowFileSummary {
  uint64_t bytes = 0;
  uint64_t header_checksum = 0;                              // of all bytes before the first tensor
  std::vector<RowTable> tables;                              // as in the file
  std::vector<std::array<uint64_t, kRowColumns>> checksums;  // of each table's tensors
};

class RowWriter {
 public:
  // `tables`: names, widths, and upper bounds on rows and removals. The file must not exist.
  static Result<std::unique_ptr<RowWriter>> Create(const std::string& path, std::vector<RowTable> tables);

  // Returns how many rows table number `table` may still get.
  uint64_t RowsLeft(size_t table) const { return tables_[table].rows - state_[table].rows; }
  uint64_t RemovedLeft(size_t table) const { return tables_[table].removed - state_[table].removed; }
  // Appends at most RowsLeft rows.
  Status Append(size_t table, const RowBatch& rows);
  // Appends at most RemovedLeft keys.
  Status AppendRemoved(size_t table, Span<const Key> keys);

  // Completes the file and writes it to the disk.
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
  // Columns go to the disk while others are appended. There may be fewer removals than planned, and columns
  // that move must not be on their way.
  bool writes_early_ = false;
};

}  // namespace het
