// The device cache (het_tf/ext/gpu/cc/abi.h) in the plainest form: maps of rows, and the core's own
// optimizers. Device libraries are compared with it. Its "device memory" is host memory.
//
// If both the table and the call have a row of a key, "a cached row" in the header means the table's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "het_tf/core/row/schema.h"
#include "het_tf/ext/gpu/cc/abi.h"

namespace het::reference {

constexpr uint64_t kChunk = 64;  // occurrences of a key that are summed together

struct AsUnsigned {
  bool operator()(Key a, Key b) const { return static_cast<uint64_t>(a) < static_cast<uint64_t>(b); }
};

// An exported update.
struct Leaving {
  uint32_t ticks;
  int64_t clock;  // of the row, including these ticks
  std::vector<float> update;
};

enum class Copy { kChecked, kSubscribed, kMoved, kInvalid };

struct Row {
  std::vector<float> row;
  std::vector<float> update;  // zeros where ticks == 0
  int64_t base = 0;
  uint32_t ticks = 0;
  uint64_t stamp = 0;
  uint32_t frequency = 0;
  Copy copy = Copy::kChecked;

  bool invalid() const { return copy == Copy::kInvalid; }

  Leaving Update() const { return {ticks, base + ticks, update}; }
};
using Rows = std::map<Key, Row, AsUnsigned>;
using Keys = std::set<Key, AsUnsigned>;

using LeavingOfUse = std::map<Key, Leaving, AsUnsigned>;

struct Wanted {
  std::vector<uint32_t> use;
  std::vector<Key> keys;
  std::vector<int64_t> bases;
  std::vector<uint64_t> reads, hits;

  void Add(uint32_t of_use, Key key, int64_t base);
  void Show(HetDevWanted* shown) const;
};

struct Export {
  struct OfUse {
    std::vector<Key> keys;
    std::vector<uint32_t> ticks;
    std::vector<int64_t> clocks;
    std::vector<float> updates;
  };
  std::vector<OfUse> uses;
  std::vector<HetDevUpdates> shown;
  std::vector<uint32_t> left_uses;
  std::vector<Key> left_keys;

  // leaving[use]
  void Fill(const std::vector<LeavingOfUse>& leaving, HetDevExport* out);
};

// The state between HetDevSum and HetDevTick.
struct Sums {
  const HetDevCall* call;
  std::vector<std::map<Key, std::vector<float>, AsUnsigned>> of_use;
};

// Sets this thread's message.
int Fail(int code, const std::string& message);

// Returns where the bytes at a caller's device address are (HetDevHostAlias,
// tests/ext/gpu/device/host/memory.h).
const void* ReadableAddress(const void* device);
template <typename T>
T* ReadableAddress(T* device) {
  return static_cast<T*>(const_cast<void*>(ReadableAddress(static_cast<const void*>(device))));
}
// A batch whose ids, rows and gradients can be read and written. The ids are the call's, if it has looked up.
struct Readable {
  Readable(const HetDevCall& call, const HetDevBatch& of);
  std::vector<HetDevFeature> features;
  HetDevBatch batch;
};

// `ids`: the batch must have them, if the call has none.
int CheckBatch(const HetDevContext* context, const HetDevCall* call, const HetDevBatch* batch, bool ids);
// The unique keys of each use; if `active` is given, only of features with active[feature] != 0.
std::vector<Keys> KeysOf(const HetDevBatch& batch, const uint8_t* active);
inline bool IsPadding(const HetDevFeature& feature, Key key) {
  return feature.has_padding != 0 && key == feature.padding_id;
}

}  // namespace het::reference

// For tests: new tables get buckets of `rows` rows instead of 32.
extern "C" HET_DEV_EXPORT void HetDevReferenceBucket(uint64_t rows);

struct HetDevContext {
  uint64_t fail_allocation = 0;
  std::vector<char> stage;
  het::reference::Wanted wanted;
  het::reference::Export leaving;
  std::vector<uint8_t> active;
  std::vector<uint64_t> ticks;
  std::optional<het::reference::Sums> sums;

  // Begins a call: HetDevTick must follow HetDevSum at once. Returns false if memory must run out here.
  bool Begin();
  int OutOfMemory();
};

struct HetDevTable {
  HetDevContext* context;
  HetDevTableConfig config;
  std::string name;
  het::Schema schema;
  uint64_t bucket_rows;
  uint64_t capacity;
  std::map<uint64_t, het::reference::Rows> buckets;
  uint64_t first_uses = 0;  // since frequencies were last halved
  uint64_t inserts = 0;
  uint64_t evictions = 0;

  het::reference::Rows& BucketOf(het::Key key);
  het::reference::Row* Find(het::Key key);
  void Use(het::reference::Row* row, uint64_t stamp);
  void Age();
  // Returns the row to evict from a full bucket, or null.
  const het::Key* Victim(const het::reference::Rows& bucket, uint64_t pinned_from,
                         const het::reference::Keys& answered) const;
  template <typename Fn>
  void ForEach(Fn fn) {
    for (auto& [number, bucket] : buckets) {
      for (auto it = bucket.begin(); it != bucket.end();) {
        auto at = it++;
        if (fn(at->first, &at->second)) bucket.erase(at);
      }
    }
  }
};

struct HetDevCall {
  HetDevContext* context;
  std::map<const HetDevTable*, het::reference::Rows> own;       // rows that stay with the call
  std::map<const HetDevTable*, het::reference::Keys> left_out;  // for HetDevGather
  std::vector<std::vector<het::Key>> ids;                       // of each feature, from the last HetDevLookup

  // Returns the table's row, else the call's, else null. *of_call tells which.
  het::reference::Row* Find(HetDevTable* table, het::Key key, bool* of_call = nullptr);
};
