#include "het_tf/ps/client/cluster.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>
#include <thread>

#include "het_tf/core/client.h"
#include "het_tf/ps/client/keyspace.h"

namespace het {
namespace {

bool StartsWith(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

// A server that has not answered a small question for so long is passed over.
constexpr double kAnswerSeconds = 5;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// HOST:PORT; an empty host is that of `from`.
bool ParseEndpoint(const std::string& text, const ServerNode& from, ServerNode* node) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return false;
  *node = from;
  node->path.clear();
  if (colon > 0) node->host = text.substr(0, colon);
  node->port = std::atoi(text.c_str() + colon + 1);
  return node->port > 0 && !node->host.empty();
}

Status FromError(const std::string& error, const ServerNode& node) {
  if (error.find("exists with another spec") != std::string::npos) {
    return Status(Code::kAlreadyExists, node.ToString() + ": " + error);
  }
  if (StartsWith(error, "OOM")) return Status(Code::kResourceExhausted, node.ToString() + ": " + error);
  if (StartsWith(error, "ERR unknown command")) {
    return FailedPrecondition(node.ToString() +
                              " has not loaded the het module; start it with --loadmodule PATH/het.so");
  }
  if (StartsWith(error, "WRONGPASS") || StartsWith(error, "NOAUTH") || StartsWith(error, "NOPERM")) {
    return FailedPrecondition(node.ToString() + " refuses: " + error +
                              "; give user and password as redis://USER:PASSWORD@HOST:PORT, and grant the "
                              "user the HET commands");
  }
  return FailedPrecondition(node.ToString() + ": " + error);
}

}  // namespace

bool ParseRedirect(const std::string& error, const ServerNode& from, Redirect* redirect) {
  std::istringstream words(error);
  std::string kind;
  std::string endpoint;
  if (!(words >> kind >> redirect->slot >> endpoint) || redirect->slot >= kSlots) return false;
  redirect->ask = kind == "ASK";
  return (redirect->ask || kind == "MOVED") && ParseEndpoint(endpoint, from, &redirect->node);
}

bool PassesByItself(const std::string& error) {
  for (const char* prefix : {"LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "BUSY"}) {
    if (StartsWith(error, prefix)) return true;
  }
  return false;
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
    if (connection->closed()) {
      connection = std::make_unique<RedisConnection>(node, address_.user, address_.password);
    }
    return connection.get();
  }
  connections_.push_back(std::make_unique<RedisConnection>(node, address_.user, address_.password));
  return connections_.back().get();
}

Status RedisCluster::ReadSlots(const RedisReply& reply, const ServerNode& from) {
  std::vector<ServerNode> nodes;
  std::vector<uint32_t> node_of_slot(kSlots, UINT32_MAX);
  for (const RedisReply& range : reply.array) {  // [first, last, [host, port, ...] of the primary, ...]
    if (range.array.size() < 3 || range.array[2].array.size() < 2) return InvalidArgument("CLUSTER SLOTS");
    const RedisReply& primary = range.array[2];
    ServerNode node = from;
    node.path.clear();
    if (const std::string host = primary.array[0].text(); !host.empty() && host != "?") node.host = host;
    node.port = static_cast<int>(primary.array[1].integer);
    auto known = std::find(nodes.begin(), nodes.end(), node);
    if (known == nodes.end()) known = nodes.insert(nodes.end(), node);
    for (int64_t slot = range.array[0].integer; slot <= range.array[1].integer && slot < kSlots; ++slot) {
      node_of_slot[static_cast<size_t>(slot)] = static_cast<uint32_t>(known - nodes.begin());
    }
  }
  const auto gap = std::find(node_of_slot.begin(), node_of_slot.end(), UINT32_MAX);
  if (gap != node_of_slot.end()) {
    return Status(Code::kUnavailable, "slot " + std::to_string(gap - node_of_slot.begin()) +
                                          " has no server; `redis-cli --cluster fix` assigns it");
  }
  nodes_ = std::move(nodes);
  node_of_slot_ = std::move(node_of_slot);
  return Status();
}

Status RedisCluster::Refresh(double seconds) {
  std::vector<ServerNode> candidates = nodes_;
  for (const ServerNode& node : address_.nodes) {
    if (std::find(candidates.begin(), candidates.end(), node) == candidates.end()) candidates.push_back(node);
  }
  std::string said;
  for (const ServerNode& node : candidates) {
    auto reply = ConnectionTo(node)->Ask({"CLUSTER", "SLOTS"}, std::min(seconds, kAnswerSeconds));
    std::string why;
    if (!reply.ok()) {
      why = reply.status().message();
    } else if (reply.value().kind == RedisReply::kArray) {
      const Status read = ReadSlots(reply.value(), node);
      if (read.ok()) return read;
      why = node.ToString() + ": " + read.message();
    } else if (reply.value().text().find("cluster support disabled") != std::string::npos) {
      nodes_ = {node};
      node_of_slot_.assign(kSlots, 0);
      return Status();
    } else {
      why = FromError(reply.value().text(), node).message();
    }
    said += (said.empty() ? "" : "; ") + why;
  }
  return Status(Code::kUnavailable, "no parameter server at " + address_.ToString() + ": " + said +
                                        ". Check the address, and that the server runs");
}

Result<RedisReply> RedisCluster::Ask(const std::string& key, const std::vector<std::string>& words,
                                     double seconds, bool repeatable) {
  const double start = Now();
  const double end = start + seconds;
  double notice = kNoticeSeconds;
  const uint32_t slot = SlotOf(key);
  Status last;
  const ServerNode* asked = nullptr;  // an ASK answer: once, at this server
  Redirect redirect;
  while (Now() < end) {
    if (!known()) {
      last = Refresh(end - Now());
      if (!last.ok()) return last;
    }
    const ServerNode node = asked != nullptr ? *asked : NodeOf(slot);
    RedisConnection* connection = ConnectionTo(node);
    if (asked != nullptr) static_cast<void>(connection->Ask({"ASKING"}, end - Now()));
    asked = nullptr;
    auto reply = connection->Ask(words, std::max(end - Now(), 0.01));
    if (reply.ok() && reply.value().ok()) return reply;
    if (reply.ok()) {
      const std::string error = reply.value().text();
      last = FromError(error, node);
      if (ParseRedirect(error, node, &redirect)) {
        if (redirect.ask) {
          asked = &redirect.node;
        } else {
          Moved(redirect.slot, redirect.node);
        }
        continue;
      }
      if (!PassesByItself(error)) return last;
    } else {
      last = reply.status();
      if (!repeatable && connection->wrote()) {
        return Status(Code::kUnavailable, last.message() + "; what was asked may have been done or not");
      }
      static_cast<void>(Refresh(std::max(end - Now(), 0.01)));  // the server may have a successor
    }
    if (notice_ != nullptr && Now() >= start + notice) {
      notice_(words[0] + " " + key + " waited for " + Seconds(std::floor(Now() - start)) + "; " +
              last.message() + "; it is tried again for " + Seconds(std::ceil(end - Now())));
      notice *= 2;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return Status(Code::kUnavailable, words[0] + " " + key + ": " + last.message() + " (for " +
                                        Seconds(seconds) +
                                        "). Check the server, or raise het_tf.init(deadline=...)");
}

Status RedisCluster::AskAll(const std::vector<Command>& commands, double seconds,
                            std::vector<RedisReply>* replies) {
  const double end = Now() + seconds;
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
    // What does not come, or is an error, is asked again below, where redirects and waiting are known.
    static_cast<void>(ConnectionTo(nodes_[server])->Ask(words, std::min(seconds, kAnswerSeconds), &some));
    for (size_t i = 0; i < some.size(); ++i) {
      answered[which[i]] = some[i].ok();
      (*replies)[which[i]] = std::move(some[i]);
    }
  }
  for (size_t i = 0; i < commands.size(); ++i) {
    if (answered[i]) continue;
    auto reply = Ask(commands[i].key, commands[i].words, std::max(end - Now(), 0.01));
    if (!reply.ok()) return reply.status();
    (*replies)[i] = std::move(reply.value());
  }
  return Status();
}

Result<RedisReply> RedisCluster::AskServer(const ServerNode& node, const std::vector<std::string>& words) {
  return ConnectionTo(node)->Ask(words, kAnswerSeconds);
}

}  // namespace het
