// A follower of real servers: the questions find their server through restarts, moves and failovers, and a
// server that is silent does not delay the others.
#include "het_tf/core/follow/follower.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "het_tf/core/base/steady_seconds.h"
#include "het_tf/ps/client/redis_changes.h"
#include "het_tf/ps/client/redis_store.h"
#include "tests/cpp/follow/live_files.h"
#include "tests/cpp/testing/redis/redis_shards.h"

namespace het::follow {
namespace {

using het::testing::RedisServer;
using het::testing::RedisShards;
using ::testing::HasSubstr;

constexpr Key kKeys = 40;
constexpr uint32_t kDim = 3;

class RedisFollower : public LiveFilesTest {
 protected:
  void SetUp() override {
    if (const std::string missing = RedisServer::Missing(); !missing.empty()) GTEST_SKIP() << missing;
    LiveFilesTest::SetUp();
  }

  void Start(size_t shards, size_t replicas = 0) {
    servers_ = std::make_unique<RedisShards>(
        shards, RedisServer::Arguments{"--appendonly", "yes", "--appendfsync", "always"}, replicas);
    auto store = het::RedisStore::Open(servers_->address(), "", 30, nullptr);
    ASSERT_TRUE(store.ok()) << store.status().message();
    store_ = std::move(store.value());
    schema_ = MakeSchema("t", kDim);
    ASSERT_TRUE(store_->CreateTable(schema_).ok());
    WriteBase("t", kDim, kKeys, 0.5f);
    writer_ = OpenWriter({"t"});
    reader_ = OpenReader({"t"});
    Set(1);
    auto source = RedisChanges::Open(servers_->address(), "", /*timeout=*/1);
    ASSERT_TRUE(source.ok()) << source.status().message();
    source_ = std::move(source.value());
    FollowerOptions options;
    options.poll = 0.02;
    options.max_page_bytes = 100;
    auto follower = Follower::Create(source_.get(), writer_.get(), options);
    ASSERT_TRUE(follower.ok()) << follower.status().message();
    follower_ = std::move(follower.value());
    UntilServed(1);
  }
  // All rows become `value`.
  void Set(float value) {
    std::vector<Key> keys(kKeys);
    for (Key key = 0; key < kKeys; ++key) keys[static_cast<size_t>(key)] = key;
    const std::vector<float> rows(keys.size() * kDim, value);
    Status status;
    for (int tries = 0; tries < 3; ++tries) {  // it is not repeated by itself after a connection was lost
      status = store_->Assign(*schema_, {keys.data(), keys.size()}, rows.data(), false);
      if (status.ok()) return;
    }
    FAIL() << status.message();
  }
  // Follows until it holds.
  void Until(const std::function<bool()>& holds, double seconds = 60) {
    const double end = SteadySeconds() + seconds;
    while (!holds()) {
      ASSERT_LT(SteadySeconds(), end) << follower_->Report();
      const double pause = follower_->Step();
      std::vector<pollfd> ready;
      source_->Descriptors(&ready);
      poll(ready.data(), ready.size(), static_cast<int>(pause * 1000) + 1);
    }
  }
  void UntilServed(float value) {
    Until([&] {
      for (Key key = 0; key < kKeys; ++key) {
        if (Read(reader_.get(), 0, {key})[0] != value) return false;
      }
      return true;
    });
  }
  nlohmann::json Partitions() const { return nlohmann::json::parse(follower_->Report())["partitions"]; }
  // Of the partition with the most complete scans.
  uint64_t MostScans() const {
    uint64_t most = 0;
    const nlohmann::json partitions = Partitions();
    for (const auto& part : partitions) most = std::max(most, part["scans"].get<uint64_t>());
    return most;
  }
  // Of the partition with the oldest rows.
  double Age() const {
    double age = 0;
    const nlohmann::json partitions = Partitions();
    for (const auto& part : partitions) age = std::max(age, part["age"].get<double>());
    return age;
  }
  // The incarnations of the partitions that the rows are of.
  std::set<std::string> Incarnations() const {
    std::set<std::string> found;
    const nlohmann::json partitions = Partitions();
    for (const auto& part : partitions) {
      const std::string position = part["position"];
      found.insert(position.substr(0, position.find(':')));
    }
    return found;
  }

