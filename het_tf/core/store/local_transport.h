#pragma once

#include <vector>

#include "het_tf/core/store/local_service.h"
#include "het_tf/core/wire/transport.h"

namespace het {

// The store in this process as a transport: frames are answered on sending.
class LocalTransport : public Transport {
 public:
  explicit LocalTransport(LocalService* service) : service_(service) {}
  uint32_t partitions() const override { return service_->partitions(); }
  PartitionId id(uint32_t partition) const override { return service_->id(partition); }
  uint32_t ShardOf(uint32_t) override { return 0; }
  void Send(OutFrame frame) override;
  bool Poll(double seconds, std::vector<Event>* events) override;
  void Reset(uint32_t) override {}
  uint64_t Connection(uint32_t) override { return 1; }
  void AskReplicas(const std::vector<Mark>&, uint32_t, double) override {}  // there are no replicas

 private:
  LocalService* const service_;
  std::vector<Event> ready_;
};

}  // namespace het
