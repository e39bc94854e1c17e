// From a chain of row files into one: each key's newest row, of some partitions of some tables.
//
// The files are read twice, first their keys (chain.h), then from the newest to the oldest their rows. What
// is in memory is two batches (kBatchBytes each), and the chains of all tables for these partitions.
#pragma once

#include <string>
#include <vector>

#include "het_tf/core/checkpoint/row_writer.h"
#include "het_tf/core/wire/layout.h"

namespace het {

struct MergedTable {
  std::string name;
  uint32_t dim = 0;
  uint32_t slot_floats = 0;
  bool complete = true;            // the chain begins with a full file, so that removals need not be kept
  std::vector<std::string> files;  // oldest first; those without the table say nothing about it
};

struct MergeRequest {
  Layout layout{1, 0};               // of the store that the partitions are of
  std::vector<uint32_t> partitions;  // ascending
  std::vector<MergedTable> tables;
};

// Writes the new file `path`. On error there is none. InvalidArgument: a partition that the store has not, or
// a file with rows of other widths.
Result<RowFileSummary> MergeRows(const std::string& path, const MergeRequest& request);

}  // namespace het
