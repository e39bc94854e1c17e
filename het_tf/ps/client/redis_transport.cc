#include "het_tf/ps/client/redis_transport.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "het_tf/core/base/steady_seconds.h"
#include "het_tf/core/wire/reply.h"
#include "het_tf/ps/keyspace.h"

namespace het {
namespace {

bool IsPermanent(const std::string& error) {
  for (const char* prefix : {"NOPERM", "WRONGTYPE", "HETERR", "ERR unknown command"}) {
    if (error.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

bool IsLocal(const ServerNode& node) {
  return node.host.empty() || node.host == "localhost" || node.host == "::1" ||
         node.host.rfind("127.", 0) == 0;
}

// Limits a closed connection's search for the new owner of its slots.
constexpr double kRefreshSeconds = 1;

}  // namespace

RedisTransport::RedisTransport(RedisCluster cluster, std::vector<std::string> keys, uint64_t hash_seed)
    : cluster_(std::move(cluster)), keys_(std::move(keys)), hash_seed_(hash_seed) {
  for (const std::string& key : keys_) slots_.push_back(SlotOf(key));
}

RedisTransport::Server* RedisTransport::FindServer(const ServerNode& node) {
  const auto it = std::find_if(servers_.begin(), servers_.end(),
                               [&](const auto& server) { return server->connection->node() == node; });
  return it == servers_.end() ? nullptr : it->get();
}

RedisTransport::Server* RedisTransport::ServerAt(const ServerNode& node) {
  Server* server = FindServer(node);
  if (server != nullptr && !server->connection->closed()) return server;
  if (server == nullptr) {
    servers_.push_back(std::make_unique<Server>());
    server = servers_.back().get();
  } else {
    Lost(server);
  }
  server->connection = std::make_unique<RedisConnection>(node, cluster_.address(), &pool_);
  server->number = ++connections_;
  return server;
}

ServerNode RedisTransport::NodeOf(uint32_t partition) const {
  const auto asked = asked_.find(partition);
  return asked == asked_.end() ? cluster_.NodeOf(slots_[partition]) : asked->second;
}

RedisTransport::Server* RedisTransport::ServerOf(uint32_t partition) { return ServerAt(NodeOf(partition)); }

bool RedisTransport::Server::Owes(uint32_t partition) const {
  const auto has = [partition](const auto& frame) {
    return std::any_of(frame.parts.begin(), frame.parts.end(),
                       [partition](const PartRef& part) { return part.partition == partition; });
  };
  return std::any_of(owed.begin(), owed.end(), has) || std::any_of(held.begin(), held.end(), has);
}

uint32_t RedisTransport::ShardOf(uint32_t partition) {
  if (asked_.count(partition) != 0) return UINT32_MAX - partition;
  return static_cast<uint32_t>(&cluster_.NodeOf(slots_[partition]) - cluster_.nodes().data());
}

void RedisTransport::Send(OutFrame frame) {
  Server* server = ServerOf(frame.parts[0].partition);
  const bool full = server->owed_bytes >= kWindowBytes && IsLocal(server->connection->node());
  if (full || !server->held.empty()) {
    server->held.push_back(std::move(frame));
  } else {
    Enqueue(server, std::move(frame));
    Write(server);
  }
}

void RedisTransport::SendHeld(Server* server) {
  if (server->held.empty() || server->connection->closed() || server->owed_bytes >= kWindowBytes / 2) return;
  // One write for all frames: small writes cost both sides more than the frames.
  for (; !server->held.empty() && server->owed_bytes < kWindowBytes; server->held.pop_front()) {
    Enqueue(server, std::move(server->held.front()));
  }
  Write(server);
}

void RedisTransport::Enqueue(Server* server, OutFrame frame) {
  const uint32_t partition = frame.parts[0].partition;
  if (asked_.count(partition) != 0) {
    server->connection->Enqueue({"ASKING"});
    server->owed.push_back({Owed::kAsking, {}, {}});
  }
  server->connection->Enqueue(frame.push ? "HET.STEP" : "HET.READ", keys_[partition], std::move(frame.bytes));
  server->owed.push_back(
      {Owed::kFrame, std::move(frame.parts), {}, !frame.push, frame.push ? 0 : server->pull_bytes});
  server->owed_bytes += server->owed.back().bytes;
}

void RedisTransport::Write(Server* server) {
  server->connection->Write();
  if (server->connection->closed()) Lost(server);
}

void RedisTransport::Refused(const Owed& owed, const ServerNode& node, const std::string& error) {
  const uint32_t partition = owed.parts[0].partition;  // the command's key was this partition's
  Event event;
  event.kind = Event::kRefused;
  event.reason = node.ToString() + ": " + error;
  Redirect redirect;
  if (ParseRedirect(error, node, &redirect)) {
    if (redirect.ask) {
      asked_[partition] = redirect.node;
    } else {
      asked_.erase(partition);
      cluster_.Moved(redirect.slot, redirect.node);
    }
  } else if (error.rfind("OOM", 0) == 0) {
    event.reason = kStoreOutOfMemory;
  } else if (error.rfind("HETNOPART", 0) == 0) {
    // After ASKING the partition is still on its way to this server. Otherwise this server should have it, or
    // it would have redirected.
    if (asked_.count(partition) == 0) event.kind = Event::kGone;
    event.reason +=
        " (the server has lost the tables: it restarted without persistence, or was flushed. Restore it, or "
        "call "
        "het_tf.reset() and build the model again)";
  } else if (IsPermanent(error)) {
    event.kind = Event::kRejected;
    event.reason += "; updates that were made are kept and will be sent";
  } else if (asked_.count(partition) != 0 && error.rfind("TRYAGAIN", 0) != 0) {
    asked_.erase(partition);  // the move has ended another way
  }
  // A server that has left the cluster, or became a replica, says this for every slot; another server knows
  // their owners.
  if (MayHaveMoved(error)) LookForOwners();
  for (const PartRef& part : owed.parts) {
    event.partition = part.partition;
    event.request_id = part.request_id;
    events_.push_back(event);
  }
}

void RedisTransport::Collect(Server* server, std::vector<RedisReply>* replies) {
  for (RedisReply& reply : *replies) {
    if (server->owed.empty()) {
      server->connection->Close(server->connection->node().ToString() + " sent a reply without a request");
      break;
    }
    const Owed owed = std::move(server->owed.front());
    server->owed.pop_front();
    if (owed.kind == Owed::kAsking) continue;
    if (owed.kind == Owed::kWait) {
      Counted(owed, server->connection->node(), reply);
      continue;
    }
    server->owed_bytes -= owed.bytes;
    if (owed.pull) {
      const size_t before = server->pull_bytes == 0 ? reply.bytes.size() : server->pull_bytes;
      server->pull_bytes = (3 * before + reply.bytes.size()) / 4;
    }
    if (reply.kind == RedisReply::kString) {
      Event event;
      event.partition = owed.parts[0].partition;
      event.bytes = std::move(reply.bytes);
      events_.push_back(std::move(event));
    } else {
      Refused(owed, server->connection->node(),
              reply.kind == RedisReply::kError ? reply.text() : "an answer that is not a frame");
    }
  }
  replies->clear();
  SendHeld(server);
  if (server->connection->closed()) Lost(server);
}

void RedisTransport::Counted(const Owed& wait, const ServerNode& node, const RedisReply& reply) {
  for (const Mark& mark : wait.marks) {
    Event event;
    event.partition = mark.partition;
    if (reply.kind == RedisReply::kError && IsPermanent(reply.text())) {
      event.kind = Event::kUncounted;
      event.reason = node.ToString() + ": " + reply.text();
    } else {  // an error is transient (it loads, it became a replica), and acknowledges nothing
      event.kind = Event::kReplicas;
      event.seq = mark.seq;
      event.replicas = reply.kind == RedisReply::kInteger
                           ? static_cast<uint32_t>(std::clamp<int64_t>(reply.integer, 0, UINT32_MAX))
                           : 0;
    }
    events_.push_back(std::move(event));
  }
}

void RedisTransport::Lost(Server* server) {
  std::vector<uint32_t> partitions;
  for (const Owed& owed : server->owed) {
    for (const PartRef& part : owed.parts) partitions.push_back(part.partition);
  }
  for (const OutFrame& frame : server->held) {
    for (const PartRef& part : frame.parts) partitions.push_back(part.partition);
  }
  server->owed.clear();
  server->held.clear();
  server->owed_bytes = 0;
  std::sort(partitions.begin(), partitions.end());
  partitions.erase(std::unique(partitions.begin(), partitions.end()), partitions.end());
  for (uint32_t partition : partitions) {
    asked_.erase(partition);
    Event event;
    event.kind = Event::kClosed;
    event.partition = partition;
    event.reason = server->connection->reason();
    events_.push_back(std::move(event));
  }
  // Another server may have taken over.
  if (!partitions.empty()) LookForOwners();
}

void RedisTransport::LookForOwners() {
  if (!cluster_.has_others() || Now() < refresh_at_) return;
  static_cast<void>(cluster_.Refresh(kRefreshSeconds));
  refresh_at_ = Now() + kRefreshSeconds;
}

uint64_t RedisTransport::Connection(uint32_t partition) {
  const Server* server = FindServer(NodeOf(partition));
  return server == nullptr || server->connection->closed() ? 0 : server->number;
}

void RedisTransport::AskReplicas(const std::vector<Mark>& marks, uint32_t replicas, double seconds) {
  std::map<Server*, std::vector<Mark>> by_server;
  for (const Mark& mark : marks) {
    Server* server = FindServer(NodeOf(mark.partition));
    if (server != nullptr && !server->connection->closed()) by_server[server].push_back(mark);
  }
  for (auto& [server, of_server] : by_server) {
    server->connection->Enqueue(
        {"WAIT", std::to_string(replicas), std::to_string(std::max(1, static_cast<int>(seconds * 1000)))});
    server->owed.push_back({Owed::kWait, {}, std::move(of_server)});
    Write(server);
  }
}

double RedisTransport::LastMoved(uint32_t partition) {
  double moved = 0;
  for (const auto& server : servers_) {
    if (server->Owes(partition) && !server->connection->closed())
      moved = std::max(moved, server->connection->moved_at());
  }
  return moved;
}

void RedisTransport::Descriptors(std::vector<pollfd>* descriptors) {
  for (const auto& server : servers_) {
    const bool writes = server->connection->wants_to_write();
    if (server->connection->closed() || (server->owed.empty() && !writes)) continue;
    descriptors->push_back(
        {server->connection->fd(), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
  }
}

bool RedisTransport::Poll(double seconds, std::vector<Event>* events) {
  std::vector<pollfd> ready;
  Descriptors(&ready);
  if (!events_.empty()) seconds = 0;
  if (ready.empty() && events_.empty()) {
    Sleep(seconds);
    return false;
  }
  // poll takes whole milliseconds: wait at least one; the caller keeps the deadline.
  const int milliseconds = seconds <= 0 ? 0 : std::max(1, static_cast<int>(seconds * 1000));
  if (!ready.empty() && poll(ready.data(), ready.size(), milliseconds) > 0) {
    std::vector<RedisReply> replies;
    for (const pollfd& one : ready) {
      if (one.revents == 0) continue;
      const auto server = std::find_if(servers_.begin(), servers_.end(),
                                       [&](const auto& s) { return s->connection->fd() == one.fd; });
      if (server == servers_.end()) continue;
      try {
        (*server)->connection->Write();
        (*server)->connection->Read(&replies);
        Collect(server->get(), &replies);
      } catch (const std::bad_alloc&) {  // answers are lost: later ones cannot be matched
        (*server)->connection->Close("out of memory while answers were read");
        Lost(server->get());
        throw;
      }
    }
  }
  const bool any = !events_.empty();
  for (Event& event : events_) events->push_back(std::move(event));
  events_.clear();
  return any;
}

void RedisTransport::Reset(uint32_t partition) {
  // Reset every server with unanswered requests for this partition; it may have moved. If there is none, the
  // unusable answer came from its current owner.
  std::vector<Server*> servers;
  for (auto& server : servers_) {
    if (server->Owes(partition)) servers.push_back(server.get());
  }
  if (servers.empty()) servers.push_back(ServerOf(partition));
  const auto told = [partition](const Event& event) {
    return event.kind == Event::kClosed && event.partition == partition;
  };
  for (Server* server : servers) {
    server->connection->Close("the client gave up on an answer");
    Lost(server);
  }
  // Other partitions on these connections get an event; this partition's client knows. Keep answers: they may
  // have parts of others, and the client ignores late ones.
  events_.erase(std::remove_if(events_.begin(), events_.end(), told), events_.end());
  asked_.erase(partition);
}

void RedisTransport::Sleep(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

double RedisTransport::Now() { return SteadySeconds(); }

}  // namespace het
