// The network of a replay (replay.h): passes frames to a store in this process, and counts them.
//
// Time: a request reaches the store at once. Its reply arrives when the client waits for it, which is one
// round trip for all requests in flight, or else before the client's next call (Arrive). So a push that no
// call waits for costs no round trip, and frames are in flight while later rows are read, as over a network.
#pragma once

#include <cstdint>
#include <vector>

#include "het_tf/core/store/local_service.h"
#include "het_tf/core/wire/transport.h"

namespace het {

// Counts of frames of one direction or kind.
struct FrameCounts {
  uint64_t frames = 0;
  uint64_t parts = 0;
  uint64_t bytes = 0;
};

struct NetworkCounts {
  FrameCounts pushes, reads;  // requests with a push, and the others
  FrameCounts replies;        // whose parts are the requests'
  uint64_t round_trips = 0;   // round trips that a client waited for

  NetworkCounts& operator+=(const NetworkCounts& other);
  NetworkCounts& operator-=(const NetworkCounts& other);
};

class ReplayNetwork : public Transport {
 public:
  // Each of `shards` shards has neighbouring partitions.
  ReplayNetwork(LocalService* service, uint32_t shards) : service_(service), shards_(shards) {}

  const NetworkCounts& traffic() const { return traffic_; }
  // CPU time of the store.
  double store_seconds() const { return store_seconds_; }
  // Makes replies in flight arrive.
  void Arrive();
  bool on_the_way() const { return !on_their_way_.empty() || !arrived_.empty(); }

  uint32_t partitions() const override { return service_->partitions(); }
  PartitionId id(uint32_t partition) const override { return service_->id(partition); }
  uint32_t ShardOf(uint32_t partition) override { return partition * shards_ / partitions(); }
  void Send(OutFrame frame) override;
  bool Poll(double seconds, std::vector<Event>* events) override;
  void Reset(uint32_t) override {}
  uint64_t Connection(uint32_t) override { return 1; }
  void AskReplicas(const std::vector<Mark>&, uint32_t, double) override {}
  void Sleep(double seconds) override { now_ += seconds; }
  double Now() override { return now_; }

 protected:
  // Sees a sent frame, and its answer.
  virtual void SeeRequest(Span<const uint8_t>) {}
  virtual void SeeReply(Span<const uint8_t>) {}

 private:
  LocalService* const service_;
  const uint32_t shards_;
  NetworkCounts traffic_;
  double store_seconds_ = 0;
  std::vector<Event> on_their_way_;
  std::vector<Event> arrived_;
  double now_ = 0;
};

}  // namespace het
