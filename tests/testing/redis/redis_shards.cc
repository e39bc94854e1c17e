#include "tests/testing/redis/redis_shards.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace het::testing {
namespace {

template <typename Fn>
void Await(Fn done) {
  EXPECT_TRUE(Eventually(done)) << "the cluster does not come up";
}

}  // namespace

void MakeNamespace(const ServerAddress& address, uint32_t partitions) {
  RedisCluster cluster(address);
  EXPECT_TRUE(cluster.Refresh(10).ok());
  const std::string key = MetaKey("");
  const auto made =
      cluster.Ask(key, {"HSET", key, "partitions", std::to_string(partitions), "hash_seed", "99"}, 10);
  EXPECT_TRUE(made.ok() && made.value().ok());
}

RedisShards::RedisShards(size_t shards, const RedisServer::Arguments& settings, size_t replicas) {
  if (shards + replicas == 1) {
    servers_.push_back(std::make_unique<RedisServer>(settings));
    EXPECT_TRUE(servers_[0]->up()) << servers_[0]->Log();
    return;
  }
  for (size_t i = 0; i < shards + replicas; ++i) {
    RedisServer::Arguments own = settings;
    ports_.push_back(RedisServer::FreePort());
    buses_.push_back(RedisServer::FreePort());
    own.insert(own.end(), {"--port", std::to_string(ports_[i]), "--bind", "127.0.0.1", "--cluster-enabled",
                           "yes", "--cluster-port", std::to_string(buses_[i]), "--cluster-node-timeout",
                           "3000", "--repl-diskless-sync-delay", "0"});
    servers_.push_back(std::make_unique<RedisServer>(own));
    EXPECT_TRUE(servers_[i]->up()) << servers_[i]->Log();
  }
  for (size_t i = 0; i < shards; ++i) {
    Expect(i, {"CLUSTER", "ADDSLOTSRANGE", std::to_string(i * kSlots / shards),
               std::to_string((i + 1) * kSlots / shards - 1)});
  }
  for (size_t i = 0; i < servers_.size(); ++i) {
    Expect(i, {"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
    if (i == 0) continue;
    Expect(0, {"CLUSTER", "MEET", "127.0.0.1", std::to_string(ports_[i]), std::to_string(buses_[i])});
  }
  for (size_t i = 0; i < shards; ++i) AwaitCluster(i);
  for (size_t i = shards; i < servers_.size(); ++i) {
    const std::string master = Id(i % shards);
    Await([&] { return (*this)[i].Command({"CLUSTER", "REPLICATE", master}).ok(); });
    EXPECT_TRUE((*this)[i].Await("replication", "master_link_status:up")) << (*this)[i].Log();
  }
  // Wait until every master lists the replicas in its map.
  for (size_t i = 0; i < shards && replicas > 0; ++i) {
    Await([&] {
      size_t named = 0;
      for (const RedisReply& range : servers_[i]->Command({"CLUSTER", "SLOTS"}).elements)
        named += range.elements.size() - 3;
      return named == replicas;
    });
  }
}

ServerAddress RedisShards::address() const {
  if (ports_.empty()) return servers_[0]->address();
  return ParseServerAddress("redis://" + Endpoint(0) + "," + Endpoint(ports_.size() - 1)).value();
}

void RedisShards::AwaitCluster(size_t i) {
  Await([&] {
    return servers_[i]->Command({"CLUSTER", "INFO"}).text.find("cluster_state:ok") != std::string::npos;
  });
}

size_t RedisShards::OwnerOf(const std::string& key) {
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (!servers_[i]->up()) continue;
    const RedisReply reply = servers_[i]->Command({"OBJECT", "ENCODING", key});
    if (!reply.StartsWith("MOVED") && !reply.StartsWith("ASK")) return i;
  }
  return servers_.size();
}

void RedisShards::Move(const std::string& key, size_t from, size_t to) {
  const std::string slot = std::to_string(SlotOf(key));
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); };
  Expect(to, {"CLUSTER", "SETSLOT", slot, "IMPORTING", Id(from)});
  pause();
  Expect(from, {"CLUSTER", "SETSLOT", slot, "MIGRATING", Id(to)});
  pause();
  Expect(from, {"MIGRATE", "127.0.0.1", std::to_string(ports_[to]), key, "0", "20000"});
  pause();
  Expect(to, {"CLUSTER", "SETSLOT", slot, "NODE", Id(to)});
  pause();
  Expect(from, {"CLUSTER", "SETSLOT", slot, "NODE", Id(to)});
}

void RedisShards::Expect(size_t i, const RedisServer::Arguments& command) {
  const RedisReply reply = servers_[i]->Command(command);
  EXPECT_TRUE(reply.ok()) << command[0] << " " << command[1] << ": " << reply.text;
}

}  // namespace het::testing
