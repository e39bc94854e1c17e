// A follower's thread, the calls from Python, and lookups of serving threads, in one process: for
// ThreadSanitizer; and a server that is silent. In served_faults_test.cc all are processes.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "het_tf/ext/ps/client/redis_store.h"
#include "het_tf/ext/serving/capi/tools/follow.h"
#include "het_tf/ext/serving/cc/follow/followed_model.h"
#include "tests/ext/serving/follow/live_files.h"
#include "tests/testing/redis/redis_shards.h"

namespace het::follow {
namespace {

using het::testing::Eventually;
using het::testing::NeedsRedis;
using het::testing::RedisServer;
using het::testing::RedisShards;
using nlohmann::json;

class RedisFollowing : public NeedsRedis<LiveFilesTest> {
 protected:
  static constexpr Key kKeys = 40;
  static constexpr uint32_t kDim = 2;

  void Start(size_t shards) {
    servers_ = std::make_unique<RedisShards>(shards, RedisServer::Logged());
    het::testing::MakeNamespace(servers_->address(), 4);
    store_ = ValueOf(het::RedisStore::Open(servers_->address(), "", 30, nullptr));
    ASSERT_TRUE(store_->CreateTable(schema_).ok());
    SetRows(0);
    std::filesystem::create_directories(Path("model/assets"));
    std::filesystem::create_directories(Path("model/het_live/dense"));
    WriteDense("model/assets/base", 0);
    WriteBase("t", kDim, kKeys, 0);
    std::filesystem::rename(Path("t.het"), Path("model/assets/t.het"));
    std::ofstream(Path("model/assets/follow.json")) << json({{"tables", {{{"name", "t"}, {"file", "t.het"}}}},
                                                             {"dense", {{"file", "base"}}},
                                                             {"max_age", 60},
                                                             {"max_skew", nullptr},
                                                             {"stale", "serve"}});
  }
  // A file of the one weight "w".
  void WriteDense(const std::string& name, float value) const {
    std::string header = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    header.resize(DenseFile::kAlign * 2 - 8, ' ');
    const uint64_t length = header.size();
    std::ofstream file(Path(name), std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
    file << header;
    file.write(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void Open(double timeout = 10) {
    const std::string scheme = servers_->size() == 1 ? "unix://" : "redis://";
    const json options = {{"address", scheme + servers_->address().ToString()},
                          {"namespace", ""},
                          {"directory", Path("model/het_live")},
                          {"base", {Path("model/assets/t.het")}},
                          {"positions", json::array()},
                          {"poll", 0.02},
                          {"page_bytes", 200},
                          {"rows", "float32"},
                          {"timeout", timeout}};
    ASSERT_EQ(HetFollowOpen(options.dump().c_str(), &follower_), 0) << HetText();
  }
  void SetRows(float value) {
    const std::vector<Key> keys = KeysTo(kKeys);
    const std::vector<float> rows(keys.size() * kDim, value);
    const auto set = [&] { return store_->Assign(*schema_, keys, rows.data(), false).ok(); };
    ASSERT_TRUE(set() || set()) << "it is not repeated by itself after a connection was lost";
  }
  // Rows and dense weights become `version`.
  void Publish(uint64_t version) {
    SetRows(static_cast<float>(version));
    WriteDense("model/het_live/dense/" + std::to_string(version), static_cast<float>(version));
    ASSERT_EQ(HetFollowOffer(follower_, Described(version).dump().c_str()), 0) << HetText();
  }
  // With the present rows as its cut.
  json Described(uint64_t version) const {
    json cut = json::array();
    const TableState state = store_->State(*schema_).value();
    for (const Position& position : state.positions) cut.push_back(ToString(position));
    const std::string dense = "dense/" + std::to_string(version);
    return {{"number", version}, {"dense", dense}, {"cut", cut}, {"trained_through", nullptr}};
  }
  json Report() const {
    EXPECT_EQ(HetFollowStatus(follower_), 0) << HetText();
    return json::parse(HetText());
  }
  void AwaitVersion(uint64_t version) {
    ASSERT_TRUE(Eventually([&] { return Report()["version"] == version; })) << Report();
  }
  // The largest number of a partition.
  double Most(const char* of) const {
    double most = 0;
    const json report = Report();
    for (const auto& part : report["partitions"]) most = std::max(most, part[of].get<double>());
    return most;
  }
  // A request of a serving thread.
  void Serve() {
    const auto dense = model_->ReadDense();
    ASSERT_TRUE(Ok(dense));
    float weight = 0;
    std::memcpy(&weight, dense.value().file->Find("w")->bytes.data(), sizeof weight);
    ASSERT_EQ(weight, static_cast<float>(dense.value().version));
    std::vector<float> rows(static_cast<size_t>(kKeys) * kDim);
    const std::vector<Key> keys = KeysTo(kKeys);
    const LiveRead read{0, keys, rows.data()};
    ASSERT_TRUE(model_->Lookup({&read, 1}).ok());
    ++served_;
    for (const float value : rows) ASSERT_GE(value, weight) << "rows older than the version's cut";
  }

  const Schema schema_ = MakeSchema("t", kDim);
  std::unique_ptr<RedisShards> servers_;
  std::unique_ptr<het::RedisStore> store_;
  std::shared_ptr<FollowedModel> model_;
  void* follower_ = nullptr;
  std::atomic<uint64_t> served_{0};
};

// Would catch state of the follower that a call reads or writes without the lock of its thread, and state of
// a model that two lookups share without one.
TEST_F(RedisFollowing, CallsAndLookupsBesideTheThread) {
  Start(1);
  Open();
  Publish(1);
  AwaitVersion(1);
  model_ = ValueOf(FollowedModel::Open(Path("model/assets/follow.json")));
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!done && !HasFailure()) Serve();
    });
  }
  for (uint64_t version = 2; version <= 20 && !HasFailure(); ++version) {
    Publish(version);
    if (version % 4 == 0) AwaitVersion(version);
  }
  EXPECT_EQ(HetFollowRollBack(follower_, Described(16).dump().c_str()), 0) << HetText();
  AwaitVersion(16);
  Publish(21);
  AwaitVersion(21);
  HetFollowClose(follower_);
  Open();
  Publish(22);
  AwaitVersion(22);
  const uint64_t before = served_;
  EXPECT_TRUE(Eventually([&] { return served_ > before + 10; }));
  done = true;
  for (std::thread& one : threads) one.join();
  HetFollowClose(follower_);
}

// Would catch one connection after the other, or a wait in the search for the owners of slots.
TEST_F(RedisFollowing, ASilentServerDoesNotDelayTheOthers) {
  Start(2);
  Open(/*timeout=*/1);
  Publish(1);
  AwaitVersion(1);
  kill((*servers_)[0].pid(), SIGSTOP);
  const double before = Most("scans");
  // Longer than the time limit: it has been given up and tried again.
  ASSERT_TRUE(Eventually([&] { return Most("age") > 4; }));
  EXPECT_GT(Most("scans"), before + 8) << "one that waits for the time limit makes two";
  EXPECT_THAT(Report().dump(), ::testing::HasSubstr("gave no answer"));
  kill((*servers_)[0].pid(), SIGCONT);
  Publish(2);
  AwaitVersion(2);
  EXPECT_TRUE(Eventually([&] { return Most("age") < 0.5; }));
  HetFollowClose(follower_);
}

}  // namespace
}  // namespace het::follow
