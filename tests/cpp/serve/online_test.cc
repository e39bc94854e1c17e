// Reading live tables: the bounds hold whatever network and servers do, and nothing is served past them in
// silence. Time is the transport's own; no test waits for it.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "het_tf/core/serve/online_reader.h"
#include "het_tf/core/serve/online_spec.h"
#include "het_tf/core/store/local_store.h"
#include "het_tf/core/store/local_transport.h"
#include "tests/cpp/testing/world/faulty_transport.h"
#include "tests/cpp/testing/random.h"

namespace het::serve {
namespace {

using het::testing::Faults;
using het::testing::FaultyTransport;
using het::testing::Random;
using het::testing::Scaled;

constexpr uint32_t kDim = 2;

Schema MakeSchema(const std::string& name) {
  TableSpec spec;
  spec.name = name;
  spec.dim = kDim;
  spec.optimizer.name = "adam";  // with slots, which nobody here wants
  spec.initializer = {"uniform", -1, 1};
  return TableSchema::Create(spec).value();
}

// Runs `before_poll`, once, when a call waits for its answers.
class HookedTransport : public FaultyTransport {
 public:
  using FaultyTransport::FaultyTransport;
  bool Poll(double seconds, std::vector<Event>* events) override {
    if (before_poll && polls_++ == 1) std::exchange(before_poll, nullptr)();
    return FaultyTransport::Poll(seconds, events);
  }
  void RunWhileACallWaits(std::function<void()> hook) {
    before_poll = std::move(hook);
    polls_ = 0;
  }

 private:
  std::function<void()> before_poll;
  int polls_ = 0;
};

// The embedded store as one that is read from elsewhere.
class Store : public OnlineStore {
 public:
  explicit Store(LocalService* service) : service_(service) {}

  uint32_t partitions() const override { return service_->partitions(); }
  uint64_t hash_seed() const override { return service_->hash_seed(); }
  std::string Where() const override { return "the test's store"; }
  Result<std::unique_ptr<Transport>> Connect() override {
    if (!faulty) return std::unique_ptr<Transport>(std::make_unique<LocalTransport>(service_));
    auto made = std::make_unique<HookedTransport>(service_, 3);
    transport = made.get();
    return std::unique_ptr<Transport>(std::move(made));
  }
  Result<TableSpec> Find(const std::string& table) override {
    if (tables.count(table) == 0) return Status(Code::kNotFound, "there is no table '" + table + "'");
    return tables.at(table)->spec();
  }

  std::map<std::string, Schema> tables;
  bool faulty = true;
  HookedTransport* transport = nullptr;

 private:
  LocalService* const service_;
};

// A store that is trained, and a reader.
class Live {
 public:
  explicit Live(const OnlineConfig& config, uint32_t partitions = 3, bool faulty = true)
      : service(partitions, 11), trained(&service) {
    auto made = std::make_unique<Store>(&service);
    store = made.get();
    store->faulty = faulty;
    for (const char* name : {"a", "b"}) {
      schemas.push_back(MakeSchema(name));
      store->tables[name] = schemas.back();
      EXPECT_TRUE(trained.CreateTable(schemas.back()).ok());
    }
    const auto clock = [this] { return store->transport == nullptr ? 0.0 : store->transport->Now(); };
    reader = std::make_unique<OnlineReader>(
        std::move(made), config, [this](const std::string& text) { notices.push_back(text); },
        faulty ? OnlineReader::Clock(clock) : nullptr);
    for (const Schema& schema : schemas) {
      auto table = reader->FindTable(schema);
      EXPECT_TRUE(table.ok()) << table.status().message();
      tables.push_back(table.value());
    }
  }

