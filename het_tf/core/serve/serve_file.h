// A serving file (serve_format.h), mapped: the rows of one table, for reading.
//
// All processes that serve the same file use one copy of it in memory, and it must not change while they do
// (mapped_file.h). Open looks at everything that a lookup relies on (header, sections, spec) except for the
// rows and the index themselves: those would all have to be read. So a lookup checks the row numbers that it
// finds, and Verify, which reads everything, compares checksums. Whatever bytes a file has, no lookup reads
// outside of it.
//
// Thread-safe; nothing in it changes after Open.
#pragma once

#include <memory>
#include <string>

#include "het_tf/core/base/mapped_file.h"
#include "het_tf/core/row/schema.h"
#include "het_tf/core/serve/serve_format.h"

namespace het::serve {

class ServeFile {
 public:
  // NotFound: there is no file. DataLoss: it is damaged or cut off, or nobody's. FailedPrecondition: a newer
  // version wrote it. Each message names the file and the remedy. A file that this process has open already
  // (the same inode, size and time of last change) is not mapped again.
  static Result<std::shared_ptr<const ServeFile>> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const TableSchema& schema() const { return *schema_; }
  uint32_t dim() const { return header_.dim; }
  uint64_t size() const { return header_.rows; }
  uint64_t bytes() const { return header_.file_bytes; }
  RowType row_type() const { return header_.row_type; }
  Unknown unknown() const { return header_.unknown; }
  const Header& header() const { return header_; }

  // DataLoss: a checksum is wrong. Reads all of the file.
  Status Verify() const;

  // --- one key, in the two steps between which a batch waits for memory (serve_lookup.h)
  uint64_t Home(Key key) const { return HomeBucket(HashKey(key, header_.hash_seed), header_.buckets); }
  void Prefetch(uint64_t home) const { __builtin_prefetch(&buckets_[home]); }
  // The row of `key`, whose home bucket is given. Null: it has none. False: the file is damaged.
  bool Find(Key key, uint64_t home, const uint8_t** row) const {
    uint64_t at = home;
    for (uint32_t probe = 0; probe < header_.probes; ++probe) {
      const Bucket& bucket = buckets_[at];
      const uint32_t count = bucket.count < kBucketKeys ? bucket.count : kBucketKeys;
      for (uint32_t i = 0; i < count; ++i) {
        if (bucket.key[i] != key) continue;
        *row = rows_.data() + static_cast<uint64_t>(bucket.row[i]) * header_.row_bytes;
        return bucket.row[i] < header_.rows;
      }
      if (bucket.more == 0) break;
      at = at + 1 == header_.buckets ? 0 : at + 1;
    }
    *row = nullptr;
    return true;
  }
  // What is read where there is no row.
  void FillUnknown(Key key, float* values) const;
  // What a lookup says that met a damaged index.
  Status Damaged(const std::string& what) const { return file_.Damaged(what); }

 private:
  explicit ServeFile(MappedFile file) : file_(std::move(file)) {}
  Status Read();
  Status ReadSpec();

  MappedFile file_;
  Header header_ = {};
  Schema schema_;
  Span<const uint8_t> rows_;  // of header_.row_bytes each
  Span<const Bucket> buckets_;
};

// Files that Open has open in this process.
size_t OpenServeFiles();

}  // namespace het::serve
