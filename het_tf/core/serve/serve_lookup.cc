#include "het_tf/core/serve/serve_lookup.h"

#include <algorithm>

#include "het_tf/core/serve/row_codec.h"

namespace het::serve {
namespace {

// An id in flight: first its bucket is fetched, then its row.
struct Item {
  const ServeFile* file;
  Key key;
  uint64_t home;
  const uint8_t* row;
  float* out;
};

// Ids in flight: more than the memory system's concurrent misses, and few enough that fetched lines are still
// in the L1 cache when they are used.
constexpr size_t kItems = 64;
// Bytes of a row to prefetch; the hardware prefetcher continues a longer one.
constexpr size_t kAhead = 512;

Status ReadItems(Item* items, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    Item& item = items[i];
    if (!item.file->Find(item.key, item.home, &item.row)) {
      return item.file->Damaged("its index names rows that are not in it");
    }
    if (item.row == nullptr) continue;
    const size_t bytes = std::min<size_t>(item.file->header().row_bytes, kAhead);
    __builtin_prefetch(item.row);
    for (size_t line = kAlign; line < bytes; line += kAlign) __builtin_prefetch(item.row + line);
  }
  for (size_t i = 0; i < count; ++i) {
    const Item& item = items[i];
    if (item.row == nullptr) {
      item.file->FillUnknown(item.key, item.out);
    } else {
      DecodeRow(item.file->row_type(), item.row, item.file->dim(), item.out);
    }
  }
  return Status();
}

}  // namespace

Status Lookup(Span<const ServeRead> reads) {
  Item items[kItems];
  size_t count = 0;
  for (const ServeRead& read : reads) {
    const size_t dim = read.file->dim();
    for (size_t i = 0; i < read.ids.size(); ++i) {
      Item& item = items[count++];
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