  // One tick: the row's value becomes (version, -version).
  void Train(size_t table, Key key, float version) {
    const float row[kDim] = {version, -version};
    ASSERT_TRUE(trained.Assign(*schemas[table], {&key, 1}, row, false).ok());
  }
  Status Read(size_t table, const std::vector<Key>& ids, std::vector<float>* out) {
    out->assign(ids.size() * kDim, -1e9f);
    const OnlineRead read{tables[table], {ids.data(), ids.size()}, padding, out->data()};
    return reader->Lookup({&read, 1});
  }
  float ReadOne(size_t table, Key key) {
    std::vector<float> out;
    const Status status = Read(table, {key}, &out);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(out[0] == -out[1] || Initial(table, key) == out[0]) << "half of one row, half of another";
    return out[0];
  }
  float Initial(size_t table, Key key) const {
    float row[kDim];
    schemas[table]->InitValue(key, row);
    return row[0];
  }
  void Pass(double seconds) { store->transport->Sleep(seconds); }
  const OnlineCounters& counters() const { return reader->counters(); }
  uint32_t PartitionOfKey(Key key) const {
    return PartitionOf(HashKey(key, service.hash_seed()), service.partitions());
  }
  Bytes Snapshot(uint32_t p) {
    Bytes bytes;
    service.WithPartition(p, [&](Partition& partition) { partition.Serialize(&bytes); });
    return bytes;
  }
  void Restart(uint32_t p, const Bytes& bytes) {
    ASSERT_TRUE(service.Revive(p, Span<const uint8_t>(bytes.data(), bytes.size())).ok());
    if (store->transport != nullptr) store->transport->PartitionMoved(p);
  }

