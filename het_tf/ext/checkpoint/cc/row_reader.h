// Reads a row file (row_file.h) piece by piece, into the caller's buffers only.
//
// Thread-safe once it is open.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/row/row_batch.h"
#include "het_tf/ext/checkpoint/cc/file.h"
#include "het_tf/ext/checkpoint/cc/row_file.h"

namespace het {

class RowReader {
 public:
  // Opens and checks the structure of an untrusted file. InvalidArgument names the file and what is wrong.
  static Result<std::unique_ptr<RowReader>> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  uint64_t bytes() const { return bytes_; }
  uint64_t header_checksum() const { return header_checksum_; }  // of all bytes before the first tensor
  const std::vector<RowTable>& tables() const { return tables_; }
  // NotFound lists the tables that exist.
  Result<const RowTable*> Find(const std::string& name) const;

  // Reads rows [first, first + rows) of one column.
  Status Read(const RowTable& table, RowColumn column, uint64_t first, uint64_t rows, void* out) const;
  // Fills the batch, which must have the table's widths, with rows from `first`, up to its capacity. Without
  // `slots` the batch's slots stay as they are.
  Status ReadRows(const RowTable& table, uint64_t first, bool slots, RowBatch* batch) const;

  // InvalidArgument: the file is damaged, and `what` says how.
  Status Damaged(const std::string& what) const;

 private:
  explicit RowReader(File file) : file_(std::move(file)) {}

  File file_;
  uint64_t bytes_ = 0;
  uint64_t header_checksum_ = 0;
  std::vector<RowTable> tables_;
};

}  // namespace het
