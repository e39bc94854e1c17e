// The answer of Tables::Stats about one table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "het_tf/core/base/trace_log.h"
#include "het_tf/core/cache/counters.h"
#include "het_tf/core/row/row_format.h"
#include "het_tf/core/wire/bound.h"

namespace het {

struct CacheStats {
  Counters counters;
  size_t rows = 0;         // in the cache
  uint64_t capacity = 0;   // current limit on rows
  size_t unsent_rows = 0;  // rows with unsent updates
  size_t bytes = 0;        // in this process's memory
  std::optional<RowFormat> wire;
  Bound pull_bound;
  Bound push_bound;
  // Of a cache in device memory.
  struct OnDevice {
    std::string device;
    uint64_t invalid_rows = 0;
    uint64_t bytes = 0;  // in its memory
  };
  std::optional<OnDevice> device;
};

struct TableStats {
  std::string table;
  uint32_t dim = 0;
  int64_t applies = 0;
  int64_t dropped = 0;  // gradients that were taken and not applied
  int64_t planned = 0;  // training lookups whose batch was planned
  size_t rows = 0;      // rows that were ever written
  size_t bytes = 0;     // of rows and index
  std::optional<CacheStats> cache;
};

// The JSON object that HetStats returns, for people.
std::string ToJson(const TableStats& stats);
// That of HetReport: the tables, and the totals of all phases.
nlohmann::json AsJson(const std::vector<TableStats>& tables, const TraceLog& trace);

}  // namespace het
