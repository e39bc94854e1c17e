// The cache of one table: lines with clocks, unsent updates, holds and an eviction policy. It
// executes; it decides nothing but the order of eviction. What to fetch, check and push is the
// client's business (client.h).
//
// A line is in one of these states, and moves along the arrows:
//
//           Insert                Tick                     TakeUpdate (pushed)
//   (absent) ────► clean (p = 0) ─────► dirty (p > 0, has an update) ─────► clean
//                    │ Evict                │ Evict
//                    ▼                      ▼
//                 (absent)        WriteBackQueue ──► pushed by the next write, or Insert + Restore
//
//   transient   was not admitted, or had no room: it leaves as soon as it is not held
//   invalid     its base is not to be trusted (the partition's incarnation changed): its value is
//               fetched anew, its update stays
//   subscribed  the server names it when it has moved past the pull bound (store/holdings.h): it need
//               not be checked. When it leaves, the server is to hear of it: by its push, or
//               left_subscribed()
//   moved       it was named, by the server or by the stream of the samples: the lookup that reads it fetches
//               it
//   held        a step uses it, or its lookup waits: it is no victim until its number has passed
//               (lookup_numbers.h)
//   planned     a lookup that the pipeline has planned will use it (engine/next_uses.h): it goes after all
//               that are not, the one that is used last first
//
// Rounding. Where rows travel in a smaller format (CacheConfig::wire), a push takes the update
// rounded, and the *remainder* stays: an update of 0 ticks, which the next tick composes onto. So
// a clean line may have an update, too. A row that leaves takes its remainder along and is rounded
// up or down at random, so that on average nothing is lost; what that leaves, and the remainder of
// a clean line, goes with the line, and is counted. TakeWhole leaves nothing.
//
// Cost: a line is its row, 24 bytes of meta, 16 bytes of state, 5 to 9 of index, and 8 or 9 of
// policy; a dirty one, or one with a remainder, also its update, as wide as the row. How many lines there may
// be is the budget's to say (cache_budget.h). Not thread-safe; the client that owns it locks.
#pragma once

#include <memory>

#include "het_tf/core/cache/admission_filter.h"
#include "het_tf/core/cache/cache_budget.h"
#include "het_tf/core/cache/cache_config.h"
#include "het_tf/core/cache/counters.h"
#include "het_tf/core/cache/eviction_policy.h"
#include "het_tf/core/cache/lookup_numbers.h"
#include "het_tf/core/cache/update_pool.h"
#include "het_tf/core/cache/write_back_queue.h"
#include "het_tf/core/row/row_store.h"
#include "het_tf/core/row/schema.h"
#include "het_tf/core/wire/layout.h"

namespace het {

class DeviceLines;

class TableCache {
 public:
  static constexpr size_t LineBytes(size_t row_floats) { return row_floats * sizeof(float) + 58; }
  // `device`: where the lines are, if they are not here; then this cache never has any. `seed`: of what is
  // rounded at random; another client of the store has another one. `budget`: null: of config.capacity lines.
  TableCache(Schema schema, const CacheConfig& config, uint64_t hash_seed, DeviceLines* device = nullptr,
             uint64_t seed = 0, std::shared_ptr<CacheBudget> budget = nullptr);
  ~TableCache() { budget_->Leave(this); }

  const TableSchema& schema() const { return *schema_; }
  const Schema& shared_schema() const { return schema_; }
  const CacheConfig& config() const { return config_; }
  void set_bounds(Bound pull_bound, Bound push_bound) {
    config_.pull_bound = pull_bound;
    config_.push_bound = push_bound;
  }
  // From now on the stream says what has moved (MarkMoved), and no row is asked about. What is cached has
  // moved.
  void FollowStream() {
    set_bounds(kUnbounded, config_.push_bound);
    config_.staleness.reset();
    MarkAllMoved();
  }
  // Bounds that follow `staleness` follow the number of workers.
  void set_workers(uint32_t workers) {
    config_.workers = workers;
    config_.Follow(schema_->spec().optimizer.name);
  }
  SyncPolicy sync() const { return config_.sync(); }
  DeviceLines* device() const { return device_; }
  RowStore& lines() { return lines_; }
  const RowStore& lines() const { return lines_; }
  Counters& counters() { return counters_; }

  // --- lines

