// A client over the wire, against a server that the test controls (FakeServer).
#pragma once

#include <gmock/gmock.h>

#include <memory>

#include "het_tf/core/wire/layout.h"
#include "het_tf/ext/ps/client/redis_transport.h"
#include "het_tf/ext/ps/keyspace.h"
#include "tests/testing/keys.h"
#include "tests/testing/redis/fake_server.h"
#include "tests/testing/status.h"
#include "tests/testing/table_specs.h"
#include "tests/testing/test_step.h"

namespace het::testing {

class TransportTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kPartitions = 3;
  static constexpr uint32_t kDim = 4;

  TransportTest() : service_(kPartitions, 7), keys_(PartitionKeys("", kPartitions)) {
    schema_ = NewSchema("t", kDim, "sgd", {"zeros", 0, 0});
    EXPECT_TRUE(service_.CreateTable(schema_).ok());
  }

  // Connects to `server`; with a push bound that no call waits for, frames pile up in the pipeline.
  void Connect(const FakeServer& server, ClientConfig config = ClientConfig(), int64_t bound = kUnbounded) {
    Connect(server.address(), std::move(config), bound);
  }
  void Connect(const ServerAddress& address, ClientConfig config, int64_t bound, int64_t pull = kUnbounded) {
    RedisCluster cluster(address);
    ASSERT_TRUE(Ok(cluster.Refresh(5)));
    transport_ = std::make_unique<RedisTransport>(std::move(cluster), keys_, 7);
    config.notice = [this](const std::string& text) { notices_.push_back(text); };
    client_ = std::make_unique<Client>(transport_.get(), config);
    CacheConfig cache;
    cache.pull_bound = pull;
    cache.push_bound = bound;
    cache.capacity = bound == kUnbounded ? 0 : 100000;
    cache.write_back_rows = 0;  // evicted rows go into a frame at once
    ASSERT_TRUE(client_->AddTable(schema_, cache).ok());
  }
  Status Train(const std::vector<Key>& keys) {
    TestStep step;
    step.Add(*schema_, service_.id(0), keys);
    step.token = ++token_;
    HET_RETURN_IF_ERROR(client_->Read(step.MakeRead(), step.token));
    for (auto& [where, part] : step.parts()) part.sums.assign(part.sums.size(), -1);
    HET_RETURN_IF_ERROR(client_->Write(step.MakeWrite(1), step.token, &pool_));
    for (Key key : keys) ++expected_[key];
    return Status();
  }
  // Sends whoever asks for this partition to another server; other commands are answered correctly.
  FakeServer::Script Redirecting(const std::string& word, uint32_t partition, const FakeServer& to) const {
    const std::string answer =
        "-" + word + " " + std::to_string(SlotOf(keys_[partition])) + " " + to.endpoint();
    return [key = keys_[partition], answer](const FakeServer::Command& command) {
      return command.frame() && command.words[1] == key ? answer : "";
    };
  }
  // Trains rows 1 to 8.
  void TrainEight(int times = 1) {
    for (int i = 0; i < times; ++i) {
      ASSERT_TRUE(Ok(Train({1, 2, 3, 4, 5, 6, 7, 8})));
    }
  }
  void ExpectExact() {
    ASSERT_TRUE(Ok(client_->Flush()));
    for (auto& [key, ticks] : expected_) {
      const uint64_t hash = HashKey(key, 7);
      service_.WithPartition(Layout(service_.id(0)).Of(schema_->id(), hash),
                             [&, k = key, t = ticks](Partition& partition) {
                               const RowStore& rows = partition.Find(schema_->id())->rows();
                               const uint32_t row = rows.Find(k, hash);
                               ASSERT_NE(row, kNoRow) << k;
                               EXPECT_EQ(rows.meta(row).clock, t) << k;
                               EXPECT_EQ(rows.data(row)[0], static_cast<float>(t)) << k;
                             });
    }
  }
  uint64_t Resends() { return client_->Stats(schema_->id()).resends; }

  ThreadPool pool_{1};
  LocalService service_;
  const std::vector<std::string> keys_;
  Schema schema_;
  std::unique_ptr<RedisTransport> transport_;
  std::unique_ptr<Client> client_;
  std::map<Key, int64_t> expected_;
  std::vector<std::string> notices_;
  uint64_t token_ = 0;
};

}  // namespace het::testing
