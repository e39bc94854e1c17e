// The cache of one table: lines with clocks, unsent updates, pins and an eviction policy. It executes; it
// decides nothing but the order of eviction. What to fetch, check and push is the client's business
// (client.h).
//
// A line is in one of these states, and moves along the arrows:
//
//           Insert                Tick                     TakeUpdate (pushed)
//   (absent) ────► clean (p = 0) ─────► dirty (p > 0, has an update) ─────► clean
//                    │ Evict                │ Evict
//                    ▼                      ▼
//                 (absent)        write-back queue ──► pushed by the next write, or back by Insert + Restore
//
//   transient   was not admitted, or had no room: it leaves as soon as it is not pinned
//   invalid     its base is not to be trusted (the partition came to life again): its value is fetched
//               anew, its update stays
//   pinned      a running step uses it: it is no victim. Pins are counted.
//
// Cost: a line is its row, 24 bytes of meta, 16 bytes of state, 5 to 9 of index, and 8 or 9 of policy; a
// dirty one also its update, as wide as the row. Not thread-safe; the client that owns it locks.
#ifndef HET_TF_CORE_TABLE_CACHE_H_
#define HET_TF_CORE_TABLE_CACHE_H_

#include <boost/unordered/unordered_flat_map.hpp>
#include <memory>

#include "het_tf/core/cache_config.h"
#include "het_tf/core/counters.h"
#include "het_tf/core/eviction_policy.h"
#include "het_tf/core/row_store.h"
#include "het_tf/core/schema.h"

namespace het {

// Counts how often keys were asked for lately, in one byte a key or less: a count-min sketch that forgets.
class AdmissionFilter {
 public:
  AdmissionFilter(uint32_t admit_after, size_t capacity);
  // Counts one step in which `hash` occurred; true when it has now occurred often enough to be cached.
  bool Admit(uint64_t hash);
  size_t bytes() const { return counts_.size(); }

 private:
  uint32_t admit_after_;
  size_t counted_ = 0;
  Vector<uint8_t> counts_;
};

// Updates of equal width, handed out and taken back by number.
class UpdatePool {
 public:
  explicit UpdatePool(size_t floats) : floats_(floats) {}
  ~UpdatePool();
  UpdatePool(const UpdatePool&) = delete;
  UpdatePool& operator=(const UpdatePool&) = delete;

  // Zeros. Throws std::bad_alloc.
  uint32_t Take();
  void Give(uint32_t update) { free_.push_back(update); }
  float* data(uint32_t update) { return chunks_[update / kChunk] + (update % kChunk) * floats_; }
  size_t bytes() const { return chunks_.size() * kChunk * (floats_ * sizeof(float) + sizeof(uint32_t)); }

 private:
  static constexpr uint32_t kChunk = 256;
  size_t floats_;
  Vector<float*> chunks_;
  Vector<uint32_t> free_;  // always has room for every update
};

struct KeyHash {
  using is_avalanching = void;
  size_t operator()(Key key) const { return HashKey(key, 0); }
};

class DeviceLines;

class TableCache {
 public:
  // `device`: where the lines are, if they are not here; then this cache never has any.
  TableCache(Schema schema, const CacheConfig& config, uint64_t hash_seed, DeviceLines* device = nullptr);

  const TableSchema& schema() const { return *schema_; }
  const Schema& shared_schema() const { return schema_; }
  const CacheConfig& config() const { return config_; }
  void set_bounds(int64_t pull_bound, int64_t push_bound) {
    config_.pull_bound = pull_bound;
    config_.push_bound = push_bound;
  }
  DeviceLines* device() const { return device_; }
  RowStore& lines() { return lines_; }
  const RowStore& lines() const { return lines_; }
  Counters& counters() { return counters_; }

  // --- lines

  // Adds a clean line with this base clock; its row is the caller's to fill in. Throws std::bad_alloc.
  uint32_t Insert(Key key, uint64_t hash, Clock base, bool transient);
  void Touch(uint32_t line) {
    if (!(state_[line].flags & kTransient)) policy_->Touch(line);
  }
  Clock& base(uint32_t line) { return lines_.meta(line).clock; }
  uint32_t pending(uint32_t line) const { return state_[line].pending; }
  bool invalid(uint32_t line) const { return (state_[line].flags & kInvalid) != 0; }
  void SetInvalid(uint32_t line, bool invalid);
  // Lines that count against the capacity: all but the transient ones.
  size_t resident() const { return lines_.size() - transient_lines_; }
  bool Admit(uint64_t hash) { return admission_.Admit(hash); }