  // Adds a clean line with this base clock; its row is the caller's to fill in. Throws
  // std::bad_alloc.
  uint32_t Insert(Key key, uint64_t hash, Clock base, bool transient);
  void Touch(uint32_t line) {
    if (!(state_[line].flags & kTransient)) policy_->Touch(line);
  }
  Clock& base(uint32_t line) { return lines_.meta(line).clock; }
  uint32_t pending(uint32_t line) const { return state_[line].pending; }
  bool invalid(uint32_t line) const { return (state_[line].flags & kInvalid) != 0; }
  void SetInvalid(uint32_t line, bool invalid);
  // Whether its row contains anything that was never sent: ticks, or a remainder.
  bool has_update(uint32_t line) const { return state_[line].update != kNoUpdate; }
  bool subscribed(uint32_t line) const { return (state_[line].flags & kSubscribed) != 0; }
  void SetSubscribed(uint32_t line, bool subscribed) {
    State& state = state_[line];
    state.flags = static_cast<uint8_t>(subscribed ? state.flags | kSubscribed : state.flags & ~kSubscribed);
  }
  bool moved(uint32_t line) const { return (state_[line].flags & kMoved) != 0; }
  // A subscribed line was named, and is no longer subscribed.
  void SetMoved(uint32_t line) {
    State& state = state_[line];
    if (state.flags & kSubscribed) state.flags = static_cast<uint8_t>((state.flags & ~kSubscribed) | kMoved);
  }
  // This worker's clock of the row: what the line contains.
  Clock clock(uint32_t line) const { return lines_.meta(line).clock + state_[line].pending; }
  // Another worker has updated the row, as the stream says (engine/on_demand.h).
  void MarkMoved(uint32_t line) {
    State& state = state_[line];
    state.flags = static_cast<uint8_t>((state.flags & ~kSubscribed) | kMoved);
  }
  void MarkAllMoved();
  // Lines that count against the capacity: all but the transient ones.
  size_t resident() const { return lines_.size() - transient_lines_; }
  size_t line_bytes() const { return line_bytes_; }
  CacheBudget* budget() const { return budget_.get(); }
  // Lines that it may have now; other tables of its budget may take those that it has not yet.
  size_t capacity() const { return resident() + budget_->left() / line_bytes_; }
  size_t LinesOfRank(size_t rank) const { return policy_->LinesOfRank(rank); }
  bool Admit(uint64_t hash) { return admission_.Admit(hash); }
  // A lookup has used a row that does not stay.
  void Pass() { policy_->Pass(); }

  // --- lookups, by number (lookup_numbers.h)

  // A training lookup of step `step` names the table. Throws std::bad_alloc.
  void BeginLookup(uint64_t step);
  const LookupNumbers& numbers() const { return numbers_; }
  bool held(uint32_t line) const { return numbers_.Holds(state_[line].held_until); }
  // The gradient of a step has come: the lines that its lookup holds may leave, unless another holds them.
  void EndLookup(uint64_t step) { numbers_.End(step); }
  // The lookup of a step reads the line: it is held until EndLookup, or until the lookup is none of the
  // newest kSteps. A step that is not known holds until the lookup after the newest ends.
  void HoldForStep(uint32_t line, uint64_t step);
  void BeginReading() { numbers_.BeginReading(); }
  void EndReading() { numbers_.EndReading(); }
  uint32_t BeginWaiting(uint64_t step) { return numbers_.BeginWaiting(step); }
  void EndWaiting(uint32_t number) { numbers_.EndWaiting(number); }
  // The partition has answered what has moved; it was asked during this lookup. Throws std::bad_alloc.
  void SetAnswered(uint32_t partition, uint32_t number) { numbers_.SetAnswered(partition, number); }
  // For tests: how many lines are held.
  size_t Held() const;

  // --- planned lookups, by the number of the plan

  // The lookup of this plan is here.
  void set_planned(uint32_t number) { planned_ = std::max(planned_, number); }
  // One that will use the line; 0: none. Of several it is the first. Throws std::bad_alloc.
  void SetNextUse(uint32_t line, uint32_t number);

  // For loops over lines. What is known of a line will be used soon; then its row and update, for a tick.
  static constexpr size_t kLinesAhead = 12;  // the line in work is so many behind
  void PrefetchState(uint32_t line) const { __builtin_prefetch(&state_[line], 1); }
  void PrefetchTouch(uint32_t line) const { policy_->Prefetch(line); }
  void PrefetchTick(uint32_t line);
  // Keys with ticks that are in no frame yet.
  size_t Unsent() const;
  size_t bytes() const;

  // Keys of subscribed lines that have left since this was emptied. Where there was no memory, some are
  // missing.
  Vector<Key>& left_subscribed() { return left_subscribed_; }

  // --- updates

  // The line's unsent update, made if there is none. Throws std::bad_alloc. After this, AddTick
  // cannot fail.
  float* UpdateOf(uint32_t line);
  void AddTick(uint32_t line) { ++state_[line].pending; }
  // Gives the update away, for a frame, and keeps the remainder: the base moves on by the ticks,
  // since the row holds them already.
  void TakeUpdate(uint32_t line, Vector<uint32_t>* ticks, Vector<float>* wire);
  // The same, with nothing left behind.
  void TakeWhole(uint32_t line, Vector<uint32_t>* ticks, Vector<float>* wire);
  // Whether TakeWhole has anything to give. An update of zeros is nothing.
  bool HasUnsent(uint32_t line);
  // How rows travel: as the config says, but for rows of one number, which would hardly become
  // smaller.
  RowFormat row_format() const {
    if (schema_->dim() == 1) return RowFormat::kFloat32;
    return config_.wire == RowFormat::kInt4 ? RowFormat::kInt8 : config_.wire;
  }
  // And updates: alike, or in half as many bits; but what has no value in it has no integers.
  RowFormat push_format() const;

