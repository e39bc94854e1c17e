// A small world for protocol tests: a store, workers with caches behind faulty networks, and an oracle that
// knows all requests.
//
// Counting tables make the state readable. With optimizer "sgd", learning rate 1 and dim = workers + 1, the
// gradient of worker w has 1 in coordinate w and a random integer in the last. So coordinate v of any copy of
// a row is exactly the number of worker v's ticks in it, and all values are small integers, bit for bit.
//
// With another optimizer and one worker the oracle keeps a mirror: the same ticks on a local row.
//
// Checks append errors to errors(); an empty list means success.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "het_tf/core/client/client.h"
#include "het_tf/core/store/local_service.h"
#include "tests/testing/random.h"
#include "tests/testing/test_step.h"
#include "tests/testing/world/device_cache.h"
#include "tests/testing/world/faulty_transport.h"
#include "tests/testing/world/stream_worker.h"
#include "tests/testing/world/world_config.h"

namespace het::testing {

class World {
 public:
  explicit World(const WorldConfig& config);
  ~World();

  uint32_t now = 1700000000;  // the store's time in seconds

  LocalService& service() { return service_; }
  const WorldConfig& config() const { return config_; }
  const Schema& schema(size_t table) const { return schemas_[table]; }
  FaultyTransport& transport(size_t w) { return *workers_[w].transport; }
  Client& client(size_t w) { return *workers_[w].client; }
  // The worker's engine, in a world whose workers read a stream (stream.h); else null.
  StreamWorker* process(size_t w) { return workers_[w].process.get(); }
  // Null: the worker's caches are in the client's memory.
  DeviceCache* device(size_t w) { return workers_[w].device.get(); }
  Random& random() { return random_; }
  const std::vector<std::string>& errors() const { return errors_; }
  std::string FirstError() const;
  bool counting() const { return config_.optimizer == "sgd"; }
  bool lossy() const { return lossy_; }
  bool keeps() const { return config_.client.durability != Durability::kApplied; }
  float learning_rate() const { return counting() ? 1.0f : 0.1f; }

  // --- steps
  std::unique_ptr<TestStep> NewStep(const std::vector<std::vector<Key>>& keys_of_tables);
  uint64_t NewToken() { return ++last_token_; }

  // A step whose lookup began early must be a training step.
  Status Read(size_t w, TestStep* step, bool training = true);
  // Not for a worker whose caches are on a device.
  void ReadEarly(size_t w, TestStep* step);
  // The lookup of a read that began early never comes.
  void EndLookup(size_t w, TestStep* step);
  // A read that other calls may overtake until FinishRead.
  std::unique_ptr<ReadOp> BeginRead(size_t w, TestStep* step, bool training);
  Status FinishRead(size_t w, ReadOp* op, TestStep* step);
  // Gives every touched key a tick. `others`: with rows on demand.
  Status Write(size_t w, TestStep* step, const OthersUse* others = nullptr);
  Status Flush(size_t w);

  // --- steps of a stream
  // Draws gradients for all keys of a step of worker w.
  void FillGradients(size_t w, TestStep* step);
  // Calls write(), which ticks the keys of the step with its sums, and notes the ticks if there were any.
  template <typename Fn>
  void Written(size_t w, TestStep* step, Fn write);
  // Makes sums that worker w applies count as ticks of its own. Returns a step with them.
  TestStep CountAsOwn(size_t w, MergedSums* sums);
  // After a read between steps of all workers: the row has all ticks of this worker, and of the others all
  // but those that the bounds allow.
  void CheckLockStep(size_t w, TestStep* step, bool exact);
  // The largest number of unapplied ticks of a row.
  uint64_t MostUnapplied(size_t w);

