// Which server has which slot, and one-off commands that follow redirects. For a server without
// cluster mode every slot is on it.
//
// A command that fails for a reason that passes is tried again; after five seconds, and then at
// ever longer intervals, a notice says what is waited for.
//
// The map is what one of the servers said last (CLUSTER SLOTS); a MOVED answer corrects it.
// Replicas that a map named, and servers that lost their slots, are remembered: when the servers
// with slots are gone, one of these knows who took over, even where the address names a single
// server.
//
// Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "het_tf/ps/client/connection.h"

namespace het {

// Where a MOVED or ASK error points to; `from` fills in a missing host. Nothing: it is neither.
struct Redirect {
  bool ask = false;
  uint32_t slot = 0;
  ServerNode node;
};
bool ParseRedirect(const std::string& error, const ServerNode& from, Redirect* redirect);
// Errors that pass by themselves: LOADING, CLUSTERDOWN, TRYAGAIN, MASTERDOWN, BUSY.
bool PassesByItself(const std::string& error);

class RedisCluster {
 public:
  using Notice = std::function<void(const std::string&)>;

  explicit RedisCluster(ServerAddress address, Notice notice = nullptr)
      : address_(std::move(address)), notice_(std::move(notice)) {}

  // Asks the servers that it knows of, one after the other, at most five seconds each, until one
  // answers: those with slots, those of the address, the others. Unavailable says what each of them
  // said. The first time, errors of CheckTls come before that.
  Status Refresh(double seconds);
  bool known() const { return !nodes_.empty(); }
  const ServerNode& NodeOf(uint32_t slot) const { return nodes_[node_of_slot_[slot]]; }
  const std::vector<ServerNode>& nodes() const { return nodes_; }
  // Whom Refresh asks, in this order.
  std::vector<ServerNode> Candidates() const;
  // What a MOVED answer said, until the next Refresh.
  void Moved(uint32_t slot, const ServerNode& node);
  const ServerAddress& address() const { return address_; }

  // One command about `key`, wherever the key is; waits at most `seconds`, retrying what passes by
  // itself. A Redis error becomes a Status: OutOfMemory errors ResourceExhausted, a missing command
  // FailedPrecondition (the module is not loaded), others FailedPrecondition with the server's
  // text. Not `repeatable`: once it may have been carried out it is not sent again; the call then
  // fails with Unavailable.
  Result<RedisReply> Ask(const std::string& key, const std::vector<std::string>& words, double seconds,
                         bool repeatable = true);
  // Many commands that may be carried out twice, each about its key: those of one server travel
  // together. The replies are in the order of the commands; those that fail are asked again as Ask
  // does, and the first that fails for good is returned. An error that contains `fine` is an answer
  // like any other.
  struct Command {
    std::string key;
    std::vector<std::string> words;
  };
  Status AskAll(const std::vector<Command>& commands, double seconds, std::vector<RedisReply>* replies,
                const char* fine = nullptr);
  // One command to one server, no redirects; a Redis error is a reply.
  Result<RedisReply> AskServer(const ServerNode& node, const std::vector<std::string>& words);

 private:
  RedisConnection* ConnectionTo(const ServerNode& node);
  uint32_t Number(const ServerNode& node);
  Status ReadSlots(const RedisReply& reply, const ServerNode& from);
  void Remember(const std::vector<ServerNode>& others);

  const ServerAddress address_;
  const Notice notice_;
  std::vector<ServerNode> nodes_;   // with slots
  std::vector<ServerNode> others_;  // replicas, and servers that had slots; newest first
  std::vector<uint32_t> node_of_slot_;
  std::vector<std::unique_ptr<RedisConnection>> connections_;
};

}  // namespace het
