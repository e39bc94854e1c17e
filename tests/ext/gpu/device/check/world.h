// Random tables, a store, and a schedule of calls to both libraries: every answer is compared, and checked
// against the ledger. A function of (seed, round, size).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/ext/gpu/device/check/compare.h"
#include "tests/ext/gpu/device/check/ledger.h"
#include "tests/ext/gpu/device/check/library.h"
#include "tests/ext/gpu/device/check/side.h"
#include "tests/ext/gpu/device/check/toy_store.h"
#include "tests/testing/random.h"

namespace het::device_check {

struct WorldOptions {
  uint64_t seed = 1;
  uint64_t round = 0;
  double size = 1;  // scale of tables, batches and pools of ids
  uint64_t operations = 60;
};

// Choices of push_every.
inline const std::vector<uint32_t> kPushEvery = {0, 0, 1, 3, 10};

// Counts of events, printed at the end: a schedule without evictions has tested little.
struct Tally {
  uint64_t operations = 0, lookups = 0, keys = 0, wanted = 0, trusted = 0, named = 0, resets = 0, left = 0,
           own_rows = 0, evictions = 0, ticks = 0, due = 0;
  uint64_t due_by_age = 0, held_back_by_age = 0;
  uint64_t victims = 0, taken = 0, discarded = 0, fetched_for_sum = 0, non_finite = 0, refused = 0;
  uint64_t out_of_memory = 0;
};

class World {
 public:
  World(const Library& tested, const Library& reference, const WorldOptions& options, Tally* tally);

  // Throws Different, or std::runtime_error, at the first error.
  void Run();
  // The last operations, newest last.
  std::string Log() const;

 private:
  struct Table {
    std::string name;
    HetDevTableConfig config = {};
    std::vector<int64_t> pool;
    std::vector<double> popularity;  // cumulated
    bool exact;                      // SGD on whole numbers: values are known
    bool shared;                     // other workers update its rows
    int64_t pull_bound, push_bound;
    uint32_t push_every;
    float learning_rate;
    bool subscribes;
    // Of each partition: whether it has answered since the training lookup before, and the clocks of rows
    // at its newest answer.
    std::vector<uint8_t> answered;
    std::unordered_map<int64_t, int64_t> clocks;
    std::unique_ptr<ToyStore> store;
    std::unique_ptr<Ledger> ledger;
  };
  struct Slot {
    bool outstanding = false;
    bool own_rows = false;  // the call holds rows that are not in the cache
    bool stale = false;     // its own rows are too old
    bool mixed = false;     // its rows are from before and after another step
    bool has_ids = false;   // the call has looked up
    bool late = false;      // its rows are compared when it is applied
    Step step;
  };

  // world_tables.cc: the tables, and random inputs.
  void MakeTables();
  void RefuseBadTables();
  std::vector<int64_t> DrawPool();
  int64_t DrawKey(const Table& table);
  Step DrawStep();
  void DrawGradients(Step* step, bool* broken);
  float DrawGradient(const Table& table, int kind);

  // world_steps.cc
  void TrainLookup();
  void ReadOnly();
  void Finish(size_t slot);
  void FinishUnseen();
  void Abandon(size_t slot);
  Reply LookupBoth(size_t slot, bool training);
  void InstallBoth(size_t slot, const std::vector<Wanted>& wanted);
  // Whether the answer about the row, which leaves the worker with this base, subscribes to it.
  bool Subscribes(size_t slot, const Wanted& row, int64_t base);
  void InstallOnce(size_t slot, const std::vector<Answer>& answers);
  void RefuseBadAnswers(size_t slot);
  void GatherBoth(size_t slot, const std::vector<Wanted>& wanted);
  void CheckRows(size_t slot, const std::vector<Wanted>& left_out);
  // world_apply.cc
  void SumAndTick(size_t slot);
  bool SumBoth(size_t slot, float scale, const std::vector<uint8_t>* active, Reply* summed);
  void TickBoth(size_t slot, float scale, const std::vector<uint8_t>* active, const Reply& summed);
  void Repin(Step* step) const;

  // world_tables.cc
  void Take();
  void TakeAll(size_t table);
  void Forget();
  void ForgetKeys();
  void OthersPush();
  uint32_t PartitionOf(const Table& table, int64_t key) const;
  // Some or all partitions of the table tell which rows have moved.
  void Notify(size_t table);
  void EndSubscriptions();
  void CheckTrusted(const Use& use, int64_t key);
  void LookAtRows(size_t count);
  void CheckStates();

  void Note(const std::string& line);
  // The store gets updates that left the cache, and the ledger compares them.
  void Deliver(size_t table, const Updates& updates, const std::string& what);
  void DeliverAll(const Step& step, const Reply& reply, const std::string& what);
  // Calls fn(side) on both. Sometimes an allocation of the tested one fails first; then nothing may have
  // changed, and the call is repeated.
  template <typename Fn>
  void Both(const std::string& what, Fn fn, Reply* tested, Reply* reference);
  void ExpectUntouched();
  // Makes rows of calls other than `slot` too old.
  void AgeOthers(size_t slot);
  // Ends a step first if all slots are outstanding.
  size_t FreeSlot();
  std::vector<size_t> Outstanding() const;

  WorldOptions options_;
  Tally* tally_;
  het::testing::Random random_;
  Side tested_, reference_;
  std::vector<Table> tables_;
  std::vector<Slot> slots_;
  uint64_t stamp_;
  size_t most_outstanding_;  // steps
  uint64_t looks_ = 0;       // calls for ExpectUntouched, each of which invalidates a sum
  double fail_allocations_ = 0;
  bool wild_ = false;  // gradients at the edge of float32
  std::deque<std::string> log_;
};

template <typename Fn>
void World::Both(const std::string& what, Fn fn, Reply* tested, Reply* reference) {
  if (random_.Chance(fail_allocations_)) {
    const uint64_t n = 1 + random_.Below(4);
    tested_.FailAllocation(n);
    *tested = fn(&tested_);
    tested_.FailAllocation(0);
    if (tested->code == HET_DEV_OUT_OF_MEMORY || tested->code == HET_DEV_OUT_OF_HOST_MEMORY) {
      ++tally_->out_of_memory;
      Note(what + ": allocation " + std::to_string(n) + " fails");
      Expect(!tested->error.empty(), what + " runs out of memory without a message");
      ExpectUntouched();
      *tested = fn(&tested_);
    }
  } else {
    *tested = fn(&tested_);
  }
  *reference = fn(&reference_);
  ++tally_->operations;
  ExpectSameCode(*tested, *reference, what);
}

}  // namespace het::device_check
