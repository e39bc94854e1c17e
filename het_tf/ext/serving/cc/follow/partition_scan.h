// One scan of a partition's changes on its way into the live files, page by page.
//
// Rows are written as they come. Keys are removed after the last page, and only those of which no page had a
// row: a key that was removed and came back keeps its newest row all the time.
//
//   kChanges   gone: the keys that the store has removed
//   kKeys      gone: the live keys of this partition that are not in the store's list
//   kWhole     gone: the live keys of this partition
//
// Memory: 8 bytes a row and key of the scan; in kChanges nothing, unless the table had removals.
#pragma once

#include <vector>

#include "het_tf/core/store/changes.h"
#include "het_tf/core/wire/layout.h"
#include "het_tf/ext/serving/cc/follow/live_writer.h"

namespace het::follow {

class PartitionScan {
 public:
  // `partition`: of the store with this layout.
  PartitionScan(uint32_t partition, const Layout& layout, LiveWriter* writer);

  // The tables of the live files that have rows in this partition.
  const std::vector<size_t>& tables() const { return tables_; }

  // Whether the page goes on with the scan that has begun, else it is the first one of a scan.
  bool Continues(const ChangesPage& page) const;
  // Forgets the scan before, and begins the page's.
  void Begin(const ChangesPage& page);
  // Writes the rows of a page; ignores tables that are not in the live files. FailedPrecondition: these are
  // not the rows of such a partition. kFile, InvalidArgument: as LiveWriter::Put. InvalidArgument: damaged
  // bytes. After an error the page may be added again.
  Status Add(const ChangesPage& page);
  // Ends the scan after its last page.
  void Finish();

  uint64_t rows() const { return rows_; }        // written, of all scans
  uint64_t removed() const { return removed_; }  // keys taken out at the ends of all scans

 private:
  // What a scan has named of one table.
  struct Notes {
    Vector<Key> named;  // kChanges: removed; kKeys: the store's keys
    Vector<Key> came;   // with rows
  };

  Status AddChunk(const ChangedRows& chunk);
  Vector<Key> Gone(size_t table, Notes* notes) const;

  const uint32_t partition_;
  const Layout layout_;
  LiveWriter* const writer_;
  std::vector<size_t> tables_;
  Position start_;
  ChangesKind kind_ = ChangesKind::kChanges;
  std::vector<Notes> notes_;  // by table
  ChangedRows chunk_;         // the memory of the last one
  uint64_t rows_ = 0;
  uint64_t removed_ = 0;
};

}  // namespace het::follow