  std::unique_ptr<RedisShards> servers_;
  std::unique_ptr<het::RedisStore> store_;
  Schema schema_;
  std::unique_ptr<LiveWriter> writer_;
  std::unique_ptr<LiveReader> reader_;
  std::unique_ptr<RedisChanges> source_;
  std::unique_ptr<Follower> follower_;
};

// Would catch a follower that believes in the incarnation of before a restart, or does not connect again.
TEST_F(RedisFollower, AServerIsKilledAndRestarted) {
  Start(1);
  for (const float value : {2.f, 3.f}) {
    const std::set<std::string> before = Incarnations();
    ASSERT_TRUE((*servers_)[0].Restart()) << (*servers_)[0].Log();
    Set(value);
    const std::vector<Key> gone{7};
    const auto removed = store_->Remove(*schema_, {gone.data(), 1});
    ASSERT_TRUE(removed.ok()) << removed.status().message();
    Until([&] { return Read(reader_.get(), 0, {7}) == Initial(schema_, 7); });
    EXPECT_EQ(Read(reader_.get(), 0, {8})[0], value);
    Until([&] {  // the partitions come back one by one
      const std::set<std::string> now = Incarnations();
      return std::none_of(now.begin(), now.end(), [&](const auto& one) { return before.count(one) > 0; });
    });
    Set(value);
    UntilServed(value);
  }
}

// Would catch one connection after the other, or a wait in the search for the owners of slots.
TEST_F(RedisFollower, ASilentServerDoesNotDelayTheOthers) {
  Start(2);
  kill((*servers_)[0].pid(), SIGSTOP);
  const uint64_t before = MostScans();
  Until([&] { return Age() > 4; });  // longer than the time limit: it has been given up and tried again
  EXPECT_GT(MostScans(), before + 8) << "one that waits for the time limit makes two";
  EXPECT_THAT(follower_->Report(), HasSubstr("gave no answer"));
  kill((*servers_)[0].pid(), SIGCONT);
  Set(2);
  UntilServed(2);
  Until([&] { return Age() < 0.5; });
}

// Would catch MOVED that is not followed.
TEST_F(RedisFollower, APartitionMovesToAnotherServer) {
  Start(2);
  const std::string& key = store_->keys()[Partitions()[0]["partition"].get<size_t>()];
  for (const float value : {2.f, 3.f}) {
    const std::set<std::string> before = Incarnations();
    const size_t from = servers_->OwnerOf(key);
    servers_->Move(key, from, 1 - from);
    Set(value);
    UntilServed(value);
    EXPECT_NE(Incarnations(), before) << "a partition that has moved has another incarnation";
  }
}

// Would catch a follower that knows only the servers of its address.
TEST_F(RedisFollower, AReplicaTakesOver) {
  Start(3, 3);
  const std::set<std::string> before = Incarnations();
  (*servers_)[0].Kill();
  Until([&] { return Age() > 1; });
  Set(2);
  UntilServed(2);
  EXPECT_NE(Incarnations(), before);
}

TEST_F(RedisFollower, AServerWithoutTheNamespaceIsRefused) {
  RedisServer alone;
  ASSERT_TRUE(alone.up());
  const auto address = ParseServerAddress("unix://" + alone.dir() + "/socket").value();
  EXPECT_THAT(RedisChanges::Open(address, "other", 5).status().message(), HasSubstr("no namespace 'other'"));
  alone.Kill();
  EXPECT_EQ(RedisChanges::Open(address, "other", 5).status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace het::follow
