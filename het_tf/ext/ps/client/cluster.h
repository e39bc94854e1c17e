// Maps slots to servers, and sends single commands, following redirects. A server without cluster mode has
// all slots.
//
// A command that fails for a transient reason is retried. A notice says what it waits for, after five seconds
// and then at growing intervals.
//
// The map is the last answer of some server (CLUSTER SLOTS); a MOVED answer corrects it. Replicas in a map,
// and servers that lost their slots, are remembered: if all servers with slots fail, one of these knows the
// successor, even if the address names a single server.
//
// Without cluster mode, the server of the address that is no replica gets all slots (HELLO, ROLE): the
// addresses of a pair may change roles. Sentinels are asked for it each time.
//
// Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "het_tf/ext/ps/client/connection.h"

namespace het {

// The target of a MOVED or ASK error; `from` fills in a missing host. Empty for another error.
struct Redirect {
  bool ask = false;
  uint32_t slot = 0;
  ServerNode node;
};
bool ParseRedirect(const std::string& error, const ServerNode& from, Redirect* redirect);
// Returns whether an error is transient: LOADING, CLUSTERDOWN, TRYAGAIN, MASTERDOWN, BUSY, READONLY.
bool PassesByItself(const std::string& error);
// Returns whether another server may have the slots by now: CLUSTERDOWN, READONLY.
bool MayHaveMoved(const std::string& error);
// The Status of a server's other errors: ResourceExhausted for OutOfMemory, AlreadyExists for another spec,
// else FailedPrecondition with the server's text and a remedy.
Status StatusOfError(const std::string& error, const ServerNode& node);

class RedisCluster {
 public:
  using Notice = std::function<void(const std::string&)>;

  explicit RedisCluster(ServerAddress address, Notice notice = nullptr)
      : address_(std::move(address)), notice_(std::move(notice)) {}

  // Asks known servers in turn, at most five seconds each, until one answers: those with slots, those of the
  // address, the others. Unavailable lists their answers; FailedPrecondition, if all say that they are
  // something else than servers of tables. The first call begins with CheckTls.
  Status Refresh(double seconds);
  bool known() const { return !nodes_.empty(); }
  const ServerNode& NodeOf(uint32_t slot) const { return nodes_[node_of_slot_[slot]]; }
  const std::vector<ServerNode>& nodes() const { return nodes_; }
  // The servers that Refresh asks, in this order: with Sentinels only these.
  std::vector<ServerNode> Candidates() const;
  // Whether anybody may know a successor of the servers in use.
  bool has_others() const { return !address_.service.empty() || Candidates().size() > 1; }
  // What a server, or a Sentinel, is asked for the owners of slots.
  std::vector<std::vector<std::string>> Questions(const ServerNode& node) const;
  // Takes the answers to Questions. An error says what is wrong with the server; from a Sentinel it says
  // which server was `named`, to ask next.
  Status Learn(const std::vector<RedisReply>& replies, const ServerNode& from,
               std::optional<ServerNode>* named);
  // The options of a connection: Sentinels get no login, unless one has asked for it.
  const ServerAddress& AddressOf(const ServerNode& node) const;
  // Call with the reason for which a connection failed. Returns whether another try has better prospects.
  bool AsksLogin(const ServerNode& node, const std::string& why);
  // Applies a MOVED answer, until the next Refresh.
  void Moved(uint32_t slot, const ServerNode& node);
  const ServerAddress& address() const { return address_; }

  // Sends one command about `key` to the key's server; waits at most `seconds`, retrying transient errors. A
  // Redis error becomes a Status: ResourceExhausted for OutOfMemory, else FailedPrecondition with the
  // server's text, or, for a missing command, saying that the module is not loaded. If not `repeatable`, a
  // command that may have been carried out is not sent again; the call fails with Unavailable.
  Result<RedisReply> Ask(const std::string& key, const std::vector<std::string>& words, double seconds,
                         bool repeatable = true);
  // Sends many repeatable commands, each about its key; those to one server are pipelined. Replies are in the
  // order of the commands. Failed commands are retried as by Ask, and the first permanent failure is
  // returned. An error that contains `fine` counts as a reply.
  struct Command {
    std::string key;
    std::vector<std::string> words;
  };
  Status AskAll(const std::vector<Command>& commands, double seconds, std::vector<RedisReply>* replies,
                const char* fine = nullptr);
  // Sends one command to one server, without redirects; a Redis error is a reply.
  Result<RedisReply> AskServer(const ServerNode& node, const std::vector<std::string>& words);

 private:
  RedisConnection* ConnectionTo(const ServerNode& node);
  bool IsSentinel(const ServerNode& node) const;
  Status LearnFromSentinel(const RedisReply& reply, const ServerNode& from, std::optional<ServerNode>* named);
  uint32_t Number(const ServerNode& node);
  Status ReadSlots(const RedisReply& reply, const ServerNode& from);
  void Remember(const std::vector<ServerNode>& others);
  static ServerAddress WithoutLogin(const ServerAddress& address);

  const ServerAddress address_;
  const Notice notice_;
  ServerAddress without_login_ = WithoutLogin(address_);
  bool sentinels_ask_login_ = false;
  std::vector<ServerNode> nodes_;   // with slots
  std::vector<ServerNode> others_;  // replicas, and servers that had slots; newest first
  std::vector<uint32_t> node_of_slot_;
  std::vector<std::unique_ptr<RedisConnection>> connections_;
};

}  // namespace het
