// A table file of the live files (live_format.h), mapped for reading while the follower writes.
//
// Open checks the head and the sections; a lookup checks the slot numbers that it finds. No lookup leaves the
// file, whatever its bytes. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "het_tf/core/base/mapped_file.h"
#include "het_tf/ext/serving/cc/follow/live_format.h"
#include "het_tf/ext/serving/cc/serve/row_codec.h"
#include "het_tf/ext/serving/cc/serve/serve_file.h"

namespace het::follow {

class LiveFile {
 public:
  // Opens file `number` of `table`. NotFound: there is no such file, or it belongs to another directory of
  // this name. DataLoss: it is damaged.
  static Result<std::shared_ptr<const LiveFile>> Open(const std::string& directory,
                                                      const ControlHead& control, uint32_t table,
                                                      uint64_t number,
                                                      std::shared_ptr<const serve::ServeFile> base);

  uint64_t number() const { return head_.number; }
  uint64_t run() const { return head_.run; }
  // Reads the whole index.
  uint64_t CountRows() const;

  // --- see serve/row_lookup.h
  uint32_t dim() const { return head_.dim; }
  uint32_t row_bytes() const { return head_.row_bytes; }
  Status Damaged(const std::string& what) const { return file_.Damaged(what); }
  uint64_t Home(Key key) const { return serve::HomeBucket(HashKey(key, 0), head_.buckets); }
  void Prefetch(uint64_t home) const { __builtin_prefetch(&buckets_[home]); }
  struct Found {
    const uint8_t* row;
    const Entry* place;  // null: the key has none
    Entry entry;         // what `place` had when `row` was found
  };
  bool Find(Key key, uint64_t home, Found* found) const {
    uint64_t at = home;
    for (uint32_t probe = 0; probe < kMaxBuckets; ++probe) {
      const Bucket& bucket = buckets_[at];
      for (uint32_t i = 0; i < kPlaces; ++i) {
        if (LoadShared(bucket.key[i]) != key) continue;
        found->place = &bucket.entry[i];
        if (!Locate(found)) return false;
        // A place that is unused may get another key; from its first entry on, it keeps that key.
        if (found->entry != 0 && LoadShared(bucket.key[i]) == key) return true;
        *found = {nullptr, nullptr, 0};
        return true;
      }
      if ((LoadShared(bucket.entry[kPlaces - 1]) & kMore) == 0) break;
      at = at + 1 == head_.buckets ? 0 : at + 1;
    }
    *found = {nullptr, nullptr, 0};
    return true;
  }
  bool Read(Key key, const Found& first, float* values) const {
    if (first.place == nullptr) {
      base_->FillUnknown(key, values);
      return true;
    }
    for (Found found = first;;) {
      if (found.row == nullptr) {
        base_->FillUnknown(key, values);
      } else {
        serve::DecodeRow(head_.row_type, found.row, head_.dim, values);
      }
      AfterCopying();
      if (LoadShared(*found.place) == found.entry) return true;
      if (!Locate(&found)) return false;
    }
  }

 private:
  explicit LiveFile(MappedFile file) : file_(std::move(file)) {}

  // Loads the entry of found->place, and sets the rest.
  bool Locate(Found* found) const {
    found->entry = LoadShared(*found->place);
    const uint32_t slot = SlotOf(found->entry);
    found->row = nullptr;
    if (found->entry == 0 || slot == kNoSlot) return true;
    if (slot >= head_.slots) return false;
    found->row = slots_.data() + static_cast<uint64_t>(slot) * head_.row_bytes;
    return true;
  }

  MappedFile file_;
  TableHead head_ = {};
  std::shared_ptr<const serve::ServeFile> base_;
  Span<const Bucket> buckets_;
  Span<const uint8_t> slots_;  // of head_.row_bytes each
};

}  // namespace het::follow
