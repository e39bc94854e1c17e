// Workers of one store with caches on a device: waiting, and tables that others clear. Views of others:
// protocol/schedules_test.cc.

#include "het_tf/core/client/client.h"
#include "het_tf/core/store/local_store.h"
#include "het_tf/core/store/local_transport.h"
#include "het_tf/core/wire/layout.h"
#include "tests/testing/device/device_engine.h"
#include "tests/testing/lazy_transport.h"

namespace het::testing {
namespace {

using DeviceWorkers = DeviceEngine;

// The table is cleared during a lookup: the store answers with a new epoch.
TEST_F(DeviceWorkers, ClearedTableIsFetchedAgain) {
  for (const auto& [training, pull] :
       {std::pair<bool, int64_t>(true, 0), {false, 0}, {true, kUnbounded}, {false, kUnbounded}}) {
    LocalService service(4, 0);
    std::vector<std::unique_ptr<Engine>> workers;
    for (const char* device : {"gpu", "cpu"}) {
      workers.push_back(std::make_unique<Engine>(device, 1, std::make_unique<LocalStore>(&service),
                                                 std::make_unique<LocalTransport>(&service), ClientConfig()));
      ASSERT_TRUE(workers.back()->tables().Create(SpecOf("t", 2), CacheOf(device, 100, pull, 2)).ok());
    }
    const std::vector<Key> ids = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    ASSERT_TRUE(Train(workers[0].get(), {{"t", ids}}).ok());
    StepOf before(workers[0].get(), {{"t", ids}});
    ASSERT_TRUE(before.Lookup(true).ok());
    ASSERT_EQ(before.rows[0][0], 1);
    ASSERT_TRUE(workers[1]->tables().Clear("t").ok());
    // Rows without a check have been returned before an answer about others shows the change.
    std::vector<Key> more = ids;
    for (Key id = 100; id < 140; ++id) more.push_back(id);
    StepOf after(workers[0].get(), {{"t", more}});
    ASSERT_TRUE(Ok(after.Lookup(training)));
    for (const float value : after.rows[0]) EXPECT_EQ(value, 0);
    ASSERT_TRUE(before.Apply(before.Gradients(-1)).ok());
    EXPECT_EQ(Values(workers[0].get(), "t", {5})[0], 1);
    EXPECT_EQ(CacheStats(workers[0].get(), "t")["discarded_ticks"], 9);
    ASSERT_TRUE(workers[0]->caches().Flush().ok());
    EXPECT_EQ(Values(workers[1].get(), "t", {5})[0], 1);
  }
}

TEST_F(DeviceWorkers, StepEndsWhenDueUpdatesAreApplied) {
  for (const int64_t bound : {int64_t{0}, int64_t{1}, kUnbounded}) {
    LocalService service(8, 0);
    Engine worker("w", 1, std::make_unique<LocalStore>(&service), std::make_unique<LazyTransport>(&service),
                  ClientConfig());
    ASSERT_TRUE(worker.tables().Create(SpecOf("t", 2), CacheOf("gpu", 32, kUnbounded, bound)).ok());
    const std::vector<Key> ids = Range(0, 40);  // 8 stay with the call, and leave with their tick
    LocalStore store(&service);
    const TableSchema& schema = *worker.tables().Find("t").value()->schema;
    ASSERT_TRUE(Train(&worker, {{"t", ids}}).ok());
    // One tick is within the bound of 1: exported updates may be in flight.
    EXPECT_EQ(store.Size(schema).value().rows, bound == 0 ? 40u : 0u) << bound;
    ASSERT_TRUE(Train(&worker, {{"t", ids}}).ok());
    const TableRows rows = store.Scan(schema).value();
    if (bound != kUnbounded) {
      ASSERT_EQ(rows.keys.size(), 40u);
      for (const float value : rows.rows) EXPECT_EQ(value, 2);
    }
    ASSERT_TRUE(worker.caches().Flush().ok());
    EXPECT_EQ(store.Size(schema).value().rows, 40u);
  }
}

// A row's update may leave with the next call. But where the bound was lowered, here by an age that begins
// again, a row has more ticks past it than that allows: the step itself sends them.
TEST_F(DeviceWorkers, AStepSendsTicksFarPastALoweredBound) {
  LocalService service(4, 0);
  Engine worker("w", 1, std::make_unique<LocalStore>(&service), std::make_unique<LocalTransport>(&service),
                ClientConfig());
  ASSERT_TRUE(worker.tables().Create(SpecOf("t", 1), CacheOf("gpu", 32, kUnbounded, Bound(2, 10))).ok());
  LocalStore store(&service);
  const TableSchema& schema = *worker.tables().Find("t").value()->schema;
  const std::vector<Key> ids = {1};
  const float zero = 0;
  const Clock age = (Clock{1} << 20) - 3;
  ASSERT_TRUE(store.Assign(schema, ids, &zero, false, &age).ok());
  const auto applied = [&] { return store.Scan(schema).value().rows.at(0); };
  for (int step = 1; step <= 2; ++step) {
    ASSERT_TRUE(Train(&worker, {{"t", ids}}).ok());
    EXPECT_EQ(applied(), 0) << "an old row may hold back two ticks";
  }
  ASSERT_TRUE(Train(&worker, {{"t", ids}}).ok());
  EXPECT_EQ(applied(), 3) << "a young row none";
  ASSERT_TRUE(Train(&worker, {{"t", ids}}).ok());
  EXPECT_EQ(applied(), 3) << "one tick past the bound leaves with the next call";
  ASSERT_TRUE(worker.caches().Flush().ok());
  EXPECT_EQ(applied(), 4);
}

// Clears a table at the store before the next frame arrives.
class ClearingTransport : public LocalTransport {
 public:
  explicit ClearingTransport(LocalService* service) : LocalTransport(service), service_(service) {}
  void Send(OutFrame frame) override {
    if (to_clear != nullptr) {
      EXPECT_TRUE(LocalStore(service_).ClearTable(*to_clear).ok());
    }
    to_clear = nullptr;
    LocalTransport::Send(std::move(frame));
  }

