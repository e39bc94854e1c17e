// A table file of the live files (live_format.h), mapped for writing: rows in their stored form, by key.
//
// It holds up to `capacity` keys, removed ones included, and has kSpareSlots more slots than that: a freed
// slot is filled again only after that many other changes, so a reader that is copying it rarely has to
// repeat.
#pragma once

#include <deque>
#include <functional>

#include "het_tf/core/base/span.h"
#include "het_tf/core/base/status.h"
#include "het_tf/ext/serving/cc/follow/live_directory.h"
#include "het_tf/ext/serving/cc/follow/live_format.h"

namespace het::follow {

class TableFile {
 public:
  static constexpr uint64_t kSpareSlots = 256;
  static constexpr uint64_t kMaxCapacity = kNoSlot - kSpareSlots;

  // Makes an empty file for `capacity` keys. `like` has its table, number, base, run, dim and types.
  // ResourceExhausted: the capacity is beyond kMaxCapacity. kFile: the system refuses. Throws std::bad_alloc.
  static Result<TableFile> Create(const LiveDirectory& directory, const TableHead& like, uint64_t capacity);
  // Continues with an existing file, which must have the fields of `like`. DataLoss: it does not, or its
  // index is damaged. NotFound, kFile: see LiveDirectory::Map. Throws std::bad_alloc.
  static Result<TableFile> Resume(const LiveDirectory& directory, const TableHead& like);

  uint64_t number() const { return head().number; }
  uint64_t rows() const { return rows_; }

  // Writes the row of a key. Returns false, and does nothing, if the file is full.
  bool Put(Key key, const uint8_t* row);
  void Remove(Key key);
  // Calls visit(key, row) for each key with a row.
  void ForEach(const std::function<void(Key, const uint8_t*)>& visit) const;

 private:
  explicit TableFile(WritableMap map) : map_(std::move(map)) {}

  const TableHead& head() const { return *map_.At<const TableHead>(0); }
  Span<Bucket> buckets() const { return {map_.At<Bucket>(kBucketsOffset), head().buckets}; }
  uint8_t* slot(uint32_t number) const {
    return map_.data() + SlotsOffset(head()) + static_cast<uint64_t>(number) * head().row_bytes;
  }
  uint64_t capacity() const { return head().slots - kSpareSlots; }
  // The place of `key`, or the unused one that it gets; null: there is neither.
  Entry* Place(Key key, bool claim);
  Status ReadIndex();
  void Set(Entry* entry, uint32_t slot);

  WritableMap map_;
  uint64_t rows_ = 0;
  uint64_t places_ = 0;         // in use
  std::deque<uint32_t> freed_;  // slots, the longest free first
  uint32_t fresh_ = 0;          // slots from here on were never filled
};

}  // namespace het::follow