  LocalService service;
  LocalStore trained;
  Store* store;
  std::vector<Schema> schemas;
  std::unique_ptr<OnlineReader> reader;
  std::vector<OnlineTable*> tables;
  std::vector<std::string> notices;
  std::optional<Key> padding;
};

OnlineConfig MaxAge(double seconds) {
  OnlineConfig config;
  config.max_age = seconds;
  return config;
}
OnlineConfig PullBound(int64_t ticks) {
  OnlineConfig config;
  config.pull_bound = ticks;
  return config;
}

TEST(OnlineReader, ARowIsServedForMaxAgeWithoutAsking) {
  Live live(MaxAge(10));
  live.Train(0, 5, 1);
  EXPECT_EQ(live.ReadOne(0, 5), 1);
  live.Train(0, 5, 2);
  const uint64_t served = live.store->transport->served();
  live.Pass(9.9);
  EXPECT_EQ(live.ReadOne(0, 5), 1);
  EXPECT_EQ(live.store->transport->served(), served) << "a fresh row was asked for";
  live.Pass(0.2);
  EXPECT_EQ(live.ReadOne(0, 5), 2);
  EXPECT_EQ(live.counters().refreshed, 1u);
  // A check that brings no news makes the row fresh again.
  live.Pass(11);
  EXPECT_EQ(live.ReadOne(0, 5), 2);
  EXPECT_EQ(live.counters().confirmed, 1u);
  live.Train(0, 5, 3);
  live.Pass(9);
  EXPECT_EQ(live.ReadOne(0, 5), 2);
  live.Pass(2);
  EXPECT_EQ(live.ReadOne(0, 5), 3);
}

// A row's age counts from when it was asked for, not from when the answer came.
TEST(OnlineReader, AnAnswerOnItsWayGrowsOld) {
  OnlineConfig config = MaxAge(10);
  config.deadline = 100;
  Live live(config, 1);
  live.Train(0, 5, 1);
  ASSERT_EQ(live.ReadOne(0, 6), live.Initial(0, 6));
  live.store->transport->HoldRepliesFor(0, 8);
  EXPECT_EQ(live.ReadOne(0, 5), 1);
  live.Train(0, 5, 2);
  live.Pass(3);
  EXPECT_EQ(live.ReadOne(0, 5), 2);
}

TEST(OnlineReader, PullBoundIsCheckedAtEveryRead) {
  Live live(PullBound(2));
  EXPECT_EQ(live.ReadOne(0, 5), live.Initial(0, 5));
  live.Train(0, 5, 1);
  live.Train(0, 5, 2);
  EXPECT_EQ(live.ReadOne(0, 5), live.Initial(0, 5));
  live.Train(0, 5, 3);
  EXPECT_EQ(live.ReadOne(0, 5), 3);
  EXPECT_EQ(live.counters().fresh, 0u);
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

// The cache holds what it may, and batches larger than it work.
TEST(OnlineReader, TheCacheIsBounded) {
  for (const size_t rows : {size_t{0}, size_t{1}, size_t{300}}) {
    OnlineConfig config = MaxAge(1e9);
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

// The hand passes over what is read.
TEST(OnlineReader, WhatIsReadOftenStays) {
  OnlineConfig config = MaxAge(1e9);
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

// --- the store goes, or becomes another one

TEST(OnlineReader, ATableThatWasLoadedIsReadAnew) {
  Live live(MaxAge(1e9));
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
  EXPECT_EQ(live.ReadOne(0, ids[0]), 1);  // nobody was asked, and nobody need be
  EXPECT_EQ(live.ReadOne(0, 1000), live.Initial(0, 1000));
  // One answer told, and all of that table is asked for again; of the other nothing.
  ASSERT_TRUE(live.Read(0, ids, &out).ok());
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(out[i * kDim], 2);
  EXPECT_EQ(live.counters().emptied, 1u);
  EXPECT_EQ(live.ReadOne(1, 3), 5);
}

// The trap: the store comes back from an older state and is trained to the very clock that the cache has.
TEST(OnlineReader, APartitionThatLostTicksIsReadAnew) {
  Live live(PullBound(0), 1);
  live.Train(0, 5, 1);
  const Bytes older = live.Snapshot(0);
  live.Train(0, 5, 2);
  ASSERT_EQ(live.ReadOne(0, 5), 2);
  live.Restart(0, older);
  live.Train(0, 5, 3);
  EXPECT_EQ(live.ReadOne(0, 5), 3);
}

// The same by a hair: the answer is on its way while the table is loaded and another call hears of it.
TEST(OnlineReader, AnAnswerFromBeforeALoadIsNotKept) {
  Live live(PullBound(0), 1);
  live.Train(0, 5, 1);
  ASSERT_EQ(live.ReadOne(0, 6), live.Initial(0, 6));
  HookedTransport& network = *live.store->transport;
  network.HoldReplies(0, true);
  network.RunWhileACallWaits([&] {
    ASSERT_TRUE(live.trained.ClearTable(*live.schemas[0]).ok());
    live.Train(0, 5, 2);  // its clock is 1, as that of the row before
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

TEST(OnlineReader, TablesAreComparedAndNeverMade) {
  Live live(PullBound(0));
  TableSpec other = live.schemas[0]->spec();
  other.seed = 99;
  auto refused = live.reader->FindTable(TableSchema::Create(other).value());
  EXPECT_EQ(refused.status().code(), Code::kFailedPrecondition);
  other = live.schemas[0]->spec();
  other.optimizer.name = "sgd";  // no matter to who reads
  EXPECT_TRUE(live.reader->FindTable(TableSchema::Create(other).value()).ok());
  refused = live.reader->FindTable(MakeSchema("c"));
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

TEST(OnlineReader, StaleRowsAreServedIfAskedForAndNeverInSilence) {
  OnlineConfig config = MaxAge(10);
  config.deadline = 3;
  config.stale_ok = true;
  Live live(config);
  live.Train(0, 5, 1);
  ASSERT_EQ(live.ReadOne(0, 5), 1);
  live.Train(0, 5, 2);
  Silence(&live);
  EXPECT_EQ(live.ReadOne(0, 5), 1);
  EXPECT_EQ(live.counters().stale, 0u);  // it is fresh yet
  live.Pass(11);
  EXPECT_EQ(live.ReadOne(0, 5), 1);
  EXPECT_EQ(live.counters().stale, 1u);
  EXPECT_EQ(live.counters().failures, 1u);
  ASSERT_EQ(live.notices.size(), 1u);
  EXPECT_NE(live.notices[0].find("stale_ok"), std::string::npos);
  // Right after that nobody waits for the store again.
  const double before = live.store->transport->Now();
  EXPECT_EQ(live.ReadOne(0, 5), 1);
  EXPECT_EQ(live.store->transport->Now(), before);
  EXPECT_EQ(live.counters().stale, 2u);
  // What was never read cannot be served.
  std::vector<float> out;
  const Status status = live.Read(0, {5, 6}, &out);
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_NE(status.message().find("never read"), std::string::npos) << status.message();
  // It comes back, and is asked again.
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

// --- by chance

// What was the store's row of a key, and since when.
struct History {
  struct Since {
    double time;
    float version;
  };
  std::vector<Since> rows;     // all that there ever were, in order
  std::vector<float> lineage;  // the versions that the row of today goes back to, oldest first
};

TEST(OnlineReader, BoundsHoldWhateverHappens) {
  for (uint64_t seed = 1; seed <= Scaled(60); ++seed) {
    Random r(seed);
    const bool seconds = r.Chance(0.5);
    const double max_age = r.Pick<double>({0.001, 1, 20});
    const int64_t bound = r.Pick<int64_t>({0, 1, 3});
    OnlineConfig config = seconds ? MaxAge(max_age) : PullBound(bound);
    config.cache_rows = r.Pick<size_t>({0, 64, 1000});
    config.deadline = 1000;
    Live live(config, static_cast<uint32_t>(r.Between(1, 5)));
    std::map<std::pair<size_t, Key>, History> histories;
    float version = 0;
    ASSERT_EQ(live.ReadOne(0, 1 << 20), live.Initial(0, 1 << 20));  // there is a transport
    FaultyTransport& network = *live.store->transport;
    network.faults = Faults::Some(r.Pick<double>({0, 0.01, 0.1}));
    network.faults.out_of_memory = 0;
    const auto now = [&] { return network.Now(); };
    const auto history = [&](size_t table, Key key) -> History& {
      History& of = histories[{table, key}];
      if (of.rows.empty()) {
        of.rows.push_back({-1e9, live.Initial(table, key)});
        of.lineage.push_back(live.Initial(table, key));
      }
      return of;
    };
    struct Saved {
      Bytes bytes;
      std::map<std::pair<size_t, Key>, std::vector<float>> lineages;
    };
    std::map<uint32_t, Saved> saved;
    for (int step = 0; step < 200; ++step) {
      if (r.Chance(0.5)) {
        for (uint64_t n = r.Below(8); n > 0; --n) {
          const size_t table = r.Below(2);
          const Key key = r.Between(0, 30);
          live.Train(table, key, ++version);
          History& of = history(table, key);
          of.rows.push_back({now(), version});
          of.lineage.push_back(version);
        }
      }
      if (r.Chance(0.2)) live.Pass(r.Unit() * max_age * 2);
      if (r.Chance(0.05)) {
        const auto p = static_cast<uint32_t>(r.Below(live.service.partitions()));
        saved[p].bytes = live.Snapshot(p);
        saved[p].lineages.clear();
        for (auto& [where, of] : histories) {
          if (live.PartitionOfKey(where.second) == p) saved[p].lineages[where] = of.lineage;
        }
      }
      if (!saved.empty() && r.Chance(0.05)) {  // a partition comes back as it was
        const auto& [p, old] = *std::next(saved.begin(), static_cast<ptrdiff_t>(r.Below(saved.size())));
        live.Restart(p, old.bytes);
        for (auto& [where, of] : histories) {
          if (live.PartitionOfKey(where.second) != p) continue;
          const auto lineage = old.lineages.find(where);
          of.lineage = lineage == old.lineages.end()
                           ? std::vector<float>{live.Initial(where.first, where.second)}
                           : lineage->second;
          of.rows.push_back({now(), of.lineage.back()});
        }
      }
      if (r.Chance(0.02)) {  // a table is emptied
        const size_t table = r.Below(2);
        ASSERT_TRUE(live.trained.ClearTable(*live.schemas[table]).ok());
        saved.clear();
        for (auto& [where, of] : histories) {
          if (where.first != table) continue;
          of.lineage = {live.Initial(table, where.second)};
          of.rows.push_back({now(), of.lineage.back()});
        }
      }
      const size_t table = r.Below(2);
      std::vector<Key> ids(r.Below(20));
      for (Key& key : ids) key = r.Between(0, 30);
      const double began = now();
      std::vector<float> out;
      const Status status = live.Read(table, ids, &out);
      ASSERT_TRUE(status.ok()) << status.message();
      for (size_t i = 0; i < ids.size(); ++i) {
        const History& of = history(table, ids[i]);
        const float got = out[i * kDim];
        bool fine = false;
        if (seconds) {
          for (size_t v = 0; v < of.rows.size(); ++v) {
            const double until = v + 1 < of.rows.size() ? of.rows[v + 1].time : 1e18;
            fine = fine || (of.rows[v].version == got && until >= began - max_age);
          }
        } else {
          const size_t allowed = std::min<size_t>(of.lineage.size(), static_cast<size_t>(bound) + 1);
          for (size_t v = of.lineage.size() - allowed; v < of.lineage.size(); ++v) {
            fine = fine || of.lineage[v] == got;
          }
        }
        ASSERT_TRUE(fine) << "seed " << seed << ", step " << step << ": table " << table << ", key " << ids[i]
                          << " reads " << got << ", the store has " << of.lineage.back();
      }
    }
    EXPECT_EQ(live.counters().stale, 0u);
  }
}

// Threads that read and a store that is trained: no row is torn. For ThreadSanitizer above all.
TEST(OnlineReader, ManyThreadsRead) {
  OnlineConfig config = MaxAge(1e-6);
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

TEST(OnlineSpec, SaysWhatIsWrong) {
  const auto error = [](const std::string& text) { return ParseOnlineSpec(text).status().message(); };
  auto fine = ParseOnlineSpec(R"({"ps": "unix:///x", "max_age": 1.5, "cache_rows": 7, "stale_ok": true,
                                  "deadline": 0.5, "connections": 2})");
  ASSERT_TRUE(fine.ok()) << fine.status().message();
  EXPECT_EQ(fine.value().ps, "unix:///x");
  EXPECT_EQ(fine.value().config.max_age, 1.5);
  EXPECT_FALSE(fine.value().config.pull_bound.has_value());
  EXPECT_EQ(fine.value().config.cache_rows, 7u);
  EXPECT_TRUE(fine.value().config.stale_ok);
  EXPECT_EQ(fine.value().config.deadline, 0.5);
  EXPECT_EQ(fine.value().config.connections, 2u);
  for (const auto& [text, named] : std::vector<std::pair<std::string, std::string>>{
           {"", "not valid JSON"},
           {"[]", "object"},
           {R"({"max_age": 1})", "ps"},
           {R"({"ps": ""})", "ps is"},
           {R"({"ps": "unix:///x"})", "one of max_age"},
           {R"({"ps": "unix:///x", "max_age": 1, "pull_bound": 1})", "one of max_age"},
           {R"({"ps": "unix:///x", "max_age": -1})", "max_age is -1"},
           {R"({"ps": "unix:///x", "max_age": "1"})", "max_age is"},
           {R"({"ps": "unix:///x", "pull_bound": 1.5})", "pull_bound is 1.5"},
           {R"({"ps": "unix:///x", "pull_bound": -1})", "pull_bound is -1"},
           {R"({"ps": "unix:///x", "max_age": 1, "cache_rows": -1})", "cache_rows is -1"},
           {R"({"ps": "unix:///x", "max_age": 1, "stale_ok": 1})", "stale_ok is 1"},
           {R"({"ps": "unix:///x", "max_age": 1, "deadline": 0})", "deadline is 0"},
           {R"({"ps": "unix:///x", "max_age": 1, "connections": 0})", "connections is 0"},
           {R"({"ps": "unix:///x", "max_age": 1, "speed": 1})", "'speed'"},
       }) {
    EXPECT_NE(error(text).find(named), std::string::npos) << text << ": " << error(text);
  }
}

}  // namespace
}  // namespace het::serve
