// The embedded parameter server: all partitions in this process.
//
// It has two faces. Handle() takes the same frames as a remote partition does, so caches and tests
// run the whole protocol against it. WithPartition() gives direct access, for the case in which the
// partition *is* the store and nothing is copied (step.h). Limits are kept by sweeps of the table
// that is being pushed to, within the push: a table that nobody trains does not grow, and nothing
// runs in the background.
//
// Concurrency: one mutex a partition, held for one Handle or one WithPartition; all methods are
// thread-safe. No method takes two partitions' mutexes at once.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "het_tf/core/store/partition.h"

namespace het {

// A random number that no other process has drawn: for incarnations, epochs and client ids.
uint64_t RandomId();
// Tests: from now on RandomId is a function of the seed and of the calls so far. 0: random again.
void FixRandomIds(uint64_t seed);

class LocalService {
 public:
  static constexpr uint32_t kDefaultPartitions = 16;

  explicit LocalService(uint32_t partitions = kDefaultPartitions, uint64_t hash_seed = 0,
                        TimeFn time = UnixTime);

  uint32_t partitions() const { return static_cast<uint32_t>(slots_.size()); }
  uint64_t hash_seed() const { return hash_seed_; }
  // Seconds since 1970: this is where the store's rows are owned.
  uint32_t Now() const { return time_(); }
  PartitionId id(uint32_t index) const { return {index, partitions(), hash_seed_}; }

  // A second creation with an equal spec changes its limits at most.
  Status CreateTable(const Schema& schema);
  void DropTable(uint64_t table);
  // All rows go and caches notice.
  void ClearTable(uint64_t table);

  // Answers a frame; each part goes to the partition that it names.
  void Handle(Span<const uint8_t> frame, Bytes* reply);
  // Answers one part.
  void HandlePart(Request* request, ReplyWriter* replies);

  // Removes rows that have passed a limit from the next partition in turn, since nobody may push to it any
  // more. Of all tables: only when no row number of any has to hold.
  void SweepNext();

  template <typename Fn>
  auto WithPartition(uint32_t index, Fn fn) {
    Slot& slot = *slots_[index];
    std::lock_guard<std::mutex> lock(slot.mutex);
    return fn(*slot.partition);
  }

  // Replaces a partition by what `bytes` (Partition::Serialize) hold, under a new incarnation, as a
  // restart does.
  Status Revive(uint32_t partition, Span<const uint8_t> bytes);

  size_t Rows(uint64_t table);
  size_t TableBytes(uint64_t table);

 private:
  struct Slot {
    std::mutex mutex;
    std::unique_ptr<Partition> partition;
  };
  uint64_t hash_seed_;
  TimeFn time_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::atomic<uint32_t> swept_{0};  // calls of SweepNext
};

}  // namespace het
