// Writes a serving file (serve_format.h) from a stream of rows.
//
//   auto writer = ServeWriter::Create(path, spec, options);
//   writer->Add(keys, rows, stride);   // any number of times
//   writer->Finish();
//
// One pass: rows are written in their final form as they come. Memory: 8 bytes a row for the keys, and at the
// end some 17 bytes a row for the index. If a key comes twice, its last row is served.
//
// The file is complete when Finish returns OK: the header, without which Open fails, is written last, after
// the rest is on the disk. A writer that is destroyed before that removes its file.
#pragma once

#include <memory>
#include <string>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/base/checksum.h"
#include "het_tf/core/base/span.h"
#include "het_tf/core/row/schema.h"
#include "het_tf/ext/checkpoint/cc/file.h"
#include "het_tf/ext/serving/cc/serve/serve_format.h"

namespace het::serve {

struct WriteOptions {
  RowType row_type = RowType::kFloat32;
  Unknown unknown = Unknown::kInitial;
};

class ServeWriter {
 public:
  // kFile with the system's message: `path` exists, or cannot be written.
  static Result<std::unique_ptr<ServeWriter>> Create(const std::string& path, const Schema& schema,
                                                     const WriteOptions& options);

  // The value of keys[i] is the first dim floats of rows + i * stride. InvalidArgument: a value does not fit
  // the row type. After an error the writer may only be destroyed. Throws std::bad_alloc.
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
  uint64_t offset_ = 0;  // the end of the file
  Header header_ = {};
  Checksum rows_;  // of the rows written
  Vector<Key> keys_;
  Vector<uint8_t> buffer_;  // bytes before offset_ that are not written yet
};

}  // namespace het::serve
