// A cache on a device as simple as can be, for tests of what the client does for one: rows in a map, and an
// optimizer. It takes a client's reads and writes (CachedRead, CachedWrite) and drives the client as the
// engine does: ReadForDevice, PushForDevice, WaitForDevice.
//
// It leaves nothing out that makes this hard: who goes is drawn by lot, also of rows whose gradient is still
// to come; a key that may not enter has its row with the call; what DeviceLines asks for is done at once or
// put off, by lot. Reads may overlap each other and writes.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "het_tf/core/client/client.h"
#include "tests/cpp/testing/random.h"
#include "tests/cpp/testing/test_step.h"

namespace het::testing {

class ToyDevice {
 public:
  struct Row {
    std::vector<float> x, update;
    Clock base = 0;
    uint32_t ticks = 0;  // unsent
    bool invalid = false;
    uint64_t stamp = 0;  // of the last read or write that used it
  };

  ToyDevice(Client* client, const PartitionId& store, uint64_t seed);
  ~ToyDevice();
  ToyDevice(const ToyDevice&) = delete;
  ToyDevice& operator=(const ToyDevice&) = delete;

  Status AddTable(const Schema& schema, const CacheConfig& config);

  // --- as Client's
  Status Read(CachedRead* read, uint64_t token);
  std::unique_ptr<ReadOp> BeginRead(CachedRead* read, uint64_t token);
  Status FinishRead(ReadOp* op);
  Status Write(CachedWrite* write, uint64_t token);
  Status Flush();
  uint64_t UnappliedTicks(uint64_t table, Key key);

  // --- for tests
  // A row of the cache or, where it has none, of the call; or null.
  Row* Find(const TableKey& key, uint64_t call);
  std::map<Key, Row>& rows(uint64_t table);
  size_t told() const { return told_; }  // by DeviceLines
  void DoWhatWasPutOff();

 private:
  struct Table;  // of rows, as the client sees it
  // Rows of a step that did not enter the cache: good while nothing else was applied.
  struct Call {
    uint64_t applied = 0;
    std::map<TableKey, Row> rows;
  };
  struct Asked;  // what a read or a write wants of the store
  struct Updates {
    std::vector<Key> keys;
    std::vector<uint32_t> ticks;
    std::vector<Clock> clocks;
    std::vector<float> updates;
  };
  using Leaving = std::map<uint64_t, Updates>;  // by table

  TableCache* Cache(const Table& table);
  uint32_t PartitionOfKey(Key key) { return PartitionOf(HashKey(key, store_.hash_seed), store_.count); }
  // Now, or later.
  void PutOff(std::function<void()> what);
  // The same, of what takes rows away.
  void Do(std::function<void()> what);
  std::unique_ptr<Asked> LookUp(CachedRead* read, uint64_t token);
  // Makes room for what is wanted.
  DeviceRead* Want(Asked* asked);
  // Fills in the values of a read whose rows have come. What is here no longer, dropped while the read was
  // under way, is read again.
  Status Give(Asked* asked);
  void Install(Asked* asked);
  // Lets any row go that no later step has used.
  bool MakeRoom(Table* table, uint64_t stamp, Leaving* victims);
  void Leave(uint64_t table, Key key, Row* row, Leaving* leaving);
  Status Push(const Leaving& leaving, bool evicted);
  const float* Value(const TableKey& key, Asked* asked);
  static void Require(const Status& status);

  Client* const client_;
  const PartitionId store_;
  Random random_;
  std::map<uint64_t, std::unique_ptr<Table>> tables_;
  std::map<const ReadOp*, std::unique_ptr<Asked>> asked_;
  std::map<uint64_t, Call> calls_;  // by token
  std::deque<std::function<void()>> put_off_;
  uint64_t stamp_ = 0;
  uint64_t applied_ = 0;  // writes
  size_t told_ = 0;
};

}  // namespace het::testing
