// The embedded parameter server: all partitions in this process.
//
// It has two interfaces. Handle() takes the same frames as a remote partition, so that caches and tests run
// the whole protocol. WithPartition() gives direct access, for tables whose rows are used in place without
// copies (step.h). Limits are enforced by sweeps within a push to the table: a table without training does
// not grow, and nothing runs in the background.
//
// Concurrency: one mutex for each partition, held during one Handle or one WithPartition; all methods are
// thread-safe. No method takes two partitions' mutexes at once.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "het_tf/core/store/partition.h"

namespace het {

// Returns a random number that is unique among processes: for incarnations, epochs and client ids.
uint64_t RandomId();
// For tests: from now on RandomId depends only on the seed and the number of calls. 0: random again.
void FixRandomIds(uint64_t seed);

class LocalService {
 public:
  static constexpr uint32_t kDefaultPartitions = 16;

  explicit LocalService(uint32_t partitions = kDefaultPartitions, uint64_t hash_seed = 0,
                        TimeFn time = UnixTime);

  uint32_t partitions() const { return static_cast<uint32_t>(slots_.size()); }
  uint64_t hash_seed() const { return hash_seed_; }
  // Seconds since 1970: the time of the store's rows.
  uint32_t Now() const { return time_(); }
  PartitionId id(uint32_t index) const { return {index, partitions(), hash_seed_}; }

  // Repeating it with an equal spec changes at most its limits.
  Status CreateTable(const Schema& schema);
  void DropTable(uint64_t table);
  // Removes all rows; caches notice.
  void ClearTable(uint64_t table);

  // Answers a frame; each part goes to its partition.
  void Handle(Span<const uint8_t> frame, Bytes* reply);
  // Answers one part.
  void HandlePart(Request* request, ReplyWriter* replies);

  // Removes rows past a limit from the next partition in turn, which may get no more pushes. Affects all
  // tables: call only when no row numbers must hold.
  void SweepNext();

  template <typename Fn>
  auto WithPartition(uint32_t index, Fn fn) {
    Slot& slot = *slots_[index];
    std::lock_guard<std::mutex> lock(slot.mutex);
    return fn(*slot.partition);
  }

 private:
  struct Slot {
    std::mutex mutex;
    std::unique_ptr<Partition> partition;
  };

  uint64_t hash_seed_;
  TimeFn time_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::atomic<uint32_t> swept_{0};  // number of calls of SweepNext
};

}  // namespace het
