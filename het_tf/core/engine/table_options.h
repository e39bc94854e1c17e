// A user's cache options, as JSON: all defaults and rules of caches are here or in CacheConfig.
//
//   {"rows": 100000, "staleness": 10}   ─► CacheOptions ─► Resolve ─► TableOptions ─► ToJson
//
//   rows      given; or from "bytes"; or CacheConfig's, if the store is a parameter server or the cache is on
//             a device; else the table has no cache and is read in place
//   bytes     for all "tables" of a "layer" (a number that is unique in this process), which share one budget
//             (cache/cache_budget.h). Without a layer, and on a device: as many rows as fit into an equal
//             share, for good
//   bounds    follow "staleness", the row's age and the workers (cache/staleness.h). If one of "pull_bound"
//             and "push_bound" is given, the other is "staleness": HET's bounds, one number for all rows
//   push_max_age  seconds, if the store is a parameter server; else none: only this process reads the table
//   wire      given; or int4, if the store is a parameter server, rows may stay, and copies may be stale or
//             "staleness" is "synchronous", which is 0; else float32
//   checks    given; or notified, from a pull bound of CacheConfig::kLeastNotified on; else asked
//
// In JSON null is the bound math.inf, unbounded. A cache on a device has at least one row; its rows travel as
// float32 and are checked on every read; it has no limit on the age of ticks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "het_tf/core/base/status.h"
#include "het_tf/core/plan/batch_call.h"

namespace het {

// Empty fields were not given.
struct CacheOptions {
  CacheConfig config;  // only: layer, policy, write_back_rows, on_device, workers
  std::optional<int64_t> rows;
  std::optional<int64_t> bytes;
  std::optional<int64_t> tables;  // of the layer; config.layer has its number
  std::optional<int64_t> staleness;
  bool synchronous = false;  // staleness was given as a word
  std::optional<int64_t> pull_bound;
  std::optional<int64_t> push_bound;
  std::optional<double> push_max_age;
  std::optional<RowFormat> wire;
  std::optional<Checks> checks;

  // InvalidArgument: `bytes` are too few for one row of each table. FailedPrecondition: there is no device.
  Result<TableOptions> Resolve(const TableSchema& schema, bool remote) const;
};

// Parses a cache's JSON object. InvalidArgument names the field, its value and the legal values.
Result<CacheOptions> ParseCacheOptions(const std::string& json);

// One line, equal for equal options.
std::string ToJson(const TableOptions& options);

}  // namespace het
