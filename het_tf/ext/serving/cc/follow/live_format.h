// The live files: the rows and the dense weights that serving processes read while one follower changes them.
//
//   het_live/lock              held (flock) by the follower; its process ID
//            control           what is in force: Control, then a file number for each table
//            positions         how far the rows are, by partition: PositionRecord
//            rows-000-17.live  the 17th file of table 0: TableHead, buckets, slots
//            (dense files)     the follower's: a version names the one in force
//
// One process writes; any number of processes map the files for reading. Readers take no lock and wait for
// nothing. Everything must hold at each instruction, because the writer may be killed at any.
//
// Row. A row lies in a slot. The writer changes a row by filling a *free* slot and then storing the slot's
// number into the key's entry; the slot that the entry named becomes free, last in the queue of free slots.
// So an entry always names a complete row. Each store of an entry changes the entry's count, too. A reader
// loads the entry, copies the slot's bytes, and loads the entry again: if the two are equal, then the slot
// was not free in between, and the bytes are the row. If not, it repeats with the new entry. Only 2^31
// changes of the key within one copy could deceive it.
//
// Index. A bucket has four keys and their entries. A key lies in its home bucket or, if that is full, in one
// of the next. A place in a bucket belongs to its key for the life of the file: a removed key keeps it, with
// an entry that names no slot. So a key that a reader has compared cannot change under it. When the places
// run out, the writer makes a new file with the keys that have rows, and Control names it: its `generation`
// counts such changes, and a reader compares it once a call.
//
// Version. Control has two records of the dense weights in force. Number `flips & 1` is valid; the writer
// fills the other one and raises `flips`.
//
// A crash of the machine may lose any part of this. So the files are valid for one boot of the machine
// (Control::boot_id), and a follower begins anew after the next. Integers are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>

#include "het_tf/core/base/hash.h"
#include "het_tf/ext/serving/cc/serve/serve_format.h"

namespace het::follow {

constexpr char kControlMagic[8] = {'H', 'E', 'T', 'L', 'I', 'V', 'E', 'C'};
constexpr char kTableMagic[8] = {'H', 'E', 'T', 'L', 'I', 'V', 'E', 'T'};
constexpr uint32_t kFormat = 1;

// --- shared words: plain loads and stores on x86 ----------------------------------------------------------

template <typename T>
T LoadShared(const T& word) {
  return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
}
template <typename T>
void StoreShared(T* word, T value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
// ThreadSanitizer does not model fences. It has nothing to report here in any case: the writer and the
// readers map these bytes at different addresses.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
// Before the bytes of a free slot are overwritten: the entry that named it was stored before.
inline void BeforeFilling() { __atomic_thread_fence(__ATOMIC_RELEASE); }
// After bytes were copied: the entry is loaded again after them.
inline void AfterCopying() { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

// --- control ----------------------------------------------------------------------------------------------

struct ControlHead {
  char magic[8];
  uint32_t format;
  uint32_t head_bytes;
  uint64_t file_bytes;
  uint64_t base;  // BaseChecksum of the serving files
  uint64_t run;   // random: which beginning anew this is
  uint32_t tables;
  uint32_t zero;
  char boot_id[40];
  uint64_t checksum;  // XXH3-64 of the bytes before
};
static_assert(sizeof(ControlHead) == 96);

struct VersionRecord {
  uint64_t number;         // 0: the dense weights of the base
  double trained_through;  // seconds since 1970; NaN: unknown
  char dense_path[240];    // relative to the directory, with a 0 at its end; "": the base's
};
static_assert(sizeof(VersionRecord) == 256);

struct Control {
  ControlHead head;                 // constant
  alignas(64) uint64_t generation;  // of the table files
  uint64_t seen;                    // CLOCK_BOOTTIME in ns: the store's rows at that time are here; 0: never
  uint64_t flips;
  uint64_t skew;  // ns by which rows may be newer than the dense weights in force, and 1; 0: unknown
  alignas(64) VersionRecord versions[2];
  // uint64_t files[head.tables]: numbers of the table files
};
static_assert(sizeof(Control) == 704 && sizeof(Control) % 64 == 0);

// A record is valid if its checksum is right; else the partition's position is unknown.
struct PositionRecord {
  char position[48];  // with a 0 at its end
  uint64_t seen;      // as Control's, of this partition
  uint64_t checksum;  // XXH3-64 of the bytes before
};
static_assert(sizeof(PositionRecord) == 64);

// --- a table file -----------------------------------------------------------------------------------------

struct TableHead {
  char magic[8];
  uint32_t format;
  uint32_t head_bytes;
  uint64_t file_bytes;
  uint64_t base;  // as Control's
  uint64_t run;
  uint64_t number;  // of the file
  uint64_t buckets;
  uint64_t slots;
  uint32_t table;
  uint32_t dim;
  uint32_t row_bytes;  // distance between two slots
  serve::RowType row_type;
  uint8_t reserved[40];  // zeros
  uint64_t checksum;     // XXH3-64 of the bytes before
};
static_assert(sizeof(TableHead) == 128);

constexpr uint32_t kPlaces = 4;        // of a bucket
constexpr uint32_t kMaxBuckets = 128;  // limit on the buckets that one search reads
constexpr uint32_t kNoSlot = 0xffffffff;

// An entry: 0: the place is unused. Else bits 0..31: slot, or kNoSlot: the key has no row; bits 32..62: count
// of changes, at least 1; bit 63: see Bucket.
using Entry = uint64_t;
constexpr Entry kMore = Entry{1} << 63;
constexpr uint32_t SlotOf(Entry entry) { return static_cast<uint32_t>(entry); }
// The entry after `entry`, which keeps its kMore.
constexpr Entry NextEntry(Entry entry, uint32_t slot) {
  Entry count = ((entry >> 32) + 1) & 0x7fffffff;
  if (count == 0) count = 1;
  return (entry & kMore) | (count << 32) | slot;
}

// Places are used in order. The last entry has kMore set if a key of this home or an earlier one may be in a
// later bucket; a search ends at the first bucket without it.
struct alignas(64) Bucket {
  Key key[kPlaces];
  Entry entry[kPlaces];
};
static_assert(sizeof(Bucket) == 64);

// Where the buckets of a table file begin, and its slots.
constexpr uint64_t kBucketsOffset = sizeof(TableHead);
constexpr uint64_t SlotsOffset(const TableHead& head) {
  return kBucketsOffset + head.buckets * sizeof(Bucket);
}
static_assert(kBucketsOffset % serve::kAlign == 0 && sizeof(Bucket) % serve::kAlign == 0);

}  // namespace het::follow
