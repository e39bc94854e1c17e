// Sends frames to partitions in Redis (RedisPipeline): HET.STEP or HET.READ, under the key of the first part.
// Partitions of one server share frames. A partition in the middle of a move gets frames of its own, since
// ASKING applies to one command.
//
// Errors become events, each once for every part of the frame: kRefused with the server's text
// (kStoreOutOfMemory for OOM), kRejected for a lasting one, kGone for a partition that is missing. A closed
// connection is one kClosed event for every partition with a reply outstanding.
//
// AskReplicas sends one WAIT, after earlier frames, on each connection that is concerned.
//
// Not thread-safe; its client owns it.
#pragma once

#include <string>
#include <vector>

#include "het_tf/core/wire/transport.h"
#include "het_tf/ext/ps/client/redis_pipeline.h"

namespace het {

class RedisTransport : public Transport {
 public:
  // `keys`: of the partitions, in order. The cluster's map must be known.
  RedisTransport(RedisCluster cluster, std::vector<std::string> keys, uint64_t hash_seed);

  uint32_t partitions() const override { return static_cast<uint32_t>(pipeline_.keys().size()); }
  PartitionId id(uint32_t partition) const override { return {partition, partitions(), hash_seed_}; }
  Bytes Buffer(size_t size) override { return pipeline_.pool()->Take(size); }
  void Recycle(Bytes bytes) override { pipeline_.pool()->Give(std::move(bytes)); }
  uint32_t ShardOf(uint32_t partition) override { return pipeline_.ShardOf(partition); }
  void Send(OutFrame frame) override;
  bool Poll(double seconds, std::vector<Event>* events) override;
  void Reset(uint32_t partition) override;
  uint64_t Connection(uint32_t partition) override { return pipeline_.Connection(partition); }
  void AskReplicas(const std::vector<Mark>& marks, uint32_t replicas, double seconds) override;
  double LastMoved(uint32_t partition) override { return pipeline_.LastMoved(partition); }
  std::string Where(uint32_t partition) override { return pipeline_.NodeOf(partition).ToString(); }
  void Descriptors(std::vector<pollfd>* descriptors) override { pipeline_.Descriptors(descriptors); }

 private:
  void Take(RedisPipeline::Answer answer);
  void Refused(const RedisPipeline::Answer& answer);
  void Counted(const std::vector<Mark>& marks, const RedisPipeline::Answer& answer);

  const uint64_t hash_seed_;
  RedisPipeline pipeline_;
  std::vector<Event> events_;
};

}  // namespace het