  // --- changes of the store
  // What operators have changed in a row, added up.
  struct Operated {
    int64_t age = 0;         // ticks
    std::vector<float> row;  // the sums of its value
    bool operator==(const Operated& o) const { return age == o.age && row == o.row; }
  };
  // A partition, and what operators have changed in it.
  struct Saved {
    Bytes bytes;
    std::map<TableKey, Operated> operated;
  };
  // Calls change(), which changes rows of counting tables other than by pushes. From now on the oracle
  // expects the ticks that are left. `replaces`: whole tables, of which clients discard unsent ticks.
  void Operate(const std::function<void()>& change, bool replaces = false);
  // Lets the store handle a frame, whose pushes may sweep rows that are one too many (TableLimits::max_rows).
  void HandleAndSweep(const std::function<void()>& handle);

  // The row may come to exist.
  void Know(const TableKey& key);

  Saved Snapshot(uint32_t p);
  // Restarts the partition from a state; connections close, or (with a proxy in between) do not.
  void Restart(uint32_t p, const Saved& state, bool close = true);
  // The only replica, whose state is that of the last AskReplicas, takes over.
  void Promote(uint32_t p) { Restart(p, replica_[p]); }
  bool replica_stands_still = false;

  // --- invariants

  // I5, at any moment: every tick is exactly once at the server, in an unapplied frame, queued or in a line.
  void CheckConservation();
  // A worker that has had time to send has no tick that has been unsent for push_max_age.
  void CheckAges(size_t w);
  // After a complete flush: the server holds every tick and every change.
  void CheckDrained();
  // Every worker has counted what it did and sent. After a complete flush.
  void CheckCounters();
  // Contacts every partition from every worker, which learns of restarts, then flushes.
  Status Drain();

  uint64_t UnappliedTicks(size_t w, const TableKey& key);
  int64_t ServerClock(const TableKey& key);
  int64_t ServerAge(const TableKey& key) { return AgeOf(ServerClock(key)); }
  std::vector<float> ServerRow(const TableKey& key);
  // Ticks of worker w that neither an operator has removed nor the worker discarded.
  int64_t Issued(size_t w, const TableKey& key);
  uint64_t Sum(uint64_t Counters::*counter);
  // Call at the end of a read through BeginRead and Progress.
  void CheckRead(size_t w, TestStep* step);
  void Error(const std::string& what, size_t w, const TableKey& key);
  // The test's own calls succeed.
  static void Require(const Status& status);

 private:
  struct Worker {
    FaultyTransport* transport;
    Client* client;
    // What owns them: the process, or the next two.
    std::unique_ptr<StreamWorker> process;
    std::unique_ptr<FaultyTransport> own_transport;
    std::unique_ptr<Client> own_client;
    std::unique_ptr<DeviceCache> device;
  };

  void LimitSubscriptions(uint32_t p);
  // Gives rows ticks of the first worker before the world begins, in its own coordinate.
  void AgeRows();
  void AddWorker();
  uint64_t Ticks(size_t w);
  const Schema& SchemaOf(uint64_t id) const;
  // Calls fn(shard, row) if the store has the row.
  template <typename Fn>
  void OnServer(const TableKey& key, Fn fn);

  void Issue(size_t w, const TableKey& key, const std::vector<float>& g);
  float* Mirror(const TableKey& key);
  void Compare(const char* what, const TableKey& key, const float* value, float tolerance);

  // Tables that the worker has, and has not removed.
  std::vector<Schema> Tables(size_t w);
  // The partition that has the key.
  uint32_t PartitionOfKey(const TableKey& key);
  // Ticks of worker w that the store has not applied, by row.
  std::map<TableKey, int64_t> Pending(size_t w);
  // All ticks of a row, by worker: at the store, and on their way there. `pending`: of each worker.
  using PendingOfAll = std::vector<std::map<TableKey, int64_t>>;
  PendingOfAll PendingTicks();
  // What the oracle compares before and after a change of the store.
  struct State {
    std::vector<int64_t> found;
    std::vector<float> row;
    int64_t age;
    bool operator==(const State& o) const { return found == o.found && row == o.row && age == o.age; }
  };
  std::map<TableKey, State> States();
  // The change has made a row of `was` one of `now`.
  void NoteChange(const TableKey& key, const State& was, const State& now);
  std::vector<int64_t> Found(const TableKey& key, const PendingOfAll& pending);
  // Takes over what clients have discarded since the last call.
  void NoteDiscards();
  // Whether a read of the worker that has begun after `changes` changes cannot see a row's former content. A
  // lookup that began before and has not ended may bring it, while the read's check is about the copy before.
  bool Settled(size_t w, const TableKey& key, uint64_t changes);

