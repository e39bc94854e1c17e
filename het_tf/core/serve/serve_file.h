// A serving file (serve_format.h), mapped: the rows of one table, for reading.
//
// The mapping is shared and read-only: all processes that serve the same file use one copy of it in memory,
// and pages that nobody reads take none. Open looks at everything that a lookup relies on (header, sections,
// spec) except for the rows and the index themselves: those would all have to be read. So a lookup checks the
// row numbers that it finds, and Verify, which reads everything, compares checksums. Whatever bytes a file
// has, no lookup reads outside of it.
//
// What is mapped must not change: replace a file by renaming another one over it, which leaves the old one to
// those who have it. One that is truncated in place kills its readers (SIGBUS).
//
// Thread-safe; nothing in it changes after Open.
#pragma once

#include <memory>
#include <string>

#include "het_tf/core/row/schema.h"
#include "het_tf/core/serve/serve_format.h"

namespace het::serve {

class ServeFile {
 public:
  // NotFound: there is no file. DataLoss: it is damaged or cut off, or nobody's. FailedPrecondition: a newer
  // version wrote it. Each message names the file and the remedy. A file that this process has open already
  // (the same inode, size and time of last change) is not mapped again.
  static Result<std::shared_ptr<const ServeFile>> Open(const std::string& path);
  ~ServeFile();
  ServeFile(const ServeFile&) = delete;
  ServeFile& operator=(const ServeFile&) = delete;

  const std::string& path() const { return path_; }
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
        *row = rows_ + static_cast<uint64_t>(bucket.row[i]) * header_.row_bytes;
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
  Status Damaged(const std::string& what) const;

 private:
  explicit ServeFile(std::string path) : path_(std::move(path)) {}
  Status Map(int descriptor, uint64_t size);
  Status Check(uint64_t file_bytes);

  const std::string path_;
  const uint8_t* map_ = nullptr;
  size_t map_bytes_ = 0;
  Header header_ = {};
  Schema schema_;
  const uint8_t* rows_ = nullptr;
  const Bucket* buckets_ = nullptr;
};

// Files that Open has open in this process.
size_t OpenServeFiles();

}  // namespace het::serve