  const TableSchema* to_clear = nullptr;

 private:
  LocalService* const service_;
};

// A flush takes rows in rounds; later rounds must respect what the first round's replies bring.
TEST_F(DeviceWorkers, FlushSkipsATableClearedMeanwhile) {
  LocalService service(4, 0);
  auto own = std::make_unique<ClearingTransport>(&service);
  ClearingTransport* const transport = own.get();
  Engine worker("w", 1, std::make_unique<LocalStore>(&service), std::move(own), ClientConfig());
  constexpr uint32_t kDim = 16384;  // 256 rows a turn
  ASSERT_TRUE(worker.tables().Create(SpecOf("t", kDim), CacheOf("gpu", 1024, kUnbounded, kUnbounded)).ok());
  // Keys come in order. Those of the first round are in three partitions, so one of the four gets no reply.
  std::vector<Key> ids;
  for (Key key = 0; ids.size() < 400; ++key) {
    const uint32_t partition = Layout(transport->id(0)).OfKey(HashName("t"), key);
    if (ids.size() >= 256 || partition != 3) ids.push_back(key);
  }
  ASSERT_TRUE(Train(&worker, {{"t", ids}}).ok());
  transport->to_clear = worker.tables().Find("t").value()->schema.get();
  ASSERT_TRUE(Ok(worker.caches().Flush()));
  EXPECT_EQ(LocalStore(&service).Scan(*worker.tables().Find("t").value()->schema).value().keys.size(), 0u);
  EXPECT_EQ(CacheStats(&worker, "t")["discarded_ticks"], 400);
  EXPECT_EQ(CacheStats(&worker, "t")["unsent_rows"], 0);
}

}  // namespace
}  // namespace het::testing
