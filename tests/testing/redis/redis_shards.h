// The servers of a parameter server, for one test: one server, or a cluster with evenly shared slots.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "het_tf/ext/ps/client/cluster.h"
#include "het_tf/ext/ps/keyspace.h"
#include "tests/testing/redis/redis_server.h"

namespace het::testing {

// Makes the namespace "" with so many partitions; a worker would make kNewPartitions.
void MakeNamespace(const ServerAddress& address, uint32_t partitions);

class RedisShards {
 public:
  // `settings` go to every server. With one shard and no replica there is no cluster.
  explicit RedisShards(size_t shards, const RedisServer::Arguments& settings = {}, size_t replicas = 0);

  size_t size() const { return servers_.size(); }
  RedisServer& operator[](size_t i) { return *servers_[i]; }
  // Names the first and the last server.
  ServerAddress address() const;
  ServerAddress AddressOf(size_t i) const { return ParseServerAddress("redis://" + Endpoint(i)).value(); }
  void AwaitCluster(size_t i);
  // Returns the server that claims the slots of `key`, or size().
  size_t OwnerOf(const std::string& key);
  // Moves the slot of a key, the slot's only one, as `redis-cli --cluster reshard` does.
  void Move(const std::string& key, size_t from, size_t to);

 private:
  void Expect(size_t i, const RedisServer::Arguments& command);
  std::string Endpoint(size_t i) const { return "127.0.0.1:" + std::to_string(ports_[i]); }
  std::string Id(size_t i) { return servers_[i]->Command({"CLUSTER", "MYID"}).text; }

  std::vector<std::unique_ptr<RedisServer>> servers_;
  std::vector<int> ports_, buses_;
};

}  // namespace het::testing
