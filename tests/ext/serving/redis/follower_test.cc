// A follower of real servers: a server that is silent does not delay the others. (served_faults_test.cc moves
// partitions and lets replicas take over.)
#include "het_tf/ext/serving/cc/follow/follower.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "het_tf/core/base/steady_seconds.h"
#include "het_tf/ext/ps/client/redis_changes.h"
#include "het_tf/ext/ps/client/redis_store.h"
#include "tests/ext/serving/follow/live_files.h"
#include "tests/testing/redis/redis_shards.h"

namespace het::follow {
namespace {

using het::testing::NeedsRedis;
using het::testing::RedisServer;
using het::testing::RedisShards;
using ::testing::HasSubstr;

constexpr Key kKeys = 40;
constexpr uint32_t kDim = 3;

class RedisFollower : public NeedsRedis<LiveFilesTest> {
 protected:
  void Start(size_t shards) {
    servers_ = std::make_unique<RedisShards>(shards, RedisServer::Logged());
    const ServerAddress address = servers_->address();
    auto store = het::RedisStore::Open(address, "", 30, nullptr);
    ASSERT_TRUE(store.ok()) << store.status().message();
    store_ = std::move(store.value());
    schema_ = MakeSchema("t", kDim);
    ASSERT_TRUE(store_->CreateTable(schema_).ok());
    WriteBase("t", kDim, kKeys, 0.5f);
    writer_ = OpenWriter({"t"});
    reader_ = OpenReader({"t"});
    Set(1);
    auto source = RedisChanges::Open(address, "", /*timeout=*/1);
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
      status = store_->Assign(*schema_, keys, rows.data(), false);
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
  std::unique_ptr<RedisShards> servers_;
  std::unique_ptr<het::RedisStore> store_;
  Schema schema_;
  std::unique_ptr<LiveWriter> writer_;
  std::unique_ptr<LiveReader> reader_;
  std::unique_ptr<RedisChanges> source_;
  std::unique_ptr<Follower> follower_;
};

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
