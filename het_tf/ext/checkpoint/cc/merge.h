// Merges a chain of row files into one: each key's newest row, for some partitions of some tables.
//
// The files' keys are read first (chain.h), then their rows from the newest file to the oldest. Two batches
// (kBatchBytes each) and the chains of all tables for these partitions are in memory.
#pragma once

#include <string>
#include <vector>

#include "het_tf/core/wire/layout.h"
#include "het_tf/ext/checkpoint/cc/row_writer.h"

namespace het {

struct MergedTable {
  std::string name;
  uint32_t dim = 0;
  uint32_t slot_floats = 0;
  bool complete = true;            // the chain begins with a full file: removals need not be kept
  std::vector<std::string> files;  // oldest first; files without the table change nothing
};

struct MergeRequest {
  Layout layout{1, 0};               // that `partitions` belong to
  std::vector<uint32_t> partitions;  // ascending
  std::vector<MergedTable> tables;
};

// Writes the new file `path`; an error leaves no file. InvalidArgument: the store does not have a partition,
// or a file's rows have other widths.
Result<RowFileSummary> MergeRows(const std::string& path, const MergeRequest& request);

}  // namespace het
