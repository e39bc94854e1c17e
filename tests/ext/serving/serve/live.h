// A store in training, and a reader of its live tables over a faulty transport.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "het_tf/core/store/local_store.h"
#include "het_tf/core/store/local_transport.h"
#include "het_tf/core/wire/layout.h"
#include "het_tf/ext/serving/cc/serve/online_reader.h"
#include "tests/testing/partition_bytes.h"
#include "tests/testing/random.h"
#include "tests/testing/table_specs.h"
#include "tests/testing/world/faulty_transport.h"

namespace het::serve {

using het::testing::Faults;
using het::testing::FaultyTransport;
using het::testing::Random;
using het::testing::Scaled;

constexpr uint32_t kDim = 2;

inline Schema TableOfTheStore(const std::string& name) {
  // With slots, which readers ignore.
  return het::testing::NewSchema(name, kDim, "adam", {"uniform", -1, 1});
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

// The embedded store, used as a remote one.
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

// A store in training, and a reader.
class Live {
 public:
  explicit Live(const OnlineConfig& config, uint32_t partitions = 3, bool faulty = true)
      : service(partitions, 11), trained(&service) {
    auto made = std::make_unique<Store>(&service);
    store = made.get();
    store->faulty = faulty;
    for (const char* name : {"a", "b"}) {
      schemas.push_back(TableOfTheStore(name));
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
  // `where`: the table's index, and a key.
  uint32_t PartitionOfKey(const std::pair<size_t, Key>& where) const {
    return Layout(service.id(0)).OfKey(schemas[where.first]->id(), where.second);
  }
  Bytes Snapshot(uint32_t p) { return testing::BytesOf(&service, p); }
  void Restart(uint32_t p, const Bytes& bytes) {
    testing::Revive(&service, p, bytes);
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

inline OnlineConfig MaxLag(double seconds) {
  OnlineConfig config;
  config.max_lag = seconds;
  return config;
}
inline OnlineConfig PullBound(int64_t ticks) {
  OnlineConfig config;
  config.pull_bound = ticks;
  return config;
}

}  // namespace het::serve
