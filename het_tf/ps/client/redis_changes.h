// Asks partitions in Redis for their changes (core/follow/change_source.h), over one connection to each
// server.
//
//   AskPage    HET.CHANGES key SINCE position CURSOR cursor MAXBYTES bytes [ROWS format]
//   AskTables  HET.STAT key TABLES id, for each table
//
// Errors become answers, and the follower asks again after a pause:
//   MOVED        corrects the map
//   ASK          the partition's next questions go to the named server, each behind ASKING
//   a replica    (no cluster mode:) the server of the address that is none gets the questions
//   a closed connection, or no byte for `timeout` seconds: answers for all partitions that wait for it
// While there are such errors, all servers of the map and the address, or the Sentinels, are asked for the
// owners (RedisCluster::Questions), once a second; the first one that answers has them.
//
// No call waits, except to resolve a host's name. The server's user needs these rights: CLUSTER SLOTS, HGET
// of the namespace's key, HET.STAT, HET.CHANGES.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/follow/change_source.h"
#include "het_tf/ps/client/cluster.h"

namespace het {

// Takes the page out of an answer of HET.CHANGES. Returns false if it is something else.
bool ReadChangesPage(RedisReply* reply, ChangesPage* page);

class RedisChanges : public follow::ChangeSource {
 public:
  // FailedPrecondition: the server does not have the namespace. Unavailable: no answer within `timeout`
  // seconds, which is also the limit on a server's silence later. This call waits.
  static Result<std::unique_ptr<RedisChanges>> Open(const ServerAddress& address,
                                                    const std::string& name_space, double timeout);

  uint32_t partitions() const override { return static_cast<uint32_t>(keys_.size()); }
  uint64_t hash_seed() const override { return hash_seed_; }
  std::string Where(uint32_t partition) const override { return NodeOf(partition).ToString(); }
  void AskPage(uint32_t partition, const ChangesRequest& request) override;
  void AskTables(uint32_t partition, const std::vector<std::string>& names) override;
  void Collect(std::vector<follow::ChangeAnswer>* answers) override;
  void Descriptors(std::vector<pollfd>* descriptors) override;

 private:
  // An outstanding reply.
  struct Owed {
    enum Kind { kPage, kTable, kAsking, kOwners } kind;
    uint32_t partition = 0;
    size_t table = 0;  // kTable, kOwners: its place in the question
    double since = 0;  // when it was asked for
  };
  struct Server {
    std::unique_ptr<RedisConnection> connection;
    std::deque<Owed> owed;
    std::vector<RedisReply> owners;  // the answers about owners so far
    double connect_at = 0;           // no new connection before this time
  };
  // A question about tables: the answers so far.
  struct Tables {
    std::vector<std::string> names;
    follow::ChangeAnswer answer;
    size_t missing = 0;
  };

  RedisChanges(RedisCluster cluster, std::vector<std::string> keys, uint64_t hash_seed, double timeout);

  ServerNode NodeOf(uint32_t partition) const;
  // Whether no connection to the server is open.
  bool IsAway(const ServerNode& node) const;
  Server* ServerAt(const ServerNode& node);
  // Queues commands to the partition's server; if there is no connection to it, fails the question.
  void Send(uint32_t partition, Owed::Kind kind, const std::vector<std::vector<std::string>>& commands);
  void Read(Server* server);
  void Take(Server* server, const Owed& owed, RedisReply* reply);
  void TakeOwners(Server* server, size_t number, RedisReply* reply);
  void TakeTable(const Owed& owed, const ServerNode& node, const RedisReply& reply);
  void Fail(uint32_t partition, Status status);
  Status Refused(uint32_t partition, const ServerNode& node, const std::string& error);
  void Lost(Server* server);
  void LookForOwners();
  void AskForOwners(const ServerNode& node);

  RedisCluster cluster_;
  const std::vector<std::string> keys_;
  const uint64_t hash_seed_;
  const double timeout_;
  std::vector<uint32_t> slots_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::map<uint32_t, ServerNode> asked_;  // partitions in the middle of a move, and their new servers
  std::map<uint32_t, Tables> tables_;     // questions about tables, by partition
  std::vector<follow::ChangeAnswer> answers_;
  double look_at_ = 0;  // the owners are not asked for before this time
  bool looking_ = false;
  bool is_replica_ = false;  // the server in use, without cluster mode
};

}  // namespace het