  // --- eviction

  // Lets lines go until `incoming` more fit, as far as holds allow: of any table of its budget. Dirty ones
  // move to the write-back queue. Called at the end of a step, when most is known of what comes; in between
  // the cache may have more rows than its capacity. Throws std::bad_alloc.
  void MakeRoom(size_t incoming) {
    trimmed_ = numbers_.newest();
    budget_->MakeRoom(incoming * line_bytes_);
  }
  // Lets so many lines go, as far as holds allow, for its budget. Throws std::bad_alloc.
  void LetGo(size_t count);
  // The same for transient lines: all that are not held.
  void DropTransient();
  // Drops a line and its update, whatever its state; a held one stays, invalid and clean.
  // Returns the ticks that went with the update.
  uint32_t Drop(uint32_t line);
  // fn(line) for every line; it may drop it.
  template <typename Fn>
  void ForEachLine(Fn fn) {
    for (uint32_t line = 0; line < lines_.end(); ++line) {
      if (lines_.live(line)) fn(line);
    }
  }

  // --- the write-back queue
  using Queued = WriteBackQueue::Queued;
  const Vector<Queued>& queue() const { return queue_.entries(); }
  size_t queued() const { return queue_.size(); }
  // The queue's entry of key, or null.
  const Queued* FindQueued(Key key) const { return queue_.Find(key); }
  float* queued_update(const Queued& queued) { return updates_.data(queued.update); }
  // A queued update returns to a line that was just inserted.
  void Restore(uint32_t line, const Queued& queued);
  // A frame's arrays, with room.
  struct QueueTo {
    Vector<Key>* keys;
    Vector<uint32_t>* ticks;
    Vector<float>* wire;
  };
  // Moves every queued update into the arrays of its partition; `whole`: as it is, else rounded.
  void TakeQueue(const Layout& layout, Span<const QueueTo> of_partition, bool whole);
  // Forgets queued updates of keys for which drop(key); returns their ticks.
  template <typename Fn>
  uint64_t DropQueued(Fn drop) {
    uint64_t ticks = 0;
    queue_.RemoveIf([&](const Queued& queued) {
      if (!drop(queued.key)) return false;
      ticks += queued.ticks;
      updates_.Give(queued.update);
      return true;
    });
    return ticks;
  }

 private:
  static constexpr uint8_t kTransient = 1;
  static constexpr uint8_t kInvalid = 2;
  static constexpr uint8_t kSubscribed = 4;
  static constexpr uint8_t kMoved = 8;  // never beside kSubscribed
  static constexpr uint32_t kNoUpdate = 0xffffffffu;

  struct State {
    uint32_t pending = 0;
    uint32_t update = kNoUpdate;
    uint32_t held_until = 0;  // number of a lookup
    uint8_t flags = 0;
  };

  // Lookups that may begin before those that came before them have made room.
  static constexpr uint32_t kUntrimmed = 2;

  bool planned(uint32_t line) const { return line < next_use_.size() && next_use_[line] > planned_; }
  void AddPlannedVictims(size_t count, Vector<uint32_t>* victims) const;
  void Evict(uint32_t line);
  // Adds the part of an update that travels to a frame; returns where.
  float* AppendWire(const float* update, Vector<float>* wire) const;
  // How the last push of a row is rounded, whose rest is lost: by random numbers that depend on the client,
  // the table, the row and the lookup, each mixed before the next enters. Otherwise the errors of several
  // rows, tables or workers are equal, and add up.
  Rounding RoundingOfLast(Key key) const;
  // Has given the line's update away.
  void SetClean(uint32_t line);

  Schema schema_;
  CacheConfig config_;
  DeviceLines* device_;
  const uint64_t rounding_;  // the client and the table
  const size_t line_bytes_;
  const std::shared_ptr<CacheBudget> budget_;
  RowStore lines_;
  Vector<State> state_;
  Vector<uint32_t> next_use_;  // by line; empty where nothing was planned
  uint32_t planned_ = 0;       // the newest planned lookup that is here
  uint32_t trimmed_ = 0;       // the newest lookup when room was made
  LookupNumbers numbers_;
  std::unique_ptr<EvictionPolicy> policy_;
  AdmissionFilter admission_;
  UpdatePool updates_;
  Vector<uint32_t> transient_;  // lines that were inserted as such; may name lines that are gone
  size_t transient_lines_ = 0;  // of the lines that are here
  WriteBackQueue queue_;
  Vector<Key> left_subscribed_;
  Counters counters_;
};

}  // namespace het
