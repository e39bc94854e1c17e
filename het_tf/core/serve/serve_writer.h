// Writes a serving file (serve_format.h) from a stream of rows.
//
//   auto writer = ServeWriter::Create(path, spec, options);
//   writer->Add(keys, rows, stride);   // as often as there are rows
//   writer->Finish();
//
// One pass: rows go to the file as they come, in their final form; in memory stay 8 bytes a row for the keys,
// and at the end the index of some 17 bytes a row. A key that comes twice is served with the row that came
// last.
//
// The file is complete when Finish has answered OK: its header, without which nobody opens it, is written
// last, after everything else is on the disk. A writer that ends before that removes its file.
#pragma once

#include <memory>
#include <string>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/base/checksum.h"
#include "het_tf/core/base/span.h"
#include "het_tf/core/checkpoint/file.h"
#include "het_tf/core/row/schema.h"
#include "het_tf/core/serve/serve_format.h"

namespace het::serve {

struct WriteOptions {
  RowType row_type = RowType::kFloat32;
  Unknown unknown = Unknown::kInitial;
};

class ServeWriter {
 public:
  // kFile, with what the operating system says: there is something at `path`, or it cannot be written.
  static Result<std::unique_ptr<ServeWriter>> Create(const std::string& path, const Schema& schema,
                                                     const WriteOptions& options);
  ~ServeWriter();
  ServeWriter(const ServeWriter&) = delete;
  ServeWriter& operator=(const ServeWriter&) = delete;

  // InvalidArgument: a value is beyond what the row type holds. The value of keys[i] is the first dim floats
  // of rows + i * stride. After an error only the destructor is of use. Throws std::bad_alloc.
  Status Add(Span<const Key> keys, const float* rows, size_t stride);
  // Throws std::bad_alloc.
  Status Finish();

  const std::string& path() const { return file_.path(); }
  uint64_t rows() const { return keys_.size(); }
  uint64_t bytes() const { return offset_; }

 private:
  ServeWriter(File file, const Schema& schema, const WriteOptions& options);

  Status Begin();
  Status Write(const void* data, size_t size);  // at the end
  Status Pad();
  Status Flush();
  Status WriteIndex();

  File file_;
  const Schema schema_;
  const WriteOptions options_;
  bool finished_ = false;
  uint64_t offset_ = 0;  // the end
  Header header_ = {};
  Checksum rows_;  // of the rows so far
  Vector<Key> keys_;
  Vector<uint8_t> buffer_;  // what stands before the end and is not written yet
};

}  // namespace het::serve
