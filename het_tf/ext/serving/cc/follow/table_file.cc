#include "het_tf/ext/serving/cc/follow/table_file.h"

#include <cstddef>
#include <cstring>
#include <vector>

#include "het_tf/core/base/checksum.h"
#include "het_tf/ext/serving/cc/follow/live_base.h"

namespace het::follow {

Result<TableFile> TableFile::Create(const LiveDirectory& directory, const TableHead& like,
                                    uint64_t capacity) {
  if (capacity > kMaxCapacity) {
    return Status(Code::kResourceExhausted,
                  "a live file holds at most " + std::to_string(kMaxCapacity) + " keys; export fewer");
  }
  TableHead head = like;
  std::memcpy(head.magic, kTableMagic, sizeof kTableMagic);
  head.format = kFormat;
  head.head_bytes = sizeof head;
  head.buckets = capacity * 3 / 8 + 1;  // a load of 2/3
  head.slots = capacity + kSpareSlots;
  head.file_bytes = serve::AlignUp(SlotsOffset(head) + head.slots * head.row_bytes);
  head.checksum = Checksum::Of(&head, offsetof(TableHead, checksum));
  HET_ASSIGN_OR_RETURN(WritableMap map,
                       directory.Create(TableFileName(head.table, head.number), head.file_bytes));
  std::memcpy(map.data(), &head, sizeof head);
  return TableFile(std::move(map));
}

Result<TableFile> TableFile::Resume(const LiveDirectory& directory, const TableHead& like) {
  const std::string name = TableFileName(like.table, like.number);
  HET_ASSIGN_OR_RETURN(WritableMap map, directory.Map(name));
  const auto damaged = [&] { return Status(Code::kDataLoss, "the live file " + name + " is damaged"); };
  if (map.size() < sizeof(TableHead)) return damaged();
  const TableHead& head = *map.At<const TableHead>(0);
  TableHead wanted = like;  // with the fields that only this file has
  std::memcpy(wanted.magic, kTableMagic, sizeof kTableMagic);
  wanted.format = kFormat;
  wanted.head_bytes = sizeof head;
  wanted.file_bytes = map.size();
  wanted.buckets = head.buckets;
  wanted.slots = head.slots;
  wanted.checksum = Checksum::Of(&wanted, offsetof(TableHead, checksum));
  if (std::memcmp(&wanted, &head, sizeof head) != 0 || head.buckets == 0 || head.slots <= kSpareSlots ||
      head.slots > kNoSlot || head.buckets > map.size() / sizeof(Bucket) ||
      SlotsOffset(head) + head.slots * head.row_bytes > map.size()) {
    return damaged();
  }
  TableFile file(std::move(map));
  if (!file.ReadIndex().ok()) return damaged();
  return file;
}

// Counts the rows, and finds the free slots.
Status TableFile::ReadIndex() {
  Status damaged(Code::kDataLoss, "");
  std::vector<bool> used(head().slots);
  for (const Bucket& bucket : buckets()) {
    for (const Entry entry : bucket.entry) {
      if (entry == 0) continue;
      ++places_;
      if (SlotOf(entry) == kNoSlot) continue;
      if (SlotOf(entry) >= head().slots || used[SlotOf(entry)]) return damaged;
      used[SlotOf(entry)] = true;
      ++rows_;
    }
  }
  for (uint32_t i = 0; i < used.size(); ++i) {
    if (!used[i]) freed_.push_back(i);
  }
  fresh_ = static_cast<uint32_t>(head().slots);
  return places_ <= capacity() ? Status() : damaged;
}

Entry* TableFile::Place(Key key, bool claim) {
  const Span<Bucket> all = buckets();
  const uint64_t home = serve::HomeBucket(HashKey(key, 0), all.size());
  uint64_t at = home;
  for (uint32_t probe = 0; probe < kMaxBuckets; ++probe) {
    Bucket& bucket = all[at];
    for (uint32_t i = 0; i < kPlaces; ++i) {
      if (bucket.entry[i] != 0) {
        if (bucket.key[i] == key) return &bucket.entry[i];
        continue;
      }
      if (!claim || places_ == capacity()) return nullptr;
      for (uint64_t full = home; full != at; full = full + 1 == all.size() ? 0 : full + 1) {
        Entry& last = all[full].entry[kPlaces - 1];
        if ((last & kMore) == 0) StoreShared(&last, last | kMore);
      }
      ++places_;
      StoreShared(&bucket.key[i], key);
      return &bucket.entry[i];
    }
    at = at + 1 == all.size() ? 0 : at + 1;
  }
  return nullptr;
}

void TableFile::Set(Entry* entry, uint32_t slot) {
  const bool had = *entry != 0 && SlotOf(*entry) != kNoSlot;
  const uint32_t before = SlotOf(*entry);
  StoreShared(entry, NextEntry(*entry, slot));
  if (had) freed_.push_back(before);
  rows_ += (slot != kNoSlot) - (had ? 1 : 0);
}

bool TableFile::Put(Key key, const uint8_t* row) {
  Entry* const entry = Place(key, /*claim=*/true);
  if (entry == nullptr) return false;
  uint32_t free = fresh_;
  if (fresh_ < head().slots) {
    ++fresh_;
  } else {
    free = freed_.front();  // there are more slots than keys
    freed_.pop_front();
  }
  BeforeFilling();
  std::memcpy(slot(free), row, head().row_bytes);
  Set(entry, free);
  return true;
}

void TableFile::Remove(Key key) {
  Entry* const entry = Place(key, /*claim=*/false);
  if (entry != nullptr && SlotOf(*entry) != kNoSlot) Set(entry, kNoSlot);
}

void TableFile::ForEach(const std::function<void(Key, const uint8_t*)>& visit) const {
  for (const Bucket& bucket : buckets()) {
    for (uint32_t i = 0; i < kPlaces; ++i) {
      if (bucket.entry[i] != 0 && SlotOf(bucket.entry[i]) != kNoSlot) {
        visit(bucket.key[i], slot(SlotOf(bucket.entry[i])));
      }
    }
  }
}

}  // namespace het::follow