  void Pin(uint32_t line) { ++state_[line].pins; }
  void Unpin(uint32_t line) { --state_[line].pins; }
  size_t Pinned() const;
  // Keys with ticks that are in no frame yet.
  size_t Unsent() const;
  size_t bytes() const;

  // --- updates

  // The line's unsent update, made if there is none. Throws std::bad_alloc. After this, AddTick cannot fail.
  float* UpdateOf(uint32_t line);
  void AddTick(uint32_t line) { ++state_[line].pending; }
  // Gives the update away, for a frame: its base moves on by the ticks, since the row holds them already.
  void TakeUpdate(uint32_t line, Vector<uint32_t>* ticks, Vector<float>* wire);

  // --- eviction
  struct Queued {
    Key key;
    uint32_t ticks;   // 0: taken back
    uint32_t update;  // in the pool
  };
  // Lets lines go until `incoming` more fit, as far as pins allow; transient ones that are not pinned go in
  // any case. Dirty ones move to the write-back queue. Throws std::bad_alloc.
  void MakeRoom(size_t incoming);
  // Drops a line and its update, whatever its state; a pinned one stays, invalid and clean. Returns the ticks
  // that went with the update.
  uint32_t Drop(uint32_t line);
  // fn(line) for every line; it may drop it.
  template <typename Fn>
  void ForEachLine(Fn fn) {
    for (uint32_t line = 0; line < lines_.end(); ++line) {
      if (lines_.live(line)) fn(line);
    }
  }

  // --- the write-back queue
  const Vector<Queued>& queue() const { return queue_; }
  size_t queued() const { return queued_; }
  // The queue's entry of key, or null.
  const Queued* FindQueued(Key key) const;
  float* queued_update(const Queued& queued) { return updates_.data(queued.update); }
  // A queued update returns to a line that was just inserted.
  void Restore(uint32_t line, const Queued& queued);
  // Moves every queued update of the given partition into a frame's arrays.
  void TakeQueue(uint32_t partition, uint32_t partitions, Vector<Key>* keys, Vector<uint32_t>* ticks,
                 Vector<float>* wire);
  // Forgets queued updates of keys for which drop(key); returns their ticks.
  template <typename Fn>
  uint64_t DropQueued(Fn drop) {
    uint64_t ticks = 0;
    for (Queued& queued : queue_) {
      if (queued.ticks == 0 || !drop(queued.key)) continue;
      ticks += queued.ticks;
      ReleaseQueued(&queued);
    }
    CompactQueue();
    return ticks;
  }

 private:
  static constexpr uint8_t kTransient = 1;
  static constexpr uint8_t kInvalid = 2;
  static constexpr uint32_t kNoUpdate = 0xffffffffu;

  struct State {
    uint32_t pending = 0;
    uint32_t update = kNoUpdate;
    uint32_t pins = 0;
    uint8_t flags = 0;
  };

  void Evict(uint32_t line);
  void ReleaseQueued(Queued* queued);
  void CompactQueue();
  void AppendWire(const float* update, Vector<float>* wire) const;

  Schema schema_;
  CacheConfig config_;
  DeviceLines* device_;
  RowStore lines_;
  Vector<State> state_;
  std::unique_ptr<EvictionPolicy> policy_;
  AdmissionFilter admission_;
  UpdatePool updates_;
  Vector<uint32_t> transient_;  // lines that were inserted as such; may name lines that are gone
  size_t transient_lines_ = 0;  // of the lines that are here
  Vector<Queued> queue_;
  size_t queued_ = 0;  // entries of queue_ that were not taken back
  boost::unordered_flat_map<Key, uint32_t, KeyHash, std::equal_to<Key>,
                            Allocator<std::pair<const Key, uint32_t>>>
      queue_index_;  // into queue_
  Vector<uint32_t> victims_;
  Counters counters_;
};

}  // namespace het

#endif  // HET_TF_CORE_TABLE_CACHE_H_
