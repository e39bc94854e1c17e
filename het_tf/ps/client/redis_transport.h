// Sends frames to partitions in Redis, over one connection to each server.
//
//   Send ──► HET.STEP or HET.READ key frame ──► the connection of the partition's server
//   Poll ◄── replies, in order: a frame, or an error of Redis
//
// Errors become events:
//   MOVED                      corrects the map; kRefused, so that the client sends again, in order
//   ASK                        the partition's next frames go to the named server, each behind ASKING, until
//                              its slot's owner is known; kRefused
//   OOM                        kRefused with kStoreOutOfMemory
//   LOADING, CLUSTERDOWN, ...  kRefused with the server's text; CLUSTERDOWN also refreshes the map
//   (each of these once for every part of the frame)
//   a closed connection        kClosed for every partition with a reply outstanding
//
// A server computes all answers to the commands that it has read before it writes the first. So it idles
// while answers travel, and the client idles while they are computed. Therefore pulls from a server on this
// machine are sent until kWindowBytes of answers are outstanding; the rest is held here, in order, until half
// of that has arrived. This means few writes and little waiting. Over a network pulls are sent at once, since
// the round trip costs more.
//
// Partitions of one server share frames, under the key of the first part. A partition in the middle of a move
// gets frames of its own, since ASKING applies to one command.
//
// AskReplicas sends one WAIT, after earlier frames, on each connection that is concerned.
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
  // `keys`: of the partitions, in order. The cluster's map must be known.
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

  // An outstanding reply.
  struct Owed {
    enum Kind { kFrame, kAsking, kWait } kind;
    std::vector<PartRef> parts;  // for kFrame
    std::vector<Mark> marks;     // for kWait
    bool pull = false;           // a frame without a push
    size_t bytes = 0;            // expected size of the answer
  };
  struct Server {
    std::unique_ptr<RedisConnection> connection;
    uint64_t number;  // of the connection, unique
    std::deque<Owed> owed;
    std::deque<OutFrame> held;  // frames to send later, oldest first
    size_t owed_bytes = 0;
    size_t pull_bytes = 0;  // recent average size of an answer to a pull

    bool Owes(uint32_t partition) const;
  };

  ServerNode NodeOf(uint32_t partition) const;
  Server* FindServer(const ServerNode& node);
  Server* ServerOf(uint32_t partition);
  Server* ServerAt(const ServerNode& node);
  void Enqueue(Server* server, OutFrame frame);
  void SendHeld(Server* server);
  void Write(Server* server);
  // Turns replies, and requests lost with a closed connection, into events.
  void Collect(Server* server, std::vector<RedisReply>* replies);
  void Lost(Server* server);
  // Refreshes the map of slots, at most once in kRefreshSeconds, since many partitions may need it at once.
  // If no server has a new map, the client tries the old owners again.
  void LookForOwners();
  void Refused(const Owed& owed, const ServerNode& node, const std::string& error);
  void Counted(const Owed& wait, const ServerNode& node, const RedisReply& reply);

  RedisCluster cluster_;
  const std::vector<std::string> keys_;
  const uint64_t hash_seed_;
  std::vector<uint32_t> slots_;
  BytePool pool_;  // outlives the connections
  std::vector<std::unique_ptr<Server>> servers_;
  uint64_t connections_ = 0;              // number made so far
  double refresh_at_ = 0;                 // the next refresh is not before this time
  std::map<uint32_t, ServerNode> asked_;  // partitions in the middle of a move, and their new servers
  std::vector<Event> events_;
};

}  // namespace het
