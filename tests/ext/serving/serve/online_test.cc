// Reading live tables: the bounds hold under faults of network and servers, and older rows are served only
// with a notice. Time is the transport's own; no test waits for it.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/ext/serving/serve/live.h"

namespace het::serve {
namespace {

TEST(OnlineReader, FreshRowIsServedWithoutARequest) {
  Live live(MaxLag(10));
  live.Train(0, 5, 1);
  EXPECT_EQ(live.ReadOne(0, 5), 1);
  live.Train(0, 5, 2);
  const uint64_t served = live.store->transport->served();
  live.Pass(9.9);
  EXPECT_EQ(live.ReadOne(0, 5), 1);
  EXPECT_EQ(live.store->transport->served(), served) << "a fresh row was requested";
  live.Pass(0.2);
  EXPECT_EQ(live.ReadOne(0, 5), 2);
  EXPECT_EQ(live.counters().refreshed, 1u);
  // A check without changes makes the row fresh again.
  live.Pass(11);
  EXPECT_EQ(live.ReadOne(0, 5), 2);
  EXPECT_EQ(live.counters().confirmed, 1u);
  live.Train(0, 5, 3);
  live.Pass(9);
  EXPECT_EQ(live.ReadOne(0, 5), 2);
  live.Pass(2);
  EXPECT_EQ(live.ReadOne(0, 5), 3);
}

TEST(OnlineReader, ALargeLookupIsSeveralRequests) {
  OnlineConfig config = PullBound(0);
  config.max_read_bytes = 200;  // 4 rows
  Live live(config);
  std::vector<Key> ids;
  for (Key key = 0; key < 40; ++key) {
    live.Train(0, key, static_cast<float>(key));
    ids.push_back(key);
  }
  for (const size_t least : {size_t{10}, size_t{20}}) {  // fetches, then checks
    std::vector<float> out;
    ASSERT_TRUE(live.Read(0, ids, &out).ok());
    for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(out[i * kDim], static_cast<float>(ids[i]));
    EXPECT_GE(live.store->transport->served(), least);
  }
  EXPECT_EQ(live.counters().confirmed, 40u);
}

TEST(OnlineReader, DuplicatesPaddingAndEmptyBatches) {
  Live live(PullBound(0));
  live.padding = -1;
  live.Train(1, 5, 7);
  std::vector<float> out;
  ASSERT_TRUE(live.Read(1, {5, -1, 5, 6, -1, 5}, &out).ok());
  const float initial = live.Initial(1, 6);
  EXPECT_EQ(out[0], 7);
  EXPECT_EQ(out[2], 0);
  EXPECT_EQ(out[4], 7);
  EXPECT_EQ(out[6], initial);
  EXPECT_EQ(out[8], 0);
  EXPECT_EQ(out[10], 7);
  EXPECT_EQ(live.counters().fetched, 2u);
  ASSERT_TRUE(live.Read(1, {}, &out).ok());
  ASSERT_TRUE(live.Read(0, {-1, -1}, &out).ok());
}

TEST(OnlineReader, TwoTablesInOneLookup) {
  Live live(PullBound(0));
  live.Train(0, 5, 1);
  live.Train(1, 5, 2);
  float a[kDim], b[kDim];
  const Key key = 5;
  const OnlineRead reads[] = {{live.tables[0], {&key, 1}, {}, a}, {live.tables[1], {&key, 1}, {}, b}};
  ASSERT_TRUE(live.reader->Lookup({reads, 2}).ok());
  EXPECT_EQ(a[0], 1);
  EXPECT_EQ(b[0], 2);
}

// The cache respects its capacity, and larger batches work.
TEST(OnlineReader, TheCacheIsBounded) {
  for (const size_t rows : {size_t{0}, size_t{1}, size_t{300}}) {
    OnlineConfig config = MaxLag(1e9);
    config.cache_rows = rows;
    Live live(config);
    std::vector<Key> ids;
    for (Key key = 0; key < 2000; ++key) {
      ids.push_back(key);
      if (key % 2 == 0) live.Train(0, key, static_cast<float>(key));
    }
    std::vector<float> out;
    for (int round = 0; round < 3; ++round) {
      ASSERT_TRUE(live.Read(0, ids, &out).ok());
      for (size_t i = 0; i < ids.size(); ++i) {
        ASSERT_EQ(out[i * kDim], i % 2 == 0 ? static_cast<float>(ids[i]) : live.Initial(0, ids[i]));
      }
    }
    EXPECT_LE(live.tables[0]->cache.size(), rows + 64);
    EXPECT_EQ(live.tables[0]->cache.size() > 0, rows > 0);
  }
}

// The hand spares rows that were read.
TEST(OnlineReader, FrequentlyReadRowsStay) {
  OnlineConfig config = MaxLag(1e9);
  config.cache_rows = 64 * 8;
  Live live(config);
  std::vector<float> out;
  std::vector<Key> hot;
  for (Key key = 0; key < 64; ++key) hot.push_back(key);
  for (Key cold = 1000; cold < 9000; cold += 64) {
    std::vector<Key> ids = hot;
    for (Key key = cold; key < cold + 64; ++key) ids.push_back(key);
    ASSERT_TRUE(live.Read(0, ids, &out).ok());
  }
  const uint64_t cold = 8000;
  EXPECT_LE(live.counters().fetched, cold + hot.size() + 10);
}

// --- the store goes away, or becomes another one

TEST(OnlineReader, LoadedTableIsFetchedAgain) {
  Live live(MaxLag(1e9));
  std::vector<Key> ids;
  for (Key key = 0; key < 50; ++key) ids.push_back(key);
  for (Key key : ids) live.Train(0, key, 1);
  live.Train(1, 3, 5);
  std::vector<float> out;
  ASSERT_TRUE(live.Read(0, ids, &out).ok());
  ASSERT_EQ(live.ReadOne(1, 3), 5);
  ASSERT_TRUE(live.trained.ClearTable(*live.schemas[0]).ok());
  for (Key key : ids) live.Train(0, key, 2);
  live.Train(1, 3, 6);
  EXPECT_EQ(live.ReadOne(0, ids[0]), 1);  // no request, and none is needed
  EXPECT_EQ(live.ReadOne(0, 1000), live.Initial(0, 1000));
  // The first answer shows the load: all rows of that table are fetched again, and none of the other.
  ASSERT_TRUE(live.Read(0, ids, &out).ok());
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(out[i * kDim], 2);
  EXPECT_EQ(live.counters().emptied, 1u);
  EXPECT_EQ(live.ReadOne(1, 3), 5);
}

// A narrow race: the table is loaded while the answer is in flight, and another call learns of it.
TEST(OnlineReader, AnswerFromBeforeALoadIsDiscarded) {
  Live live(PullBound(0), 1);
  live.Train(0, 5, 1);
  ASSERT_EQ(live.ReadOne(0, 6), live.Initial(0, 6));
  HookedTransport& network = *live.store->transport;
  network.HoldReplies(0, true);
  network.RunWhileACallWaits([&] {
    ASSERT_TRUE(live.trained.ClearTable(*live.schemas[0]).ok());
    live.Train(0, 5, 2);  // its clock is 1, as that of the old row
    const uint64_t epoch = live.service.WithPartition(
        0, [&](Partition& partition) { return partition.Find(live.schemas[0]->id())->epoch(); });
    EXPECT_TRUE(live.tables[0]->Saw(0, epoch));
    network.HoldReplies(0, false);
  });
  EXPECT_EQ(live.ReadOne(0, 5), 1);  // the store's row when the call began
  EXPECT_EQ(live.ReadOne(0, 5), 2);
}

TEST(OnlineReader, ADroppedTableIsAnError) {
  Live live(PullBound(0));
  ASSERT_EQ(live.ReadOne(0, 5), live.Initial(0, 5));
  ASSERT_TRUE(live.trained.DropTable(*live.schemas[0]).ok());
  std::vector<float> out;
  const Status status = live.Read(0, {5}, &out);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_NE(status.message().find("'a'"), std::string::npos) << status.message();
}

TEST(OnlineReader, TableSpecsAreComparedNotCreated) {
  Live live(PullBound(0));
  TableSpec other = live.schemas[0]->spec();
  other.seed = 99;
  auto refused = live.reader->FindTable(TableSchema::Create(other).value());
  EXPECT_EQ(refused.status().code(), Code::kFailedPrecondition);
  other = live.schemas[0]->spec();
  other.optimizer = OptimizerSpec();  // readers ignore it
  other.optimizer.name = "sgd";
  EXPECT_TRUE(live.reader->FindTable(TableSchema::Create(other).value()).ok());
  refused = live.reader->FindTable(TableOfTheStore("c"));
  EXPECT_EQ(refused.status().code(), Code::kFailedPrecondition);
  EXPECT_NE(refused.status().message().find("never makes a table"), std::string::npos);
}

// --- the store does not answer

void Silence(Live* live) {
  for (uint32_t p = 0; p < live->service.partitions(); ++p) live->store->transport->HoldRequests(p, true);
}
void Speak(Live* live) {
  for (uint32_t p = 0; p < live->service.partitions(); ++p) live->store->transport->HoldRequests(p, false);
}

TEST(OnlineReader, NoAnswerIsAnErrorAtTheDeadline) {
  OnlineConfig config = PullBound(0);
  config.deadline = 3;
  Live live(config);
  live.Train(0, 5, 1);
  ASSERT_EQ(live.ReadOne(0, 5), 1);
  Silence(&live);
  const double began = live.store->transport->Now();
  std::vector<float> out;
  const Status status = live.Read(0, {5}, &out);
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_NE(status.message().find("partition"), std::string::npos) << status.message();
  EXPECT_NEAR(live.store->transport->Now() - began, 3, 0.1);
  EXPECT_EQ(live.counters().stale, 0u);
  Speak(&live);
  live.Train(0, 5, 2);
  EXPECT_EQ(live.ReadOne(0, 5), 2);
}

TEST(OnlineReader, StaleOkServesOldRowsAndReportsThem) {
  OnlineConfig config = MaxLag(10);
  config.deadline = 3;
  config.stale_ok = true;
  Live live(config);
  live.Train(0, 5, 1);
  ASSERT_EQ(live.ReadOne(0, 5), 1);
  live.Train(0, 5, 2);
  Silence(&live);
  EXPECT_EQ(live.ReadOne(0, 5), 1);
  EXPECT_EQ(live.counters().stale, 0u);  // it is still fresh
  live.Pass(11);
  EXPECT_EQ(live.ReadOne(0, 5), 1);
  EXPECT_EQ(live.counters().stale, 1u);
  EXPECT_EQ(live.counters().failures, 1u);
  ASSERT_EQ(live.notices.size(), 1u);
  EXPECT_NE(live.notices[0].find("stale_ok"), std::string::npos);
  // Right after that no call waits for the store.
  const double before = live.store->transport->Now();
  EXPECT_EQ(live.ReadOne(0, 5), 1);
  EXPECT_EQ(live.store->transport->Now(), before);
  EXPECT_EQ(live.counters().stale, 2u);
  // A row that was never read cannot be served.
  std::vector<float> out;
  const Status status = live.Read(0, {5, 6}, &out);
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_NE(status.message().find("never read"), std::string::npos) << status.message();
  // The store comes back, and is asked again.
  Speak(&live);
  live.Pass(4);
  EXPECT_EQ(live.ReadOne(0, 5), 2);
  EXPECT_EQ(live.counters().stale, 2u);
}

TEST(OnlineReader, RefusalsSilenceAndLostConnectionsAreAskedAgain) {
  OnlineConfig config = PullBound(0);
  config.deadline = 4;
  Live live(config, 1);
  live.Train(0, 5, 1);
  ASSERT_EQ(live.ReadOne(0, 6), live.Initial(0, 6));
  live.store->transport->RefuseNext(0);
  EXPECT_EQ(live.ReadOne(0, 5), 1);
  live.store->transport->SilenceOnce(0);
  EXPECT_EQ(live.ReadOne(0, 5), 1);
  live.store->transport->Cut(0);
  EXPECT_EQ(live.ReadOne(0, 5), 1);
}

// Threads read while the store is trained: no row is torn. Mainly for ThreadSanitizer.
TEST(OnlineReader, ManyThreadsRead) {
  OnlineConfig config = MaxLag(1e-6);
  config.cache_rows = 100;
  config.connections = 2;
  Live live(config, 4, /*faulty=*/false);
  for (Key key = 0; key < 40; ++key) live.Train(0, key, 1);
  constexpr Key kKeys = 40;
  constexpr int kReaders = 4;
  std::atomic<int> reading{kReaders};
  std::vector<std::thread> readers;
  for (int t = 0; t < kReaders; ++t) {
    readers.emplace_back([&, t] {
      Random r(static_cast<uint64_t>(t));
      for (uint64_t n = Scaled(2000); n > 0; --n) {
        std::vector<Key> ids(16);
        for (Key& key : ids) key = r.Between(0, kKeys - 1);
        std::vector<float> out(ids.size() * kDim);
        const OnlineRead read{live.tables[0], {ids.data(), ids.size()}, {}, out.data()};
        const Status status = live.reader->Lookup({&read, 1});
        EXPECT_TRUE(status.ok()) << status.message();
        for (size_t i = 0; i < ids.size(); ++i) {
          EXPECT_EQ(out[i * kDim], -out[i * kDim + 1]) << "a torn row";
        }
        static_cast<void>(live.reader->Stats());
      }
      --reading;
    });
  }
  float version = 1;
  while (reading > 0) {
    ++version;
    for (Key key = 0; key < kKeys; ++key) live.Train(0, key, version);
    EXPECT_TRUE(live.trained.ClearTable(*live.schemas[1]).ok());
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_GT(version, 1);
  EXPECT_EQ(live.ReadOne(0, 0), version);
}

// --- options

}  // namespace
}  // namespace het::serve
