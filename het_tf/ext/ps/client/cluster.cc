#include "het_tf/ext/ps/client/cluster.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>
#include <thread>

#include "het_tf/core/base/interrupt.h"
#include "het_tf/core/base/steady_seconds.h"
#include "het_tf/core/client/client.h"
#include "het_tf/ext/ps/client/tls_stream.h"
#include "het_tf/ext/ps/keyspace.h"

namespace het {
namespace {

// A server that has not answered a small question after this is skipped.
constexpr double kAnswerSeconds = 5;

// Limit on the remembered servers without slots.
constexpr size_t kMostOthers = 32;

constexpr char kNoModule[] = " has not loaded the het module; start it with --loadmodule PATH/het.so";
constexpr char kStrangeMap[] = "its answer to CLUSTER SLOTS is malformed";

// Parses HOST:PORT; an empty host means `from`'s.
bool ParseEndpoint(const std::string& text, const ServerNode& from, ServerNode* node) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return false;
  *node = from;
  node->path.clear();
  if (colon > 0) node->host = text.substr(0, colon);
  node->port = std::atoi(text.c_str() + colon + 1);
  return node->port > 0 && !node->host.empty();
}

// Parses [host, port, ...]; an empty host means `from`'s.
bool ParseNode(const RedisReply& reply, const ServerNode& from, ServerNode* node) {
  if (reply.array.size() < 2) return false;
  *node = from;
  node->path.clear();
  if (const std::string host = reply.array[0].text(); !host.empty() && host != "?") node->host = host;
  const int64_t port = reply.array[1].integer;
  node->port = static_cast<int>(port);
  return port >= 1 && port <= 65535;
}

bool Contains(const std::vector<ServerNode>& nodes, const ServerNode& node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

// A field of an answer to HELLO, a list of names and values; null if it is missing.
const RedisReply* FieldOf(const RedisReply& hello, const char* name) {
  for (size_t i = 0; i + 1 < hello.array.size(); i += 2) {
    if (hello.array[i].text() == name) return &hello.array[i + 1];
  }
  return nullptr;
}

bool HasModule(const RedisReply& modules) {
  return std::any_of(modules.array.begin(), modules.array.end(), [](const RedisReply& module) {
    const RedisReply* const name = FieldOf(module, "name");
    return name != nullptr && name->text() == "het";
  });
}

}  // namespace

Status StatusOfError(const std::string& error, const ServerNode& node) {
  if (error.find("exists with another spec") != std::string::npos) {
    return Status(Code::kAlreadyExists, node.ToString() + ": " + error);
  }
  if (StartsWith(error, "OOM")) return Status(Code::kResourceExhausted, node.ToString() + ": " + error);
  if (StartsWith(error, "ERR unknown command")) {
    return error.find("HET.") != std::string::npos
               ? FailedPrecondition(node.ToString() + kNoModule)
               : FailedPrecondition(node.ToString() + " refuses: " + error +
                                    "; take rename-command for it out of redis.conf");
  }
  if (StartsWith(error, "NOPERM")) {
    return FailedPrecondition(
        node.ToString() + " refuses: " + error +
        "; grant the user its rights (examples/deploy/users.conf), or give another login");
  }
  if (StartsWith(error, "DENIED")) {
    return FailedPrecondition(node.ToString() +
                              " refuses: it is in protected mode; give it a password (requirepass), or set "
                              "protected-mode no in a network that you trust");
  }
  return FailedPrecondition(node.ToString() + ": " + error);
}

bool ParseRedirect(const std::string& error, const ServerNode& from, Redirect* redirect) {
  std::istringstream words(error);
  std::string kind;
  std::string endpoint;
  if (!(words >> kind >> redirect->slot >> endpoint) || redirect->slot >= kSlots) return false;
  redirect->ask = kind == "ASK";
  return (redirect->ask || kind == "MOVED") && ParseEndpoint(endpoint, from, &redirect->node);
}

bool PassesByItself(const std::string& error) {
  return StartsWithAny(error, {"LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "BUSY", "READONLY"});
}

bool MayHaveMoved(const std::string& error) { return StartsWithAny(error, {"CLUSTERDOWN", "READONLY"}); }

ServerAddress RedisCluster::WithoutLogin(const ServerAddress& address) {
  ServerAddress without;
  without.tls = address.tls;
  return without;
}

bool RedisCluster::IsSentinel(const ServerNode& node) const {
  return !address_.service.empty() && Contains(address_.nodes, node);
}

const ServerAddress& RedisCluster::AddressOf(const ServerNode& node) const {
  return IsSentinel(node) && !sentinels_ask_login_ ? without_login_ : address_;
}

bool RedisCluster::AsksLogin(const ServerNode& node, const std::string& why) {
  if (sentinels_ask_login_ || !IsSentinel(node) || why.find("NOAUTH") == std::string::npos) return false;
  return sentinels_ask_login_ = true;
}

uint32_t RedisCluster::Number(const ServerNode& node) {
  const auto it = std::find(nodes_.begin(), nodes_.end(), node);
  if (it != nodes_.end()) return static_cast<uint32_t>(it - nodes_.begin());
  nodes_.push_back(node);
  return static_cast<uint32_t>(nodes_.size() - 1);
}

void RedisCluster::Moved(uint32_t slot, const ServerNode& node) { node_of_slot_[slot] = Number(node); }

RedisConnection* RedisCluster::ConnectionTo(const ServerNode& node) {
  for (auto& connection : connections_) {
    if (!(connection->node() == node)) continue;
    if (connection->closed()) connection = std::make_unique<RedisConnection>(node, AddressOf(node));
    return connection.get();
  }
  connections_.push_back(std::make_unique<RedisConnection>(node, AddressOf(node)));
  return connections_.back().get();
}

Status RedisCluster::ReadSlots(const RedisReply& reply, const ServerNode& from) {
  std::vector<ServerNode> nodes;
  std::vector<ServerNode> replicas;
  std::vector<uint32_t> node_of_slot(kSlots, UINT32_MAX);
  for (const RedisReply& range : reply.array) {  // [first, last, primary, replica, ...]
    ServerNode node;
    if (range.array.size() < 3 || !ParseNode(range.array[2], from, &node))
      return InvalidArgument(kStrangeMap);
    const int64_t first = range.array[0].integer;
    const int64_t last = range.array[1].integer;
    if (first < 0 || last >= kSlots) return InvalidArgument(kStrangeMap);
    auto known = std::find(nodes.begin(), nodes.end(), node);
    if (known == nodes.end()) known = nodes.insert(nodes.end(), node);
    for (size_t i = 3; i < range.array.size(); ++i) {
      ServerNode replica;
      if (ParseNode(range.array[i], from, &replica)) replicas.push_back(replica);
    }
    for (int64_t slot = first; slot <= last; ++slot) {
      node_of_slot[static_cast<size_t>(slot)] = static_cast<uint32_t>(known - nodes.begin());
    }
  }
  const auto gap = std::find(node_of_slot.begin(), node_of_slot.end(), UINT32_MAX);
  if (gap != node_of_slot.end()) {
    return Status(Code::kUnavailable, "slot " + std::to_string(gap - node_of_slot.begin()) +
                                          " has no server; `redis-cli --cluster fix` assigns it");
  }
  Remember(nodes_);
  Remember(replicas);
  nodes_ = std::move(nodes);
  node_of_slot_ = std::move(node_of_slot);
  return Status();
}

void RedisCluster::Remember(const std::vector<ServerNode>& others) {
  for (const ServerNode& node : others) {
    others_.erase(std::remove(others_.begin(), others_.end(), node), others_.end());
    others_.insert(others_.begin(), node);
  }
  if (others_.size() > kMostOthers) others_.resize(kMostOthers);
}

std::vector<ServerNode> RedisCluster::Candidates() const {
  if (!address_.service.empty()) return address_.nodes;
  std::vector<ServerNode> candidates = nodes_;
  for (const auto* more : {&address_.nodes, &others_}) {
    for (const ServerNode& node : *more) {
      if (!Contains(candidates, node)) candidates.push_back(node);
    }
  }
  return candidates;
}

std::vector<std::vector<std::string>> RedisCluster::Questions(const ServerNode& node) const {
  if (IsSentinel(node)) return {{"SENTINEL", "GET-MASTER-ADDR-BY-NAME", address_.service}};
  return {{"CLUSTER", "SLOTS"}, {"HELLO"}, {"ROLE"}};
}

Status RedisCluster::LearnFromSentinel(const RedisReply& reply, const ServerNode& from,
                                       std::optional<ServerNode>* named) {
  if (!reply.ok()) {
    return FailedPrecondition(from.ToString() + " is no Sentinel (" + reply.text() +
                              "); write redis:// for a server of tables");
  }
  if (reply.array.size() != 2) {
    return FailedPrecondition(from.ToString() + " knows no service '" + address_.service +
                              "'; `redis-cli SENTINEL MASTERS` there lists what it watches");
  }
  ServerNode node;
  if (!ParseEndpoint(reply.array[0].text() + ":" + reply.array[1].text(), from, &node))
    return FailedPrecondition(from.ToString() + " names a primary without host and port");
  *named = node;
  return Status(Code::kUnavailable, from.ToString() + " names " + node.ToString() + " as the primary");
}

Status RedisCluster::Learn(const std::vector<RedisReply>& replies, const ServerNode& from,
                           std::optional<ServerNode>* named) {
  if (IsSentinel(from)) return LearnFromSentinel(replies[0], from, named);
  const RedisReply& slots = replies[0];
  // A server may refuse HELLO and ROLE: then the others' answers must do.
  const RedisReply* const mode = FieldOf(replies[1], "mode");
  const RedisReply* const modules = FieldOf(replies[1], "modules");
  const RedisReply* const role = FieldOf(replies[1], "role");
  const bool replica = (role != nullptr && role->text() == "replica") ||
                       (!replies[2].array.empty() && replies[2].array[0].text() == "slave");
  if (mode != nullptr && mode->text() == "sentinel") {
    return FailedPrecondition(from.ToString() + " is a Sentinel; write redis+sentinel://" + from.ToString() +
                              "/SERVICE (`redis-cli SENTINEL MASTERS` there lists the services)");
  }
  if (modules != nullptr && !HasModule(*modules)) return FailedPrecondition(from.ToString() + kNoModule);
  if (slots.kind == RedisReply::kArray) {
    const Status read = ReadSlots(slots, from);
    return read.ok() ? read : Status(read.code(), from.ToString() + ": " + read.message());
  }
  const bool alone = mode != nullptr ? mode->text() != "cluster"
                                     : slots.text().find("cluster support disabled") != std::string::npos;
  if (!alone) return StatusOfError(slots.text(), from);
  if (replica) {
    const bool known = replies[2].array.size() > 2;
    const std::string primary =
        known ? " of " + replies[2].array[1].text() + ":" + std::to_string(replies[2].array[2].integer) : "";
    return Status(Code::kUnavailable,
                  from.ToString() + " is a read-only replica" + primary +
                      "; give the address of the primary, or both: redis://HOST:PORT,HOST:PORT");
  }
  nodes_ = {from};
  node_of_slot_.assign(kSlots, 0);
  return Status();
}

Status RedisCluster::Refresh(double seconds) {
  if (address_.tls && !known()) HET_RETURN_IF_ERROR(CheckTls(*address_.tls));
  std::string said;
  bool explained = false;
  bool lasting = true;  // no other try helps
  std::vector<ServerNode> candidates = Candidates();
  for (size_t i = 0; i < candidates.size(); ++i) {
    const ServerNode node = candidates[i];
    std::vector<RedisReply> replies;
    std::optional<ServerNode> named;
    Status learned = ConnectionTo(node)->Ask(Questions(node), std::min(seconds, kAnswerSeconds), &replies);
    if (!learned.ok() && AsksLogin(node, learned.message())) {
      --i;
      continue;
    }
    const bool answered = learned.ok();
    if (answered) learned = Learn(replies, node, &named);
    if (learned.ok() || learned.code() == Code::kCancelled) return learned;
    if (named) candidates.insert(candidates.begin() + static_cast<ptrdiff_t>(i + 1), *named);
    const std::string& why = learned.message();
    said += (said.empty() ? "" : "; ") + why;
    explained = explained || answered || why.find(" refuses") != std::string::npos ||
                why.find(" has no room ") != std::string::npos;
    lasting = lasting && learned.code() == Code::kFailedPrecondition;
  }
  if (!said.empty() && said.back() == '.') said.pop_back();  // ends the server's own sentence
  return Status(lasting ? Code::kFailedPrecondition : Code::kUnavailable,
                "no parameter server at " + address_.ToString() + ": " + said +
                    (explained ? "" : ". Check the address, and that the server runs"));
}

Result<RedisReply> RedisCluster::Ask(const std::string& key, const std::vector<std::string>& words,
                                     double seconds, bool repeatable) {
  const double start = SteadySeconds();
  const double end = start + seconds;
  double notice = kNoticeSeconds;
  const uint32_t slot = SlotOf(key);
  Status last;
  const ServerNode* asked = nullptr;  // set by an ASK answer: the next try goes to this server
  Redirect redirect;
  while (SteadySeconds() < end) {
    if (!known()) {
      last = Refresh(end - SteadySeconds());
      if (!last.ok()) return last;
    }
    const ServerNode node = asked != nullptr ? *asked : NodeOf(slot);
    RedisConnection* connection = ConnectionTo(node);
    if (asked != nullptr) static_cast<void>(connection->Ask({"ASKING"}, end - SteadySeconds()));
    asked = nullptr;
    auto reply = connection->Ask(words, std::max(end - SteadySeconds(), 0.01));
    if (reply.ok() && reply.value().ok()) return reply;
    if (reply.ok()) {
      const std::string error = reply.value().text();
      last = StatusOfError(error, node);
      if (ParseRedirect(error, node, &redirect)) {
        if (redirect.ask) {
          asked = &redirect.node;
        } else {
          Moved(redirect.slot, redirect.node);
        }
        continue;
      }
      if (!PassesByItself(error)) return last;
      if (MayHaveMoved(error)) static_cast<void>(Refresh(std::max(end - SteadySeconds(), 0.01)));
    } else {
      last = reply.status();
      if (last.code() == Code::kCancelled) return last;
      if (!repeatable && connection->wrote()) {
        return Status(Code::kUnavailable, last.message() + "; the command may have been carried out or not");
      }
      static_cast<void>(Refresh(std::max(end - SteadySeconds(), 0.01)));  // the server may have a successor
    }
    if (Interrupts::Due(start)) {
      return Status(Code::kCancelled,
                    words[0] + " " + key + ": " + last.message() + "; the wait was interrupted");
    }
    if (notice_ != nullptr && SteadySeconds() >= start + notice) {
      notice_(words[0] + " " + key + " waited for " + Seconds(std::floor(SteadySeconds() - start)) + "; " +
              last.message() + "; it is tried again for " + Seconds(std::ceil(end - SteadySeconds())));
      notice *= 2;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return Status(Code::kUnavailable, words[0] + " " + key + ": " + last.message() + " (for " +
                                        Seconds(seconds) +
                                        "). Check the server, or raise het_tf.Store(deadline=...)");
}

Status RedisCluster::AskAll(const std::vector<Command>& commands, double seconds,
                            std::vector<RedisReply>* replies, const char* fine) {
  const double end = SteadySeconds() + seconds;
  const auto is_fine = [fine](const std::string& error) {
    return fine != nullptr && error.find(fine) != std::string::npos;
  };
  if (!known()) HET_RETURN_IF_ERROR(Refresh(seconds));
  std::map<uint32_t, std::vector<size_t>> by_server;
  for (size_t i = 0; i < commands.size(); ++i) {
    by_server[node_of_slot_[SlotOf(commands[i].key)]].push_back(i);
  }
  replies->assign(commands.size(), RedisReply());
  std::vector<uint8_t> answered(commands.size());
  for (const auto& [server, which] : by_server) {
    std::vector<std::vector<std::string>> words;
    for (size_t i : which) words.push_back(commands[i].words);
    std::vector<RedisReply> some;
    // Missing replies and errors are asked again below, with redirects and waiting.
    static_cast<void>(ConnectionTo(nodes_[server])->Ask(words, std::min(seconds, kAnswerSeconds), &some));
    for (size_t i = 0; i < some.size(); ++i) {
      answered[which[i]] = some[i].ok() || is_fine(some[i].text());
      (*replies)[which[i]] = std::move(some[i]);
    }
  }
  for (size_t i = 0; i < commands.size(); ++i) {
    if (answered[i]) continue;
    auto reply = Ask(commands[i].key, commands[i].words, std::max(end - SteadySeconds(), 0.01));
    if (!reply.ok()) {
      if (is_fine(reply.status().message())) continue;
      return reply.status();
    }
    (*replies)[i] = std::move(reply.value());
  }
  return Status();
}

Result<RedisReply> RedisCluster::AskServer(const ServerNode& node, const std::vector<std::string>& words) {
  return ConnectionTo(node)->Ask(words, kAnswerSeconds);
}

}  // namespace het
