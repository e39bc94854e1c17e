#include "het_tf/ext/gpu/cc/device_table.h"

#include <algorithm>
#include <iterator>
#include <new>

namespace het {
namespace {

constexpr uint64_t kBucket = DeviceTable::kBucket;
constexpr uint64_t kMostBuckets = HET_DEV_MOST_ROWS / kBucket;

struct DeviceOptimizer {
  const char* name;
  int number;
  const char* params[8];
};
constexpr DeviceOptimizer kOptimizers[] = {
    {"sgd", HET_DEV_SGD, {}},
    {"momentum", HET_DEV_MOMENTUM, {"momentum", "nesterov"}},
    {"rmsprop", HET_DEV_RMSPROP, {"rho", "epsilon"}},
    {"adam", HET_DEV_ADAM, {"beta_1", "beta_2", "epsilon"}},
    {"adagrad", HET_DEV_ADAGRAD, {"initial_accumulator", "epsilon", "decay_steps"}},
    {"row_wise_adagrad", HET_DEV_ROW_WISE_ADAGRAD, {"initial_accumulator", "epsilon", "decay_steps"}},
    {"ftrl", HET_DEV_FTRL, {"l1", "l2", "beta", "l2_shrinkage", "initial_accumulator"}},
};

}  // namespace

Result<HetDevTableConfig> DeviceConfig(const TableSchema& schema, const CacheConfig& cache,
                                       const PartitionId& store) {
  HetDevTableConfig config = {};
  config.name = schema.spec().name.c_str();
  config.capacity = cache.capacity;
  config.dim = schema.dim();
  config.row_floats = static_cast<uint32_t>(schema.row_floats());
  config.policy = cache.policy == Policy::kLru ? HET_DEV_LRU : HET_DEV_LFU;
  config.l2 = schema.spec().l2;
  config.max_norm = schema.spec().max_norm;
  config.keep_updates = 1;
  config.table = schema.id();
  config.hash_seed = store.hash_seed;
  config.partitions = store.count;
  const OptimizerSpec& spec = schema.spec().optimizer;
  for (const DeviceOptimizer& optimizer : kOptimizers) {
    if (spec.name != optimizer.name) continue;
    config.optimizer = optimizer.number;
    for (size_t i = 0; i < std::size(optimizer.params) && optimizer.params[i] != nullptr; ++i) {
      config.params[i] = spec.params.at(optimizer.params[i]);
    }
    return config;
  }
  return Status(Code::kUnimplemented, "optimizer '" + spec.name + "' does not run in GPU memory");
}

Result<uint64_t> DeviceRowsThatFit(const DeviceLibrary& library, HetDevTableConfig config, uint64_t bytes) {
  // Bytes grow with the capacity: the answer is in [fits, too_many) buckets.
  uint64_t fits = 0;
  uint64_t too_many = std::min(bytes / (kBucket * 2 * sizeof(float)) + 1, kMostBuckets) + 1;
  while (too_many - fits > 1) {
    config.capacity = (fits + (too_many - fits) / 2) * kBucket;
    uint64_t taken = 0;
    HET_RETURN_IF_ERROR(
        library.ToStatus(library.HetDevTableBytes(&config, &taken), "counting the rows that fit"));
    (taken <= bytes ? fits : too_many) = config.capacity / kBucket;
  }
  return fits * kBucket;
}

DeviceTable::DeviceTable(Schema schema, uint32_t partitions)
    : schema_(std::move(schema)),
      drop_(partitions),
      invalid_(partitions),
      unsubscribe_(partitions),
      subscribed_(partitions) {}

void DeviceTable::Flags::Reset() {
  std::fill(flags.begin(), flags.end(), uint8_t{0});
  set = 0;
}

void DeviceTable::Drop(uint32_t partition) {
  drop_.Set(partition);
  // Nothing is ticked before CatchUp, so a full drop's ticks are known here.
  if (dropped()) Discard(unsent_);
}

void DeviceTable::DropKeys(Span<const Key> keys) {
  try {
    keys_.insert(keys_.end(), keys.begin(), keys.end());
  } catch (const std::bad_alloc&) {
    // The store has changed: no old value may be read. Invalidating all rows takes no memory.
    for (uint32_t p = 0; p < subscribed_.size(); ++p) Invalidate(p);
  }
}

void DeviceTable::Moved(Span<const Key> keys) {
  try {
    moved_.insert(moved_.end(), keys.begin(), keys.end());
  } catch (const std::bad_alloc&) {
    // Rows that are not subscribed are checked.
    for (uint32_t p = 0; p < subscribed_.size(); ++p) Unsubscribe(p);
  }
}

bool DeviceTable::Unsubscribe(uint32_t partition) {
  if (!std::exchange(subscribed_[partition], uint8_t{0})) return false;
  unsubscribe_.Set(partition);
  return true;
}

int DeviceTable::CatchUp(const DeviceLibrary& library, HetDevContext* context, HetDevStream stream,
                         bool* went) {
  int answer = HET_DEV_OK;
  uint64_t discarded = 0;
  const auto forget = [&](int what, const uint8_t* partitions) {
    answer = library.HetDevForget(context, handle, what, partitions, stream, &discarded);
    if (answer == HET_DEV_OK) Discard(discarded);
    return answer == HET_DEV_OK;
  };
  const auto forget_flagged = [&](int what, Flags* of) {
    if (of->set == 0) return true;
    if (!forget(what, of->all() ? nullptr : of->flags.data())) return false;
    of->Reset();
    return true;
  };
  const auto forget_keys = [&](int what, Vector<Key>* keys) {
    if (keys->empty()) return true;
    answer = library.HetDevForgetKeys(context, handle, what, keys->data(), keys->size(), stream, &discarded);
    if (answer != HET_DEV_OK) return false;
    Discard(discarded);
    keys->clear();
    return true;
  };
  *went = *went || drop_.set > 0 || !keys_.empty() || clean_;
  if (!forget_flagged(HET_DEV_DROP, &drop_) || !forget_keys(HET_DEV_DROP, &keys_)) return answer;
  keys_ = Vector<Key>();
  if (clean_ && !forget(HET_DEV_DROP_CLEAN, nullptr)) return answer;
  clean_ = false;
  if (forget_flagged(HET_DEV_INVALIDATE, &invalid_) && forget_flagged(HET_DEV_UNSUBSCRIBE, &unsubscribe_))
    forget_keys(HET_DEV_MOVED, &moved_);
  return answer;
}

void DeviceTable::Read(uint64_t reads, uint64_t hits, uint64_t trusted) {
  counters->trusted += trusted;
  counters->reads += reads;
  counters->hits += hits;
  absent += reads - hits;
}

void DeviceTable::Ticked(uint64_t ticks) {
  unsent_ += ticks;
  counters->ticks += ticks;
}

void DeviceTable::Gave(const HetDevUpdates& updates) {
  uint64_t ticks = 0;
  for (uint64_t i = 0; i < updates.n; ++i) ticks += updates.ticks[i];
  unsent_ -= std::min(unsent_, ticks);
}

uint64_t DeviceTable::Lost() {
  if (counters != nullptr) counters->lost_ticks += unsent_;
  return std::exchange(unsent_, 0);
}

void DeviceTable::Discard(uint64_t ticks) {
  // Ticks of a full drop were counted when it was requested.
  ticks = std::min(ticks, unsent_);
  unsent_ -= ticks;
  if (counters != nullptr) counters->discarded_ticks += ticks;
}

}  // namespace het
