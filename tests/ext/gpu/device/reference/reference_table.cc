// A table: its rows, the eviction from a full bucket, and exports between steps.
#include <algorithm>
#include <tuple>

#include "het_tf/core/wire/layout.h"
#include "tests/ext/gpu/device/reference/reference.h"

namespace {

using het::Key;
using het::reference::Copy;
using het::reference::Fail;
using het::reference::Keys;
using het::reference::LeavingOfUse;
using het::reference::Row;
using het::reference::Rows;

uint64_t bucket_rows = 32;

constexpr uint32_t kMostLfu = 0xffff;

struct Named {
  const char* name;
  std::vector<const char*> params;
};
const Named kOptimizers[] = {
    {"sgd", {}},
    {"momentum", {"momentum", "nesterov"}},
    {"rmsprop", {"rho", "epsilon"}},
    {"adam", {"beta_1", "beta_2", "epsilon"}},
    {"adagrad", {"initial_accumulator", "epsilon", "decay_steps"}},
    {"row_wise_adagrad", {"initial_accumulator", "epsilon", "decay_steps"}},
    {"ftrl", {"l1", "l2", "beta", "l2_shrinkage", "initial_accumulator"}},
};

int Check(const HetDevTableConfig& config, het::Schema* schema) {
  const std::string name = config.name == nullptr ? "" : config.name;
  auto bad = [&](const std::string& what) { return Fail(HET_DEV_INVALID, "table '" + name + "': " + what); };
  if (config.capacity == 0) return bad("capacity is 0; it must be at least 1 row");
  if (config.capacity > HET_DEV_MOST_ROWS) return bad("capacity is too large");
  if (config.policy < HET_DEV_LRU || config.policy > HET_DEV_LFU) {
    return bad("policy is " + std::to_string(config.policy) + "; it must be from 0 to 2");
  }
  if (config.optimizer < HET_DEV_SGD || config.optimizer > HET_DEV_FTRL) {
    return bad("optimizer is " + std::to_string(config.optimizer) + "; it must be from 0 to 6");
  }
  if (config.partitions == 0 || config.partitions > 65536) {
    return bad("partitions is " + std::to_string(config.partitions) + "; it must be from 1 to 65536");
  }
  het::TableSpec spec;
  spec.name = name;
  spec.dim = config.dim;
  const Named& optimizer = kOptimizers[config.optimizer];
  spec.optimizer.name = optimizer.name;
  for (size_t p = 0; p < optimizer.params.size(); ++p) {
    spec.optimizer.params[optimizer.params[p]] = config.params[p];
  }
  spec.l2 = config.l2;
  spec.max_norm = config.max_norm;
  auto made = het::TableSchema::Create(spec);
  if (!made.ok()) return Fail(HET_DEV_INVALID, made.status().message());
  if (made.value()->row_floats() != config.row_floats) {
    return bad("row_floats is " + std::to_string(config.row_floats) + "; with this dim and optimizer it is " +
               std::to_string(made.value()->row_floats()));
  }
  *schema = made.value();
  return HET_DEV_OK;
}

uint64_t Rounded(uint64_t capacity) { return (capacity + bucket_rows - 1) / bucket_rows * bucket_rows; }

uint64_t Bytes(const HetDevTableConfig& config) {
  const uint64_t floats = uint64_t{config.row_floats} * (config.keep_updates ? 2 : 1);
  return Rounded(config.capacity) * (sizeof(float) * floats + 33);
}

// Applies HetDevForget to a row. Returns true if the row must go.
bool Forget(int what, Row* row, uint64_t* discarded) {
  const bool subscribed = row->copy == Copy::kSubscribed;
  if (what == HET_DEV_INVALIDATE) row->copy = Copy::kInvalid;
  if (what == HET_DEV_MOVED && subscribed) row->copy = Copy::kMoved;
  if (what == HET_DEV_UNSUBSCRIBE && subscribed) row->copy = Copy::kChecked;
  if (what >= HET_DEV_INVALIDATE) return false;
  if (what == HET_DEV_DROP_CLEAN && row->ticks > 0) return false;
  *discarded += row->ticks;
  return true;
}

int CheckWhat(int what) {
  if (what >= HET_DEV_DROP && what <= HET_DEV_UNSUBSCRIBE) return HET_DEV_OK;
  return Fail(HET_DEV_INVALID, "what is " + std::to_string(what) + "; it must be from 0 to 4");
}

}  // namespace

void HetDevReferenceBucket(uint64_t rows) { bucket_rows = rows; }

Rows& HetDevTable::BucketOf(Key key) {
  const uint64_t hash = het::HashKey(key, config.hash_seed);
  return buckets[((hash >> 32) * (capacity / bucket_rows)) >> 32];
}

Row* HetDevTable::Find(Key key) {
  Rows& bucket = BucketOf(key);
  const auto it = bucket.find(key);
  return it == bucket.end() ? nullptr : &it->second;
}

void HetDevTable::Use(Row* row, uint64_t stamp) {
  row->stamp = stamp;
  row->frequency = std::min(row->frequency + 1, kMostLfu);
  ++first_uses;
}

void HetDevTable::Age() {
  if (first_uses < 8 * capacity) return;
  first_uses = 0;
  ForEach([](Key, Row* row) {
    row->frequency /= 2;
    return false;
  });
}

