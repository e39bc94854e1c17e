// A serving file (serve_format.h), mapped for reading: the rows of one table.
//
// All processes that serve a file share one copy of it in memory. It must not change meanwhile
// (mapped_file.h). Open checks everything that a lookup relies on (header, sections, spec) except the rows
// and the index, which it would have to read whole. Instead a lookup checks the row numbers that it finds,
// and Verify reads the whole file and compares checksums. No lookup leaves the file, whatever its bytes.
//
// Thread-safe: nothing changes after Open.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "het_tf/core/base/mapped_file.h"
#include "het_tf/core/row/schema.h"
#include "het_tf/ext/serving/cc/serve/row_codec.h"
#include "het_tf/ext/serving/cc/serve/serve_format.h"

namespace het::serve {

class ServeFile {
 public:
  // NotFound: there is no such file. DataLoss: it is damaged, cut off or no serving file. FailedPrecondition:
  // a newer version wrote it. Each message names the file and the remedy. A file that this process has open
  // (same inode, size and mtime) is not mapped again.
  static Result<std::shared_ptr<const ServeFile>> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const TableSchema& schema() const { return *schema_; }
  uint32_t dim() const { return header_.dim; }
  uint32_t row_bytes() const { return header_.row_bytes; }
  uint64_t size() const { return header_.rows; }
  uint64_t bytes() const { return header_.file_bytes; }
  RowType row_type() const { return header_.row_type; }
  Unknown unknown() const { return header_.unknown; }
  const Header& header() const { return header_; }

  // Reads the whole file. DataLoss: a checksum is wrong.
  Status Verify() const;

  // --- one key, in steps; between them a batch waits for memory (row_lookup.h)
  struct Found {
    const uint8_t* row;
  };
  uint64_t Home(Key key) const { return HomeBucket(HashKey(key, header_.hash_seed), header_.buckets); }
  void Prefetch(uint64_t home) const { __builtin_prefetch(&buckets_[home]); }
  // Finds the row of `key` from its home bucket: null if it has none. Returns false if the file is damaged.
  bool Find(Key key, uint64_t home, Found* found) const {
    uint64_t at = home;
    for (uint32_t probe = 0; probe < header_.probes; ++probe) {
      const Bucket& bucket = buckets_[at];
      const uint32_t count = bucket.count < kBucketKeys ? bucket.count : kBucketKeys;
      for (uint32_t i = 0; i < count; ++i) {
        if (bucket.key[i] != key) continue;
        found->row = rows_.data() + static_cast<uint64_t>(bucket.row[i]) * header_.row_bytes;
        return bucket.row[i] < header_.rows;
      }
      if (bucket.more == 0) break;
      at = at + 1 == header_.buckets ? 0 : at + 1;
    }
    found->row = nullptr;
    return true;
  }
  bool Read(Key key, const Found& found, float* values) const {
    if (found.row == nullptr) {
      FillUnknown(key, values);
    } else {
      DecodeRow(header_.row_type, found.row, header_.dim, values);
    }
    return true;
  }
  // Calls visit(key, row) for each row. DataLoss: the index is damaged.
  template <typename Visit>
  Status ForEachRow(const Visit& visit) const {
    for (const Bucket& bucket : buckets_) {
      for (uint32_t i = 0; i < std::min<uint32_t>(bucket.count, kBucketKeys); ++i) {
        if (bucket.row[i] >= header_.rows) return Damaged("its index names rows that are not in it");
        visit(bucket.key[i], rows_.data() + static_cast<uint64_t>(bucket.row[i]) * header_.row_bytes);
      }
    }
    return Status();
  }
  // Fills in what an id without a row reads.
  void FillUnknown(Key key, float* values) const;
  // The error of a lookup that met a damaged index.
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

}  // namespace het::serve
