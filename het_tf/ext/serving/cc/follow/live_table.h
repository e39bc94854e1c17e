// One table of the live files as its writer has it: its present file, and the growth into the next.
#pragma once

#include <vector>

#include "het_tf/core/base/alloc.h"
#include "het_tf/ext/serving/cc/follow/table_file.h"
#include "het_tf/ext/serving/cc/serve/serve_file.h"

namespace het::follow {

class LiveTable {
 public:
  // `like`: see TableFile. Create copies the rows of `base`; Resume continues with the file like.number.
  static Result<std::unique_ptr<LiveTable>> Create(const LiveDirectory& directory, const TableHead& like,
                                                   std::shared_ptr<const serve::ServeFile> base);
  static Result<std::unique_ptr<LiveTable>> Resume(const LiveDirectory& directory, const TableHead& like,
                                                   std::shared_ptr<const serve::ServeFile> base);

  const TableSchema& schema() const { return base_->schema(); }
  uint64_t number() const { return file_.number(); }
  uint64_t rows() const { return file_.rows(); }
  const TableFile& file() const { return file_; }

  // Writes rows until all are written, the file is full, or one cannot be represented (InvalidArgument).
  // *done: the number of rows written.
  Status Put(Span<const Key> keys, const float* values, size_t* done);
  void Remove(Span<const Key> keys);
  // Returns a file with the present rows and room for `more`, to Use when readers can find it.
  Result<TableFile> Grown(const LiveDirectory& directory, uint64_t number, uint64_t more) const;
  void Use(TableFile file) { file_ = std::move(file); }

 private:
  LiveTable(TableFile file, const TableHead& like, std::shared_ptr<const serve::ServeFile> base);

  TableFile file_;
  const TableHead like_;
  const std::shared_ptr<const serve::ServeFile> base_;
  Vector<uint8_t> row_;  // one in its stored form
};

}  // namespace het::follow
