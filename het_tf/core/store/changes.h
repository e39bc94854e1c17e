// The changes of a partition since a reader's position: the answer to HET.CHANGES.
//
//   position   INCARNATION:NUMBER, the number of the last change that the reader has (change_log.h)
//   kChanges   the rows changed and the keys removed since then
//   kKeys      the list of removals does not reach back so far: all keys of the partition, and the rows
//              changed since then; a key in no page is gone
//   kWhole     the partition does not know the position (another incarnation, or a number beyond its own):
//              all rows; a key in no page is gone
//
// A scan has several pages. Rows may change meanwhile, so the reader's next position is the one at the start
// of the scan: a row may come twice, and none is missed. After the last page each row that the reader has is
// one of the scan's time:
//
//   kChanges        removals come first, so that a key which came back stays. A row that had changed may be
//                   removed before its page. So the last page ends with the keys that were removed since the
//                   start, or their rows if they are back. If the list has lost them, the scan begins anew.
//   kKeys, kWhole   each row is looked at once, for its key and its value
//
// If the start or the kind of a page differs from the page before, the scan has begun anew, and the reader
// forgets the keys that it has noted.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "het_tf/core/row/row_batch.h"
#include "het_tf/core/store/partition.h"

namespace het {

enum class ChangesKind : uint8_t { kChanges, kKeys, kWhole };

// "changes", "keys", "whole".
const char* NameOf(ChangesKind kind);
bool ParseChangesKind(std::string_view text, ChangesKind* kind);

struct Position {
  uint64_t incarnation = 0;  // 0: of no partition
  uint64_t number = 0;

  friend bool operator==(const Position& a, const Position& b) {
    return a.incarnation == b.incarnation && a.number == b.number;
  }
  friend bool operator!=(const Position& a, const Position& b) { return !(a == b); }
};

std::string ToString(const Position& position);
// Returns false if the text is not "NUMBER:NUMBER".
bool ParsePosition(std::string_view text, Position* position);

// Where the next page begins; value-initialised: at the beginning, and after the last page.
struct ChangesCursor {
  enum Stage : uint8_t { kRemovals, kAllKeys, kRows, kLate };

  Position start;
  ChangesKind kind = ChangesKind::kChanges;
  Stage stage = kRemovals;
  uint64_t table = 0;
  uint64_t at = 0;  // a row's number; of removals: a position in the list

  bool begins() const { return start.incarnation == 0; }
};

// "0": the beginning, and the end.
std::string ToString(const ChangesCursor& cursor);
bool ParseCursor(std::string_view text, ChangesCursor* cursor);

struct ChangesRequest {
  Position since;
  ChangesCursor cursor;
  size_t max_bytes = size_t{1} << 20;      // of a page, about; it has at least one row
  std::optional<uint64_t> table;           // only this table's: other tables' drops and clears do not matter
  bool stored = false;                     // rows as the store has them (kRows), else values (kValues)
  RowFormat format = RowFormat::kFloat32;  // of values, which are rounded to it
};

struct ChangesPage {
  Position start;
  ChangesCursor next;
  ChangesKind kind = ChangesKind::kChanges;
  std::vector<Bytes> chunks;  // chunk.h: kRemove, kKeys, kValues or kRows; take them in order
};

// The kind of a scan of all tables, or of one, that begins now. kWhole: the table is not here.
ChangesKind KindSince(const Partition& partition, const Position& since, std::optional<uint64_t> table);

// The size of a scan of one table that begins now; counting reads the numbers of all rows.
struct ChangesCount {
  ChangesKind kind = ChangesKind::kChanges;
  // Upper bounds, of kChanges: a removed key may be back, or be there twice.
  uint64_t rows = 0;
  uint64_t removed = 0;

  // The worst kind of two partitions, and the sums.
  ChangesCount& operator+=(const ChangesCount& other);
};
ChangesCount CountChanges(const Partition& partition, const Position& since, uint64_t table);

// Throws std::bad_alloc.
void ReadChanges(const Partition& partition, const ChangesRequest& request, ChangesPage* page);

// One chunk of a page of values.
struct ChangedRows {
  enum What : uint8_t { kRemoved, kKeys, kValues };

  What what = kValues;
  uint64_t table = 0;
  size_t dim = 0;  // of kValues
  Vector<Key> keys;
  Vector<float> values;  // keys.size() * dim
};

// Decodes untrusted bytes. InvalidArgument: they are not such a chunk.
Status DecodeChanges(Span<const uint8_t> chunk, ChangedRows* rows);

// A scan of one table's stored rows; value-initialised except `since`: at the beginning.
struct ChangesScan {
  Position since;
  ChangesCursor cursor;
  ChangesKind kind = ChangesKind::kChanges;
  bool complete = false;
};
// The request for the scan's next rows, for which *rows must have room.
ChangesRequest NextOf(const ChangesScan& scan, const TableSchema& schema, const RowBatch& rows);
// Appends the answer's rows to *rows and removed keys to *removed, and advances the scan. `page` is
// untrusted.
Status TakePage(const ChangesPage& page, const TableSchema& schema, ChangesScan* scan, RowBatch* rows,
                Vector<Key>* removed);

}  // namespace het
