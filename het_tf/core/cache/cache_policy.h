// The current rules of a cache: bounds, formats of rows, and the lines that leave first.
//
// Bounds follow `staleness` and the number of workers (staleness.h), or are given by the user. Lines leave
// in the order of an eviction policy; lines that a planned lookup will use (engine/next_uses.h) leave last,
// in reverse order of use.
#pragma once

#include <algorithm>
#include <memory>

#include "het_tf/core/cache/cache_config.h"
#include "het_tf/core/cache/eviction_policy.h"
#include "het_tf/core/cache/line_marks.h"
#include "het_tf/core/row/schema.h"

namespace het {

class CachePolicy {
 public:
  CachePolicy(Schema schema, const CacheConfig& config);

  const CacheConfig& config() const { return config_; }
  SyncPolicy sync() const { return config_.sync(); }

  // The format of rows: the config's, except for rows of one number, which would hardly become smaller.
  RowFormat row_format() const;
  // The format of updates: the config's, except where rows have one number, or where the value is derived.
  RowFormat push_format() const;

  EvictionPolicy& eviction() { return *eviction_; }
  const EvictionPolicy& eviction() const { return *eviction_; }
  // Call when the lookup of this plan has come.
  void set_planned(uint32_t number) { planned_ = std::max(planned_, number); }
  // Sets the first planned lookup that will use the line; 0: none. Throws std::bad_alloc.
  void SetNextUse(uint32_t line, uint32_t number);
  // A new line has no next use.
  void ForgetNextUse(uint32_t line) {
    if (line < next_use_.size()) next_use_[line] = 0;
  }
  // Appends up to `count` lines that are not held, in order of eviction. Throws std::bad_alloc.
  void Victims(size_t count, const Lines& lines, const LineMarks& marks, Vector<uint32_t>* victims) const;

 private:
  bool planned(uint32_t line) const { return line < next_use_.size() && next_use_[line] > planned_; }

  const Schema schema_;
  CacheConfig config_;
  const std::unique_ptr<EvictionPolicy> eviction_;
  Vector<uint32_t> next_use_;  // by line; empty before the first plan
  uint32_t planned_ = 0;       // the newest planned lookup that has come
};

}  // namespace het
