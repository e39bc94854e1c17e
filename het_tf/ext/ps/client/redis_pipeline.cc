#include "het_tf/ext/ps/client/redis_pipeline.h"

#include <algorithm>
#include <utility>

#include "het_tf/core/base/steady_seconds.h"
#include "het_tf/ext/ps/keyspace.h"

namespace het {
namespace {

constexpr double kLookSeconds = 1;          // between two searches for the owners of slots
constexpr double kReconnectSeconds = 0.05;  // between two connections to a server

bool IsLocal(const ServerNode& node) {
  return node.host.empty() || node.host == "localhost" || node.host == "::1" || StartsWith(node.host, "127.");
}

bool Has(const std::vector<PartRef>& parts, uint32_t partition) {
  return std::any_of(parts.begin(), parts.end(),
                     [partition](const PartRef& part) { return part.partition == partition; });
}

}  // namespace

RedisPipeline::RedisPipeline(RedisCluster cluster, std::vector<std::string> keys, double silence)
    : cluster_(std::move(cluster)), keys_(std::move(keys)), silence_(silence) {
  for (const std::string& key : keys_) slots_.push_back(SlotOf(key));
}

bool RedisPipeline::Server::Owes(uint32_t partition) const {
  return std::any_of(owed.begin(), owed.end(), [&](const auto& one) { return Has(one.parts, partition); }) ||
         std::any_of(held.begin(), held.end(),
                     [&](const auto& one) { return Has(one.frame.parts, partition); });
}

RedisPipeline::Server* RedisPipeline::Find(const ServerNode& node) const {
  const auto it = std::find_if(servers_.begin(), servers_.end(),
                               [&](const auto& server) { return server->connection->node() == node; });
  return it == servers_.end() ? nullptr : it->get();
}

RedisPipeline::Server* RedisPipeline::ServerAt(const ServerNode& node) {
  Server* server = Find(node);
  const double now = SteadySeconds();
  if (server != nullptr && (!server->closed() || now < server->connect_at)) return server;
  if (server == nullptr) {
    server = servers_.emplace_back(std::make_unique<Server>()).get();
  } else {
    Lost(server);
  }
  server->connection = std::make_unique<RedisConnection>(node, cluster_.AddressOf(node), &pool_);
  server->number = ++connections_;
  server->connect_at = now + kReconnectSeconds;
  return server;
}

ServerNode RedisPipeline::NodeOf(uint32_t partition) const {
  const auto asked = asked_.find(partition);
  return asked == asked_.end() ? cluster_.NodeOf(slots_[partition]) : asked->second;
}

uint32_t RedisPipeline::ShardOf(uint32_t partition) const {
  if (asked_.count(partition) != 0) return UINT32_MAX - partition;
  return static_cast<uint32_t>(&cluster_.NodeOf(slots_[partition]) - cluster_.nodes().data());
}

uint64_t RedisPipeline::Connection(uint32_t partition) const {
  const Server* const server = Find(NodeOf(partition));
  return server == nullptr || server->closed() ? 0 : server->number;
}

double RedisPipeline::LastMoved(uint32_t partition) const {
  double moved = 0;
  for (const auto& server : servers_) {
    if (!server->closed() && server->Owes(partition)) moved = std::max(moved, server->connection->moved_at());
  }
  return moved;
}

RedisPipeline::Server* RedisPipeline::Begin(const std::vector<PartRef>& parts, const Then& then) {
  Server* const server = ServerAt(NodeOf(parts[0].partition));
  if (!server->closed()) return server;
  looking_ = true;
  Answer answer;
  answer.parts = parts;
  answer.error = server->connection->reason();
  then(std::move(answer));
  return nullptr;
}

void RedisPipeline::Asking(Server* server, uint32_t partition) {
  if (asked_.count(partition) == 0) return;
  server->connection->Enqueue({"ASKING"});
  server->owed.push_back({{}, nullptr, SteadySeconds()});
}

void RedisPipeline::Ask(std::vector<PartRef> parts, const std::vector<std::string>& words, Then then) {
  Server* const server = Begin(parts, then);
  if (server == nullptr) return;
  Asking(server, parts[0].partition);
  server->connection->Enqueue(words);
  server->owed.push_back({std::move(parts), std::move(then), SteadySeconds()});
}

void RedisPipeline::Ask(OutFrame frame, Then then) {
  Server* const server = Begin(frame.parts, then);
  if (server == nullptr) return;
  const bool full = server->owed_bytes >= kWindowBytes && IsLocal(server->connection->node());
  if (full || !server->held.empty()) {
    server->held.push_back({std::move(frame), std::move(then)});
  } else {
    Enqueue(server, std::move(frame), std::move(then));
  }
}

void RedisPipeline::Enqueue(Server* server, OutFrame frame, Then then) {
  const uint32_t partition = frame.parts[0].partition;
  Asking(server, partition);
  server->connection->Enqueue(frame.push ? "HET.STEP" : "HET.READ", keys_[partition], std::move(frame.bytes));
  server->owed.push_back({std::move(frame.parts), std::move(then), SteadySeconds(), !frame.push,
                          frame.push ? 0 : server->pull_bytes});
  server->owed_bytes += server->owed.back().bytes;
}

bool RedisPipeline::AskServer(uint32_t partition, const std::vector<std::string>& words, Then then) {
  Server* const server = Find(NodeOf(partition));
  if (server == nullptr || server->closed()) return false;
  server->connection->Enqueue(words);
  server->owed.push_back({{}, std::move(then), SteadySeconds()});
  return true;
}

void RedisPipeline::SendHeld(Server* server) {
  if (server->held.empty() || server->closed() || server->owed_bytes >= kWindowBytes / 2) return;
  // One write for all frames: small writes cost both sides more than the frames.
  for (; !server->held.empty() && server->owed_bytes < kWindowBytes; server->held.pop_front()) {
    Held& held = server->held.front();
    Enqueue(server, std::move(held.frame), std::move(held.then));
  }
  Write(server);
}

void RedisPipeline::Write(Server* server) {
  server->connection->Write();
  if (server->closed()) Lost(server);
}

void RedisPipeline::Write() {
  for (size_t i = 0; i < servers_.size(); ++i) Write(servers_[i].get());
}

void RedisPipeline::Descriptors(std::vector<pollfd>* descriptors) const {
  for (const auto& server : servers_) {
    const bool writes = server->connection->wants_to_write();
    if (server->closed() || (server->owed.empty() && !writes)) continue;
    descriptors->push_back(
        {server->connection->fd(), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
  }
}

bool RedisPipeline::Poll(double seconds) {
  LookForOwners();
  Write();
  std::vector<pollfd> ready;
  Descriptors(&ready);
  if (ready.empty()) return false;
  // poll takes whole milliseconds: wait at least one; the caller keeps the deadline.
  const int milliseconds = seconds <= 0 ? 0 : std::max(1, static_cast<int>(seconds * 1000));
  if (poll(ready.data(), ready.size(), milliseconds) > 0) {
    for (const pollfd& one : ready) {
      if (one.revents == 0) continue;
      const auto server = std::find_if(servers_.begin(), servers_.end(),
                                       [&](const auto& s) { return s->connection->fd() == one.fd; });
      if (server != servers_.end()) Read(server->get());
    }
  }
  if (silence_ > 0) {
    for (const auto& server : servers_) CloseSilent(server.get());
  }
  return true;
}

void RedisPipeline::CloseSilent(Server* server) {
  if (server->closed() || server->owed.empty()) return;
  const double silent =
      SteadySeconds() - std::max(server->connection->moved_at(), server->owed.front().since);
  if (silent < silence_) return;
  server->connection->Close(server->connection->node().ToString() + " gave no answer for " +
                            std::to_string(static_cast<int>(silent)) + " s");
  Lost(server);
}

void RedisPipeline::Read(Server* server) {
  try {
    std::vector<RedisReply> replies;
    server->connection->Write();
    server->connection->Read(&replies);
    for (RedisReply& reply : replies) {
      if (server->owed.empty()) {
        server->connection->Close(server->connection->node().ToString() + " sent a reply without a request");
        break;
      }
      Question question = std::move(server->owed.front());
      server->owed.pop_front();
      Take(server, std::move(question), std::move(reply));
    }
    SendHeld(server);
  } catch (const std::bad_alloc&) {  // answers are lost: later ones cannot be matched
    server->connection->Close("out of memory while answers were read");
    Lost(server);
    throw;
  }
  if (server->closed()) Lost(server);
}

void RedisPipeline::Take(Server* server, Question question, RedisReply reply) {
  server->owed_bytes -= question.bytes;
  if (question.pull) {
    const size_t before = server->pull_bytes == 0 ? reply.bytes.size() : server->pull_bytes;
    server->pull_bytes = (3 * before + reply.bytes.size()) / 4;
  }
  if (question.then == nullptr) return;
  Answer answer;
  answer.parts = std::move(question.parts);
  answer.node = server->connection->node();
  if (reply.ok() || answer.parts.empty()) {
    answer.kind = Answer::kReply;
    answer.reply = std::move(reply);
  } else {
    answer.kind = Answer::kError;
    answer.error = reply.text();
    Refused(&answer);
  }
  question.then(std::move(answer));
}

void RedisPipeline::Refused(Answer* answer) {
  const std::string& error = answer->error;
  const uint32_t partition = answer->parts[0].partition;  // the command's key was this partition's
  answer->moving = asked_.count(partition) != 0;
  Redirect redirect;
  if (ParseRedirect(error, answer->node, &redirect)) {
    if (redirect.ask) {
      asked_[partition] = redirect.node;
    } else {
      asked_.erase(partition);
      cluster_.Moved(redirect.slot, redirect.node);
    }
    return;
  }
  // While the partition is on its way, its new server says one of these. Else the move has ended another way.
  if (error.rfind("TRYAGAIN", 0) != 0 && error.rfind("HETNOPART", 0) != 0) asked_.erase(partition);
  const bool is_replica =
      StartsWith(error, "READONLY") || error.find("this server is a replica") != std::string::npos;
  is_replica_ = is_replica_ || is_replica;
  // A server that has left the cluster, or became a replica, says this for every slot; another server knows
  // their owners.
  looking_ = looking_ || is_replica || MayHaveMoved(error);
}

void RedisPipeline::Lost(Server* server) {
  const std::string& reason = server->connection->reason();
  if (!server->owed.empty()) static_cast<void>(cluster_.AsksLogin(server->connection->node(), reason));
  std::deque<Question> lost = std::exchange(server->owed, {});
  for (Held& held : std::exchange(server->held, {})) {
    lost.push_back({std::move(held.frame.parts), std::move(held.then)});
  }
  server->owed_bytes = 0;
  for (Question& question : lost) {
    for (const PartRef& part : question.parts) asked_.erase(part.partition);
    looking_ = looking_ || !question.parts.empty();  // another server may have taken over
    if (question.then == nullptr) continue;
    Answer answer;
    answer.parts = std::move(question.parts);
    answer.error = reason;
    question.then(std::move(answer));
  }
}

void RedisPipeline::Reset(uint32_t partition) {
  std::vector<Server*> servers;
  for (const auto& server : servers_) {
    if (server->Owes(partition)) servers.push_back(server.get());
  }
  // The partition may have moved. If no server owes it an answer, an unusable one came from its owner.
  Server* const owner = Find(NodeOf(partition));
  if (servers.empty() && owner != nullptr) servers.push_back(owner);
  for (Server* server : servers) {
    server->connection->Close("the client gave up on an answer");
    server->connect_at = 0;
    Lost(server);
  }
  asked_.erase(partition);
}

void RedisPipeline::LookForOwners() {
  const double now = SteadySeconds();
  if (!looking_ || now < look_at_) return;
  looking_ = false;
  look_at_ = now + kLookSeconds;
  if (!cluster_.has_others()) return;
  for (const ServerNode& node : cluster_.Candidates()) AskForOwners(node);
}

void RedisPipeline::AskForOwners(const ServerNode& node) {
  Server* const server = ServerAt(node);
  if (server->closed() || server->looking) return;
  server->looking = true;
  server->owners.clear();
  for (const auto& question : cluster_.Questions(node)) {
    server->connection->Enqueue(question);
    server->owed.push_back(
        {{}, [this, server](Answer answer) { TakeOwners(server, std::move(answer)); }, SteadySeconds()});
  }
}

void RedisPipeline::TakeOwners(Server* server, Answer answer) {
  if (answer.kind == Answer::kLost) {
    server->looking = false;
    return;
  }
  server->owners.push_back(std::move(answer.reply));
  if (server->owners.size() < cluster_.Questions(answer.node).size()) return;
  server->looking = false;
  // A server without cluster mode knows no owners: it gets the questions if the one before is a replica, or
  // does not answer.
  const bool knows = server->owners[0].kind == RedisReply::kArray || !cluster_.address().service.empty();
  const Server* const used = Find(cluster_.nodes()[0]);
  const bool away = used == nullptr || used->closed() || !used->connection->answered();
  if (!knows && !is_replica_ && !away) return;
  std::optional<ServerNode> named;
  if (cluster_.Learn(server->owners, answer.node, &named).ok()) is_replica_ = false;
  if (named) AskForOwners(*named);
}

}  // namespace het
