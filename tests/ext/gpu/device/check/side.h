// One of the two libraries in use: its context, tables and calls, and its answers, copied to the host.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/ext/gpu/device/check/library.h"
#include "tests/testing/random.h"

namespace het::device_check {

// A step in the tester's form: all in host memory.
struct Use {
  uint32_t table;  // its index in the world
  bool check;
  uint64_t stamp;
  uint64_t pinned_from;
  int64_t push_bound;
  uint32_t push_every;
  float learning_rate;
  std::vector<uint8_t> trusted = {};  // empty: no partition is
};
struct Feature {
  uint32_t use;
  std::vector<int64_t> ids;
  bool wants_rows;
  bool has_padding;
  int64_t padding_id;
  std::vector<float> gradients;  // ids * dim
};
struct Step {
  std::vector<Use> uses;
  std::vector<Feature> features;
  bool unaligned = false;  // buffers at odd multiples of their element's size
};

struct Answer {
  uint32_t use;
  std::vector<int64_t> keys;
  std::vector<int64_t> bases;
  std::vector<uint8_t> admit;
  std::vector<float> rows;  // empty: the copies stay, and `bases` and `admit` are empty too
  std::vector<uint8_t> subscribed;
};

// A reply. `code` and `error` are always set; other fields if the function has them.
struct Wanted {
  uint32_t use;
  int64_t key;
  int64_t base;
};
struct Updates {
  uint32_t use;
  std::vector<int64_t> keys;
  std::vector<uint32_t> ticks;
  std::vector<int64_t> clocks;
  std::vector<float> floats;
};
struct Reply {
  int code = HET_DEV_OK;
  std::string error;
  std::vector<Wanted> wanted;  // by (use, key)
  std::vector<uint64_t> reads, hits;
  std::vector<Updates> updates;                    // by use
  std::vector<std::pair<uint32_t, int64_t>> left;  // by (use, key)
  uint64_t uniques = 0, due = 0, overdue = 0, discarded = 0;
  std::vector<uint64_t> ticks;
  std::vector<uint8_t> active;
  bool non_finite = false;
  uint32_t bad_use = 0;
  int64_t bad_key = 0;
  HetDevTableState state = {};
  HetDevRowState row = {};
  std::vector<float> value, update;
};

class Side {
 public:
  // `calls`: limit on outstanding steps. `seed` draws each call's stream. Throws std::runtime_error if there
  // is no context.
  Side(const Library& library, size_t calls, uint64_t seed);
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  const Library& library() const { return library_; }
  size_t tables() const { return tables_.size(); }

  Reply CreateTable(const HetDevTableConfig& config);
  // A call's inputs are copied in two parts, so that allocations fail in the library and not in the test.
  // Copies the step's ids to other addresses, and makes room for rows on the device.
  void BringIds(size_t call, const Step& step);
  // Copies gradients to the device. `ids`: gives the ids too, which a call that has looked up does not need.
  void BringGradients(size_t call, const Step& step, bool ids);
  Reply Lookup(size_t call, bool training);
  Reply Install(size_t call, const std::vector<Answer>& answers);
  Reply Gather(size_t call);
  // The current rows of feature f; unwritten floats are NaN with this pattern.
  static constexpr uint32_t kUnwritten = 0x7fc0abcd;
  std::vector<float> Rows(size_t call, size_t feature);
  Reply Sum(size_t call, float scale, const uint8_t* active);
  Reply Tick(size_t call);
  void Reset(size_t call);

  Reply Take(size_t table, uint64_t max_rows);
  Reply Forget(size_t table, int what, const std::vector<uint8_t>* partitions);
  Reply ForgetKeys(size_t table, int what, const std::vector<int64_t>& keys);
  Reply Inspect(size_t table, int64_t key);
  Reply State(size_t table);
  void FailAllocation(uint64_t n) { library_.FailAllocation(context_, n); }

 private:
  struct Buffer {
    void* memory = nullptr;
    size_t bytes = 0;
  };
  struct Call {
    HetDevCall* call = nullptr;
    std::vector<std::vector<int64_t>> ids;  // of each feature
    Buffer rows, gradients;
    std::vector<HetDevUse> uses;
    std::vector<std::vector<uint8_t>> trusted;  // of each use
    std::vector<HetDevFeature> features;
    HetDevBatch batch = {};
    std::vector<size_t> floats;  // of rows of each feature
  };

  void Must(int code, const char* what) const;
  HetDevStream AnyStream() { return random_.Pick(streams_); }
  void Ensure(Buffer* buffer, size_t bytes);
  void Describe(size_t call, const Step& step);
  Reply Answered(int code) const;
  void CopyWanted(const HetDevWanted& wanted, size_t uses, Reply* reply) const;
  void CopyUpdates(const HetDevExport& from, const std::vector<size_t>& row_floats, Reply* reply) const;
  std::vector<size_t> RowFloatsOf(const Call& call) const;

  const Library& library_;
  HetDevContext* context_ = nullptr;
  std::vector<HetDevStream> streams_;
  het::testing::Random random_;
  std::vector<HetDevTable*> tables_;
  std::vector<HetDevTableConfig> configs_;
  std::vector<Call> calls_;
  std::vector<std::vector<size_t>> use_tables_;  // of each call: the table of each use
};

}  // namespace het::device_check
