// Questions to the partitions in Redis, pipelined: Ask(parts, command) ──► answer, over one connection to
// each server. No call waits, except Poll for as long as it is told, and to resolve a host's name.
//
// Every question gets exactly one answer; those of one server come in the order of its questions. Errors
// correct what is known about servers:
//   MOVED                   corrects the map
//   ASK                     the partition's next questions go to the named server, each behind ASKING, until
//                           its slot's owner is known
//   CLUSTERDOWN, a replica  the owners of slots are asked for
//   a closed connection     kLost for its questions, and the owners are asked for. The next question connects
//                           again, at most once in kReconnectSeconds: before, it is lost at once
// The owners: all servers of the map and the address, or the Sentinels, are asked (RedisCluster::Questions),
// at most once a second. Without cluster mode another server of the address gets the partitions if it is no
// replica and the one in use is, or does not answer.
//
// A server computes all answers to the commands that it has read before it writes the first. So it idles
// while answers travel, and the client idles while they are computed. Therefore frames to a server on this
// machine are sent until kWindowBytes of answers to pulls are outstanding; the rest is held here, in order,
// until half of that has arrived. This means few writes and little waiting. Over a network frames are sent at
// once, since the round trip costs more.
//
// Not thread-safe.
#pragma once

#include <poll.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/wire/out_frame.h"
#include "het_tf/ext/ps/client/cluster.h"

namespace het {

class RedisPipeline {
 public:
  struct Answer {
    enum Kind { kReply, kError, kLost } kind = kLost;
    std::vector<PartRef> parts;  // of the question
    RedisReply reply;            // kReply
    std::string error;           // kError: the server's text; kLost: the reason
    ServerNode node;             // that answered
    bool moving = false;         // kError: the partition is on its way to this server
  };
  // Is called once, perhaps by Ask itself. It may not call the pipeline.
  using Then = std::function<void(Answer)>;

  // `keys`: of the partitions, in order. The cluster's map must be known. `silence`: seconds without a byte
  // after which a server that owes answers is given up; 0: never.
  RedisPipeline(RedisCluster cluster, std::vector<std::string> keys, double silence);

  const std::vector<std::string>& keys() const { return keys_; }
  BytePool* pool() { return &pool_; }

  // Queues a command, whose key is that of the first part's partition, until the next Write.
  void Ask(std::vector<PartRef> parts, const std::vector<std::string>& words, Then then);
  void Ask(OutFrame frame, Then then);  // HET.STEP or HET.READ
  // Queues a command on the partition's open connection; false: there is none. An error is a reply here.
  bool AskServer(uint32_t partition, const std::vector<std::string>& words, Then then);
  // Sends what is queued.
  void Write();
  // Sends, and reads answers; waits at most `seconds` for the first byte. Returns false if no server owes
  // anything.
  bool Poll(double seconds);
  void Descriptors(std::vector<pollfd>* descriptors) const;

  // Closes all connections that owe the partition an answer; if none does, that to its server.
  void Reset(uint32_t partition);
  ServerNode NodeOf(uint32_t partition) const;
  // Partitions with equal numbers are at one server, and none is in the middle of a move.
  uint32_t ShardOf(uint32_t partition) const;
  // Identifies the open connection to the partition's server; 0: there is none.
  uint64_t Connection(uint32_t partition) const;
  // When bytes last moved on a connection that owes the partition an answer; 0: never.
  double LastMoved(uint32_t partition) const;

 private:
  static constexpr size_t kWindowBytes = size_t{1024} * 1024;

  // An outstanding answer.
  struct Question {
    std::vector<PartRef> parts;  // empty: it is about the server
    Then then;                   // null: of ASKING
    double since = 0;            // when it was asked
    bool pull = false;           // a frame without a push
    size_t bytes = 0;            // expected size of the answer
  };
  struct Held {
    OutFrame frame;
    Then then;
  };
  struct Server {
    std::unique_ptr<RedisConnection> connection;
    uint64_t number = 0;  // of the connection, unique
    double connect_at = 0;
    std::deque<Question> owed;
    std::deque<Held> held;  // frames to send later, oldest first
    size_t owed_bytes = 0;
    size_t pull_bytes = 0;           // recent average size of an answer to a pull
    bool looking = false;            // it owes answers about owners
    std::vector<RedisReply> owners;  // those that have come

    bool closed() const { return connection->closed(); }
    bool Owes(uint32_t partition) const;
  };

  Server* Find(const ServerNode& node) const;
  Server* ServerAt(const ServerNode& node);  // its connection may be closed
  // Returns the server of the first part; null, if there is no connection: then the question is lost.
  Server* Begin(const std::vector<PartRef>& parts, const Then& then);
  void Asking(Server* server, uint32_t partition);
  void Enqueue(Server* server, OutFrame frame, Then then);
  void SendHeld(Server* server);
  void Write(Server* server);
  void Read(Server* server);
  void Take(Server* server, Question question, RedisReply reply);
  // Learns from an error.
  void Refused(Answer* answer);
  void CloseSilent(Server* server);
  void Lost(Server* server);
  void LookForOwners();
  void AskForOwners(const ServerNode& node);
  void TakeOwners(Server* server, Answer answer);

  RedisCluster cluster_;
  const std::vector<std::string> keys_;
  const double silence_;
  std::vector<uint32_t> slots_;
  BytePool pool_;  // outlives the connections
  std::vector<std::unique_ptr<Server>> servers_;
  uint64_t connections_ = 0;              // number made so far
  std::map<uint32_t, ServerNode> asked_;  // partitions in the middle of a move, and their new servers
  bool looking_ = false;                  // the owners are to be asked for
  double look_at_ = 0;                    // not before this time
  bool is_replica_ = false;               // the server in use, without cluster mode
};

}  // namespace het