  // The clock of worker w's copy of a row; 0: no copy.
  Clock WorkerClock(size_t w, const TableKey& key);

  // Ticks that worker w may have held back at its last write of the row.
  int64_t HeldBack(size_t w, const TableKey& key);

  using TableOfWorker = std::pair<size_t, uint64_t>;
  TestStep::Begin Now(const TableKey& key);
  // The row's state when the newest training read of the table began.
  TestStep::Begin Before(const TableOfWorker& table, Key key);
  void NoteBegin(TestStep* step);
  // Begins a training read. With notified checks I2 and I3 count from the begin of the read before.
  void BeginTraining(size_t w, TestStep* step);

  // Checks I2, I3 and I4 for one value that a read has returned.
  void CheckValue(size_t w, const TableKey& key, const float* value, const TestStep& step);
  // before[key]: WorkerClock at the begin of the write.
  void CheckWrite(size_t w, TestStep* step, const std::map<TableKey, Clock>& before);

  const WorldConfig config_;
  LocalService service_;
  Random random_;
  std::vector<Schema> schemas_;
  std::vector<Worker> workers_;
  // Rows with ticks, in their state when the newest training read of the table began.
  std::map<TableOfWorker, std::map<Key, TestStep::Begin>> before_;
  std::map<TableOfWorker, uint64_t> before_changes_;  // changes_ then
  uint64_t last_token_ = 0;
  uint64_t restarts_ = 0;                 // number of partitions' restarts
  bool replaced_ = false;                 // tables were cleared, made again or loaded
  uint64_t changes_ = 0;                  // number of changes by operators, restarts and discards
  std::map<TableKey, uint64_t> changed_;  // the number of the row's last one
  std::map<size_t, std::map<const TestStep*, uint64_t>> under_way_;  // changes_ when a worker's lookups began
  std::map<TableKey, Operated> operated_;
  std::set<TableKey> inexact_;  // rows of which ticks were discarded: the sum of the others is not known
  std::map<TableOfWorker, uint64_t> discarded_;  // ticks, as noted
  std::map<TableOfWorker, int64_t> reported_;    // of these: still to be found missing
  std::map<TableOfWorker, uint64_t> read_;       // unique keys of reads
  // By worker: ticks that it will send again after a load, unless it still learns that they were applied.
  std::map<std::pair<size_t, TableKey>, int64_t> unsure_;
  std::map<TableOfWorker, std::deque<uint64_t>>
      reads_at_;                                      // changes_ at its last training reads, newest last
  bool lossy_ = false;                                // a failover lost acknowledged frames
  bool blocked_ = false;                              // a write gave up: its ticks may be past the push bound
  std::map<TableKey, std::vector<uint64_t>> issued_;  // by worker
  std::map<TableKey, std::map<size_t, std::vector<double>>> ticked_;  // by worker: when, at the latest
  std::map<TableKey, std::map<size_t, int64_t>> held_back_;  // by worker: its push bound at its last write
  std::map<TableKey, std::vector<float>> sums_;              // of gradients
  std::map<TableKey, std::vector<float>> mirror_;
  std::map<uint32_t, Saved> replica_;  // the replica's partitions
  std::vector<std::string> errors_;
};

template <typename Fn>
void World::Written(size_t w, TestStep* step, Fn write) {
  const uint64_t before = Ticks(w);
  step->ForEachSum([&](const TableKey& key, Span<float>, bool) { Know(key); });
  if (!write().ok()) blocked_ = true;
  if (Ticks(w) == before) return NoteDiscards();
  step->ForEachSum([&](const TableKey& key, Span<float> g, bool) {
    Issue(w, key, std::vector<float>(g.begin(), g.end()));
  });
  NoteDiscards();
}

}  // namespace het::testing
