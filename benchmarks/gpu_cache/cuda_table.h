// A table of the cache on a device, filled as a benchmark needs it, and the calls of a step on it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "benchmarks/gpu_cache/cuda_library.h"
#include "het_tf/core/base/hash.h"

namespace het::bench {

[[noreturn]] inline void Die(const Library& library, const char* what) {
  std::fprintf(stderr, "cuda_cache: %s: %s\n", what, library.Error());
  std::exit(1);
}

inline void Must(const Library& library, int code, const char* what) {
  if (code != HET_DEV_OK) Die(library, what);
}

// Memory of the device.
class Buffer {
 public:
  Buffer(const Library& library, HetDevContext* context, size_t bytes)
      : library_(library), context_(context) {
    Must(library, library.Malloc(context, bytes, &memory_), "memory of the device");
  }
  ~Buffer() { library_.Free(context_, memory_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  template <typename T>
  T* as() const {
    return static_cast<T*>(memory_);
  }
  template <typename T>
  void Put(const std::vector<T>& values) {
    Must(library_, library_.CopyIn(context_, memory_, values.data(), values.size() * sizeof(T), nullptr),
         "copy");
  }

 private:
  const Library& library_;
  HetDevContext* context_;
  void* memory_ = nullptr;
};

// A table with what one call of it needs.
class Table {
 public:
  Table(const Library& library, HetDevContext* context, uint32_t dim, uint64_t rows, uint64_t batch,
        bool keep_updates, int optimizer = HET_DEV_ROW_WISE_ADAGRAD)
      : library_(library),
        context_(context),
        dim_(dim),
        row_floats_(Config(dim, rows, keep_updates, optimizer).row_floats),
        batch_(batch) {
    HetDevTableConfig config = Config(dim, rows, keep_updates, optimizer);
    Must(library, library.CreateTable(context, &config, &table_), "CreateTable");
    Must(library, library.CreateCall(context, &call_), "CreateCall");
    const int64_t push_bound = keep_updates ? INT64_MAX : 0;
    use_.table = table_;
    use_.stamp = use_.pinned_from = 1;
    use_.push_bound = push_bound;
    use_.learning_rate = 0.01f;
  }
  ~Table() {
    library_.DestroyCall(context_, call_);
    library_.DestroyTable(context_, table_);
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  static HetDevTableConfig Config(uint32_t dim, uint64_t rows, bool keep_updates,
                                  int optimizer = HET_DEV_ROW_WISE_ADAGRAD) {
    HetDevTableConfig config = {};
    config.name = "bench";
    config.capacity = rows;
    config.dim = dim;
    config.row_floats = optimizer == HET_DEV_SGD ? dim : dim + 1;
    config.optimizer = optimizer;
    config.params[0] = 0.1;
    config.params[1] = 1e-7;
    config.params[2] = 1;
    config.keep_updates = keep_updates;
    config.hash_seed = 1;
    config.partitions = 64;
    return config;
  }

  HetDevTableState State() {
    HetDevTableState state = {};
    Must(library_, library_.State(context_, table_, nullptr, &state), "State");
    return state;
  }

  // Lets rows of new keys in until `load` of the capacity is taken. Full means all but a thousandth.
  void Fill(double load) {
    const HetDevTableState state = State();
    const double least = load < 1 ? load : 0.999;
    while (static_cast<double>(State().rows) < least * static_cast<double>(state.capacity)) {
      const double missing = load * static_cast<double>(state.capacity) - static_cast<double>(State().rows);
      const uint64_t n =
          std::min<uint64_t>(batch_, std::max<uint64_t>(1 + static_cast<uint64_t>(missing), batch_ / 64));
      const std::vector<int64_t> keys = NewKeys(n);
      Look(keys);
      Enter(keys);
      known_.insert(known_.end(), keys.begin(), keys.end());
    }
    Resident();
  }
  const std::vector<int64_t>& resident() const { return resident_; }

  std::vector<int64_t> NewKeys(uint64_t n) {
    std::vector<int64_t> keys(n);
    for (int64_t& key : keys) key = static_cast<int64_t>(Mix64(next_++));
    return keys;
  }
  // A training lookup that gives no rows.
  void Look(const std::vector<int64_t>& keys) {
    HetDevFeature feature = {};
    feature.n = keys.size();
    feature.ids = keys.data();
    Lookup({feature}, true);
  }
  HetDevWanted Lookup(const std::vector<HetDevFeature>& features, bool training) {
    use_.stamp = use_.pinned_from = ++stamp_;
    features_ = features;
    const HetDevBatch batch = Batch();
    HetDevWanted wanted = {};
    Must(library_, library_.Lookup(context_, call_, &batch, training, nullptr, &wanted), "Lookup");
    return wanted;
  }
  // How many left dirty.
  uint64_t Enter(const std::vector<int64_t>& keys) {
    void* rows = nullptr;
    Must(library_, library_.Stage(context_, keys.size() * row_floats_ * sizeof(float), &rows), "Stage");
    if (rows != staged_) {  // the rows' values do not matter, but pages that nobody has written do
      std::fill_n(static_cast<float*>(rows), keys.size() * row_floats_, 0.5f);
      staged_ = keys.size() == batch_ ? rows : nullptr;
    }
    bases_.assign(keys.size(), 0);
    for (size_t i = 0; ages_ && i < keys.size(); ++i) bases_[i] = keys[i] & 127;
    admit_.assign(keys.size(), 1);
    const HetDevAnswer answer = {0, keys.size(), keys.data(), bases_.data(), admit_.data(),
                                 static_cast<float*>(rows),
                                 // Rows enter the cache or are subscribed to: both are ones.
                                 use_.trusted == nullptr ? nullptr : admit_.data()};
    const HetDevBatch batch = Batch();
    HetDevExport victims = {};
    Must(library_, library_.Install(context_, call_, &batch, &answer, 1, nullptr, &victims), "Install");
    return victims.n == 0 ? 0 : victims.of[0].n;
  }
  // Writes the rows that the last lookup left out.
  void Gather() {
    const HetDevBatch batch = Batch();
    Must(library_, library_.Gather(context_, call_, &batch, nullptr), "Gather");
  }
  // From now on rows that enter are from 0 to 127 ticks old, and updates are due by age / every, most `most`
  // ticks.
  void SetBounds(int64_t most, uint32_t every) {
    ages_ = true;
    use_.push_bound = most;
    use_.push_every = every;
  }
  // Whether the store checks the rows of later lookups.
  void SetCheck(bool check) { use_.check = check; }
  // From now on rows that enter are subscribed, and need no check until Moved names them.
  void SetSubscribes() {
    use_.check = 1;
    use_.trusted = trusted_.data();
  }
  void Moved(const std::vector<int64_t>& keys) {
    uint64_t discarded = 0;
    Must(library_,
         library_.ForgetKeys(context_, table_, HET_DEV_MOVED, keys.data(), keys.size(), nullptr, &discarded),
         "ForgetKeys");
  }
  const HetDevUse& use() const { return use_; }
  // Of what was looked up last. How many updates were due; `all_stay`: it must be none.
  uint64_t Apply(const std::vector<HetDevFeature>& features, bool all_stay = true) {
    features_ = features;
    const HetDevBatch batch = Batch();
    HetDevWanted wanted = {};
    HetDevSummed summed = {};
    Must(library_, library_.Sum(context_, call_, &batch, 1, nullptr, nullptr, &wanted, &summed), "Sum");
    HetDevExport due = {};
    if (wanted.n == 0) Must(library_, library_.Tick(context_, call_, &batch, nullptr, &due), "Tick");
    if (wanted.n > 0 || (all_stay && due.n > 0)) {
      std::fprintf(stderr, "cuda_cache: a step that should be all hits is not\n");
      std::exit(1);
    }
    return due.n == 0 ? 0 : due.of[0].n;
  }
  void Reset() { library_.ResetCall(context_, call_); }

 private:
  HetDevBatch Batch() const { return {&use_, 1, features_.data(), static_cast<uint32_t>(features_.size())}; }

  // Which of the keys that ever entered are still here.
  void Resident() {
    resident_.clear();
    for (size_t begin = 0; begin < known_.size(); begin += batch_) {
      const size_t end = std::min(known_.size(), begin + batch_);
      const std::vector<int64_t> keys(known_.begin() + static_cast<std::ptrdiff_t>(begin),
                                      known_.begin() + static_cast<std::ptrdiff_t>(end));
      HetDevFeature feature = {};
      feature.n = keys.size();
      feature.ids = keys.data();
      const HetDevWanted wanted = Lookup({feature}, false);
      std::vector<int64_t> absent(wanted.keys, wanted.keys + wanted.n);
      std::sort(absent.begin(), absent.end());
      for (const int64_t key : keys) {
        if (!std::binary_search(absent.begin(), absent.end(), key)) resident_.push_back(key);
      }
    }
    Reset();
    known_ = resident_;
    std::mt19937_64 random(3);
    std::shuffle(resident_.begin(), resident_.end(), random);
  }

  const Library& library_;
  HetDevContext* context_;
  uint32_t dim_;
  uint32_t row_floats_;
  uint64_t batch_;
  HetDevTable* table_ = nullptr;
  HetDevCall* call_ = nullptr;
  HetDevUse use_ = {};
  std::vector<HetDevFeature> features_;
  bool ages_ = false;
  uint64_t stamp_ = 0;
  uint64_t next_ = 1;
  std::vector<int64_t> known_, resident_;
  std::vector<int64_t> bases_;
  std::vector<uint8_t> admit_;
  const std::vector<uint8_t> trusted_ = std::vector<uint8_t>(64, 1);
  void* staged_ = nullptr;
};

}  // namespace het::bench
