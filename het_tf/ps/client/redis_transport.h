// Frames to partitions that live in Redis, one connection to each server.
//
//   Send ──► HET.STEP or HET.READ key frame ──► the connection of the partition's server
//   Poll ◄── replies, in order: a frame, or an error of Redis
//
// What errors become:
//   MOVED                      the map is corrected; kRefused, so that the client sends again, in order
//   ASK                        the partition's next frames go to the named server, each behind ASKING, until
//                              its slot's owner is known; kRefused
//   OOM                        kRefused with kStoreOutOfMemory
//   LOADING, CLUSTERDOWN, ...  kRefused with the server's text; after CLUSTERDOWN the map is asked for
//   (each of these once for every part of the frame)
//   a closed connection        kClosed for every partition that was owed a reply
//
// A server computes the answers to everything that it has read before it writes the first of them,
// and so does nothing while its answers travel, nor the client while they are computed. Pulls from
// a server on this machine therefore go out until kWindowBytes of answers are owed; the rest is held
// here, in order, and goes out as soon as half of that has come: few writes, and few times that
// either side waits for the other. Through a network pulls go out at once, for there the way back
// and forth costs more.
//
// Partitions of one server share frames, under the key of the first part. One in the middle of a
// move goes alone: ASKING is about one command.
//
// AskReplicas sends one WAIT for each connection that it is about, in line with the frames.
//
// Not thread-safe; its client owns it.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/wire/transport.h"
#include "het_tf/ps/client/cluster.h"

namespace het {

class RedisTransport : public Transport {
 public:
  // `keys`: of the partitions, in order. The cluster's map is known already.
  RedisTransport(RedisCluster cluster, std::vector<std::string> keys, uint64_t hash_seed);

  uint32_t partitions() const override { return static_cast<uint32_t>(keys_.size()); }
  PartitionId id(uint32_t partition) const override { return {partition, partitions(), hash_seed_}; }
  Bytes Buffer(size_t size) override { return pool_.Take(size); }
  void Recycle(Bytes bytes) override { pool_.Give(std::move(bytes)); }
  uint32_t ShardOf(uint32_t partition) override;
  void Send(OutFrame frame) override;
  bool Poll(double seconds, std::vector<Event>* events) override;
  void Reset(uint32_t partition) override;
  uint64_t Connection(uint32_t partition) override;
  void AskReplicas(const std::vector<Mark>& marks, uint32_t replicas, double seconds) override;
  double LastMoved(uint32_t partition) override;
  std::string Where(uint32_t partition) override { return NodeOf(partition).ToString(); }
  void Descriptors(std::vector<pollfd>* descriptors) override;
  void Sleep(double seconds) override;
  double Now() override;

 private:
  static constexpr size_t kWindowBytes = size_t{1024} * 1024;

  // A reply to come.
  struct Owed {
    enum Kind { kFrame, kAsking, kWait } kind;
    std::vector<PartRef> parts;  // of kFrame
    std::vector<Mark> marks;     // of kWait
    bool pull = false;           // a frame without a push
    size_t bytes = 0;            // that the answer to it is expected to take
  };
  struct Server {
    std::unique_ptr<RedisConnection> connection;
    uint64_t number;  // of the connection
    std::deque<Owed> owed;
    std::deque<OutFrame> held;  // frames that go out later, oldest first
    size_t owed_bytes = 0;
    size_t pull_bytes = 0;  // of an answer to a pull, on the average of late

    bool Owes(uint32_t partition) const;
  };

  ServerNode NodeOf(uint32_t partition) const;
  Server* FindServer(const ServerNode& node);
  Server* ServerOf(uint32_t partition);
  Server* ServerAt(const ServerNode& node);
  void Enqueue(Server* server, OutFrame frame);
  void SendHeld(Server* server);
  void Write(Server* server);
  // Replies, and what is lost with a closed connection, become events.
  void Collect(Server* server, std::vector<RedisReply>* replies);
  void Lost(Server* server);
  // Asks the servers for the map of slots, at most once in kRefreshSeconds: many partitions may want it at
  // once. If nobody knows a new one, the client tries the old owners again.
  void LookForOwners();
  void Refused(const Owed& owed, const ServerNode& node, const std::string& error);
  void Counted(const Owed& wait, const ServerNode& node, const RedisReply& reply);

  RedisCluster cluster_;
  const std::vector<std::string> keys_;
  const uint64_t hash_seed_;
  std::vector<uint32_t> slots_;
  BytePool pool_;  // outlives the connections
  std::vector<std::unique_ptr<Server>> servers_;
  uint64_t connections_ = 0;              // that there ever were
  double refresh_at_ = 0;                 // not before then
  std::map<uint32_t, ServerNode> asked_;  // partitions in the middle of a move, and where to ask
  std::vector<Event> events_;
};

}  // namespace het
