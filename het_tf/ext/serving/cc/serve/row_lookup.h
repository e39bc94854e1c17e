// Reading the rows of a batch from mapped files: ids in groups, first their buckets and then their rows, so
// that the memory latencies of a group overlap.
//
// A File has
//   dim(), row_bytes(), Damaged(what)
//   uint64_t Home(Key), void Prefetch(uint64_t home)
//   struct Found { const uint8_t* row; ... }               // row: null if the key has none
//   bool Find(Key, uint64_t home, Found*) const            // false: the index is damaged
//   bool Read(Key, const Found&, float* values) const      // the row, or what an id without one reads; same
#pragma once

#include <algorithm>

#include "het_tf/core/base/span.h"
#include "het_tf/core/base/status.h"
#include "het_tf/ext/serving/cc/serve/serve_format.h"

namespace het::serve {

template <typename File>
struct RowRead {
  const File* file;
  Span<const Key> ids;
  float* out;  // ids.size() rows of file->dim() floats
};

// Ids in flight: more than the memory system's concurrent misses, and few enough that fetched lines are still
// in the L1 cache when they are used.
constexpr size_t kItems = 64;
// Bytes of a row to prefetch; the hardware prefetcher continues a longer one.
constexpr size_t kAhead = 512;

// An id in flight: first its bucket is fetched, then its row.
template <typename File>
struct RowItem {
  const File* file;
  Key key;
  uint64_t home;
  typename File::Found found;
  float* out;
};

template <typename File>
Status ReadItems(RowItem<File>* items, size_t count) {
  constexpr char kDamaged[] = "its index names rows that are not in it";
  for (size_t i = 0; i < count; ++i) {
    RowItem<File>& item = items[i];
    if (!item.file->Find(item.key, item.home, &item.found)) return item.file->Damaged(kDamaged);
    const uint8_t* row = item.found.row;
    if (row == nullptr) continue;
    const size_t bytes = std::min<size_t>(item.file->row_bytes(), kAhead);
    __builtin_prefetch(row);
    for (size_t line = kAlign; line < bytes; line += kAlign) __builtin_prefetch(row + line);
  }
  for (size_t i = 0; i < count; ++i) {
    const RowItem<File>& item = items[i];
    if (!item.file->Read(item.key, item.found, item.out)) return item.file->Damaged(kDamaged);
  }
  return Status();
}

// Reads all rows. Ids of different reads are searched together. Allocates and locks nothing; thread-safe.
// DataLoss: a file's index is damaged.
template <typename File>
Status LookupRows(Span<const RowRead<File>> reads) {
  RowItem<File> items[kItems];
  size_t count = 0;
  for (const RowRead<File>& read : reads) {
    const size_t dim = read.file->dim();
    for (size_t i = 0; i < read.ids.size(); ++i) {
      RowItem<File>& item = items[count++];
      item.file = read.file;
      item.key = read.ids[i];
      item.home = read.file->Home(item.key);
      item.out = read.out + i * dim;
      read.file->Prefetch(item.home);
      if (count == kItems) {
        HET_RETURN_IF_ERROR(ReadItems(items, count));
        count = 0;
      }
    }
  }
  return ReadItems(items, count);
}

}  // namespace het::serve
