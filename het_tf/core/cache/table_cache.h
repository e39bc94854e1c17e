// The cache of one table. It executes; the client decides which rows to fetch, check and push (client.h).
//
//   lines()    rows, their clocks and own ticks                            lines.h
//   marks()    whether a line may be read, and whether it may leave        line_marks.h
//   unsent()   updates that the server was never sent                      unsent.h
//   ages()     rows by the time of their first unsent tick                 unsent_ages.h
//   policy()   bounds, formats and the order of eviction                   cache_policy.h
//   numbers()  lookups by number, which hold lines                         lookup_numbers.h
//
// TableCache itself adds and removes lines, which concerns the others. The budget (cache_budget.h) limits the
// number of lines. Not thread-safe; the client that owns it locks.
#pragma once

#include <memory>
#include <optional>

#include "het_tf/core/cache/cache_budget.h"
#include "het_tf/core/cache/cache_policy.h"
#include "het_tf/core/cache/counters.h"
#include "het_tf/core/cache/line_marks.h"
#include "het_tf/core/cache/lines.h"
#include "het_tf/core/cache/lookup_numbers.h"
#include "het_tf/core/cache/unsent.h"
#include "het_tf/core/cache/unsent_ages.h"

namespace het {

class DeviceLines;

class TableCache {
 public:
  // `device`: holds the lines, if they are on a device; then this cache never has any. `seed`: determines
  // random rounding; clients of a store must have different ones. `budget`: null: config.capacity lines.
  TableCache(Schema schema, const CacheConfig& config, uint64_t hash_seed, DeviceLines* device = nullptr,
             uint64_t seed = 0, std::shared_ptr<CacheBudget> budget = nullptr);
  ~TableCache() { budget_->Leave(this); }

  const Schema& schema() const { return schema_; }
  DeviceLines* device() const { return device_; }
  CacheBudget* budget() const { return budget_.get(); }
  Counters& counters() { return counters_; }
  Lines& lines() { return lines_; }
  const Lines& lines() const { return lines_; }
  LineMarks& marks() { return marks_; }
  const LineMarks& marks() const { return marks_; }
  Unsent& unsent() { return unsent_; }
  const Unsent& unsent() const { return unsent_; }
  // Null: ticks may be unsent for any time.
  UnsentAges* ages() { return ages_ ? &*ages_ : nullptr; }
  CachePolicy& policy() { return policy_; }
  const CachePolicy& policy() const { return policy_; }
  LookupNumbers& numbers() { return numbers_; }
  const LookupNumbers& numbers() const { return numbers_; }

  // Limit on its lines now; other tables of its budget may take the free ones first.
  size_t capacity() const { return marks_.resident() + budget_->left() / lines_.line_bytes(); }
  size_t bytes() const { return lines_.bytes() + unsent_.bytes() + (ages_ ? ages_->bytes() : 0); }

  // Adds a clean line with this base clock; its row is the caller's to fill in. Throws
  // std::bad_alloc.
  uint32_t Insert(Key key, uint64_t hash, Clock base, bool transient);
  // Drops a line and its update, whatever its state; a held one stays, invalid and clean.
  // Returns the ticks that went with the update.
  uint32_t Drop(uint32_t line);
  // Call when a training lookup of this step begins to read the table. Throws std::bad_alloc.
  void BeginLookup(uint64_t step);
  // Lets lines go until `incoming` more fit, as far as holds allow: of any table of its budget. Dirty ones
  // move to the write-back queue. Called at the end of a step, when most is known of what comes; in between
  // the cache may have more rows than its capacity. Throws std::bad_alloc.
  void MakeRoom(size_t incoming) {
    trimmed_ = numbers_.newest();
    budget_->MakeRoom(incoming * lines_.line_bytes());
  }
  // Lets `count` lines go, as far as holds allow, for its budget. Throws std::bad_alloc.
  void LetGo(size_t count);
  // Lets all transient lines go that are not held.
  void DropTransient();

 private:
  // Limit on lookups that begin without room being made; the next one makes room itself.
  static constexpr uint32_t kUntrimmed = 2;

  void Evict(uint32_t line);

  const Schema schema_;
  DeviceLines* const device_;
  Counters counters_;
  LookupNumbers numbers_;
  Lines lines_;
  LineMarks marks_;
  CachePolicy policy_;
  Unsent unsent_;
  std::optional<UnsentAges> ages_;
  const std::shared_ptr<CacheBudget> budget_;
  uint32_t trimmed_ = 0;  // the newest lookup when room was last made
};

}  // namespace het