const Key* HetDevTable::Victim(const Rows& bucket, uint64_t pinned_from, const Keys& answered) const {
  const Key* victim = nullptr;
  std::tuple<uint32_t, uint64_t> least;
  for (const auto& [key, row] : bucket) {  // in order of keys, so the first of equal ones has the smallest
    if (row.stamp >= pinned_from || answered.count(key) != 0) continue;
    const std::tuple<uint32_t, uint64_t> score(config.policy == HET_DEV_LRU ? 0 : row.frequency, row.stamp);
    if (victim != nullptr && least <= score) continue;
    victim = &key;
    least = score;
  }
  return victim;
}

int HetDevTableBytes(const HetDevTableConfig* config, uint64_t* bytes) {
  het::Schema schema;
  if (const int bad = Check(*config, &schema)) return bad;
  *bytes = Bytes(*config);
  return HET_DEV_OK;
}

int HetDevCreateTable(HetDevContext* context, const HetDevTableConfig* config, HetDevTable** table) {
  het::Schema schema;
  if (const int bad = Check(*config, &schema)) return bad;
  HetDevInfo info;
  HetDevDescribe(0, &info);
  if (!context->Begin() || Bytes(*config) > info.free_bytes) {
    return Fail(HET_DEV_OUT_OF_MEMORY, "table '" + std::string(config->name) + "' needs " +
                                           std::to_string(Bytes(*config)) + " bytes of device memory; " +
                                           std::to_string(info.free_bytes) + " are free");
  }
  *table = new HetDevTable();
  (*table)->context = context;
  (*table)->config = *config;
  (*table)->name = config->name;
  (*table)->schema = schema;
  (*table)->bucket_rows = bucket_rows;
  (*table)->capacity = Rounded(config->capacity);
  return HET_DEV_OK;
}

void HetDevDestroyTable(HetDevContext*, HetDevTable* table) { delete table; }

int HetDevState(HetDevContext* context, HetDevTable* table, HetDevStream, HetDevTableState* state) {
  context->sums.reset();
  *state = {table->capacity, Bytes(table->config), 0, 0, 0, 0, table->inserts, table->evictions};
  table->ForEach([&](Key, Row* row) {
    ++state->rows;
    state->dirty += row->ticks > 0;
    state->invalid += row->invalid();
    state->subscribed += row->copy == Copy::kSubscribed;
    return false;
  });
  return HET_DEV_OK;
}

int HetDevTake(HetDevContext* context, HetDevTable* table, uint64_t max_rows, HetDevStream,
               HetDevExport* updates) {
  if (!context->Begin()) return context->OutOfMemory();
  std::map<Key, Row*, het::reference::AsUnsigned> dirty;
  table->ForEach([&](Key key, Row* row) {
    if (row->ticks > 0) dirty[key] = row;
    return false;
  });
  std::vector<LeavingOfUse> leaving(1);
  for (auto& [key, row] : dirty) {
    if (leaving[0].size() >= max_rows) break;
    leaving[0][key] = row->Update();
    row->base += row->ticks;
    row->ticks = 0;
    row->update.assign(row->update.size(), 0.0f);
  }
  context->leaving.Fill(leaving, updates);
  return HET_DEV_OK;
}

int HetDevForget(HetDevContext* context, HetDevTable* table, int what, const uint8_t* partitions,
                 HetDevStream, uint64_t* discarded) {
  if (const int bad = CheckWhat(what)) return bad;
  if (!context->Begin()) return context->OutOfMemory();
  *discarded = 0;
  const het::TableLayout layout =
      het::Layout(table->config.partitions, table->config.hash_seed).OfTable(table->config.table);
  table->ForEach([&](Key key, Row* row) {
    if (partitions != nullptr && !partitions[layout.OfKey(key)]) return false;
    return Forget(what, row, discarded);
  });
  return HET_DEV_OK;
}

int HetDevForgetKeys(HetDevContext* context, HetDevTable* table, int what, const int64_t* keys, uint64_t n,
                     HetDevStream, uint64_t* discarded) {
  if (const int bad = CheckWhat(what)) return bad;
  if (!context->Begin()) return context->OutOfMemory();
  *discarded = 0;
  for (uint64_t i = 0; i < n; ++i) {
    Row* row = table->Find(keys[i]);
    if (row != nullptr && Forget(what, row, discarded)) table->BucketOf(keys[i]).erase(keys[i]);
  }
  return HET_DEV_OK;
}

int HetDevInspect(HetDevContext* context, HetDevTable* table, int64_t key, HetDevStream,
                  HetDevRowState* state, float* row, float* update) {
  context->sums.reset();
  *state = HetDevRowState();
  const Row* found = table->Find(key);
  if (found == nullptr) return HET_DEV_OK;
  *state = {1,
            found->invalid(),
            found->base,
            found->ticks,
            found->stamp,
            found->frequency,
            found->copy == Copy::kSubscribed,
            found->copy == Copy::kMoved};
  if (row != nullptr) std::copy(found->row.begin(), found->row.end(), row);
  if (update != nullptr && found->ticks > 0) std::copy(found->update.begin(), found->update.end(), update);
  return HET_DEV_OK;
}
