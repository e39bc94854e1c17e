#include "het_tf/ps/client/redis_transport.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "het_tf/ps/client/keyspace.h"

namespace het {
namespace {

bool IsPermanent(const std::string& error) {
  for (const char* prefix : {"NOPERM", "NOAUTH", "WRONGTYPE", "HETERR", "ERR unknown command"}) {
    if (error.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

// How long a closed connection may take to tell the new owner of its slots.
constexpr double kRefreshSeconds = 1;

}  // namespace

RedisTransport::RedisTransport(RedisCluster cluster, std::vector<std::string> keys, uint64_t hash_seed)
    : process_(getpid()), cluster_(std::move(cluster)), keys_(std::move(keys)), hash_seed_(hash_seed) {
  for (const std::string& key : keys_) slots_.push_back(SlotOf(key));
}

RedisTransport::Server* RedisTransport::ServerAt(const ServerNode& node) {
  for (auto& server : servers_) {
    if (!(server->connection->node() == node)) continue;
    if (server->connection->closed()) {
      Lost(server.get());
      server->connection =
          std::make_unique<RedisConnection>(node, cluster_.address().user, cluster_.address().password);
    }
    return server.get();
  }
  servers_.push_back(std::make_unique<Server>());
  servers_.back()->connection =
      std::make_unique<RedisConnection>(node, cluster_.address().user, cluster_.address().password);
  return servers_.back().get();
}

RedisTransport::Server* RedisTransport::ServerOf(uint32_t partition) {
  const auto asked = asked_.find(partition);
  return ServerAt(asked == asked_.end() ? cluster_.NodeOf(slots_[partition]) : asked->second);
}

void RedisTransport::CheckFork() {
  if (process_ == getpid()) return;
  process_ = getpid();
  cluster_.ForgetConnections();
  servers_.clear();
  asked_.clear();
  events_.clear();
}

void RedisTransport::Send(uint32_t partition, Bytes frame) {
  CheckFork();
  Server* server = ServerOf(partition);
  if (asked_.count(partition) != 0) {
    server->connection->Enqueue({"ASKING"});
    server->owed.push_back(kAsking);
  }
  const bool push = SeqOf(Span<const uint8_t>(frame.data(), frame.size())) != 0;
  server->connection->Enqueue(push ? "HET.STEP" : "HET.READ", keys_[partition], std::move(frame));
  server->owed.push_back(partition);
  server->connection->Write();
  if (server->connection->closed()) Lost(server);
}

void RedisTransport::Refused(uint32_t partition, const ServerNode& node, const std::string& error) {
  Event event;
  event.kind = Event::kRefused;
  event.partition = partition;
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
    event.reason +=
        " (in the middle of a move this passes; else the server has lost the tables: it restarted without "
        "persistence, or was flushed. Call het_tf.reset() and build the model again)";
  } else if (IsPermanent(error)) {
    event.kind = Event::kRejected;
    event.reason += "; updates that were made are kept and will be sent";
  } else if (asked_.count(partition) != 0 && error.rfind("TRYAGAIN", 0) != 0) {
    asked_.erase(partition);  // the move has ended otherwise
  }
  events_.push_back(std::move(event));
}

void RedisTransport::Collect(Server* server, std::vector<RedisReply>* replies) {
  for (RedisReply& reply : *replies) {
    if (server->owed.empty()) {
      server->connection->Close(server->connection->node().ToString() + " answered what nobody asked");
      break;
    }
    const int64_t owner = server->owed.front();
    server->owed.pop_front();
    if (owner == kAsking) continue;
    const auto partition = static_cast<uint32_t>(owner);
    if (reply.kind == RedisReply::kString) {
      Event event;
      event.partition = partition;
      event.bytes = std::move(reply.bytes);
      events_.push_back(std::move(event));
    } else {
      Refused(partition, server->connection->node(),
              reply.kind == RedisReply::kError ? reply.text() : "an answer that is no frame");
    }
  }
  replies->clear();
  if (server->connection->closed()) Lost(server);
}

void RedisTransport::Lost(Server* server) {
  std::vector<int64_t> partitions(server->owed.begin(), server->owed.end());
  server->owed.clear();
  std::sort(partitions.begin(), partitions.end());
  partitions.erase(std::unique(partitions.begin(), partitions.end()), partitions.end());
  bool any = false;
  for (int64_t partition : partitions) {
    if (partition == kAsking) continue;
    any = true;
    asked_.erase(static_cast<uint32_t>(partition));
    Event event;
    event.kind = Event::kClosed;
    event.partition = static_cast<uint32_t>(partition);
    event.reason = server->connection->reason();
    events_.push_back(std::move(event));
  }
  // The server may have a successor; if nobody knows, the client tries the old one again.
  if (any && cluster_.nodes().size() > 1) static_cast<void>(cluster_.Refresh(kRefreshSeconds));
}

bool RedisTransport::Poll(double seconds, std::vector<Event>* events) {
  CheckFork();
  std::vector<pollfd> ready;
  std::vector<Server*> of;
  for (auto& server : servers_) {
    if (server->connection->closed()) continue;
    const bool writes = server->connection->wants_to_write();
    if (server->owed.empty() && !writes) continue;
    ready.push_back({server->connection->fd(), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
    of.push_back(server.get());
  }
  if (!events_.empty()) seconds = 0;
  if (ready.empty() && events_.empty()) {
    Sleep(seconds);
    return false;
  }
  // Half a millisecond is waited in full by a millisecond's sleep: the deadline is another's business.
  const int milliseconds = seconds <= 0 ? 0 : std::max(1, static_cast<int>(seconds * 1000));
  if (!ready.empty() && poll(ready.data(), ready.size(), milliseconds) > 0) {
    std::vector<RedisReply> replies;
    for (size_t i = 0; i < ready.size(); ++i) {
      if (ready[i].revents == 0) continue;
      of[i]->connection->Write();
      of[i]->connection->Read(&replies);
      Collect(of[i], &replies);
    }
  }
  const bool any = !events_.empty();
  for (Event& event : events_) events->push_back(std::move(event));
  events_.clear();
  return any;
}

void RedisTransport::Reset(uint32_t partition) {
  // Whoever owes this partition something, which need not be who has it by now; if nobody does, the answer
  // that the client could not use came from who has it.
  std::vector<Server*> servers;
  for (auto& server : servers_) {
    const auto& owed = server->owed;
    if (std::find(owed.begin(), owed.end(), partition) != owed.end()) servers.push_back(server.get());
  }
  if (servers.empty()) servers.push_back(ServerOf(partition));
  const auto of_partition = [partition](const Event& event) { return event.partition == partition; };
  for (Server* server : servers) {
    server->connection->Close("the client gave up on an answer");
    Lost(server);
  }
  // The others on the connections are told; this partition's client knows.
  events_.erase(std::remove_if(events_.begin(), events_.end(), of_partition), events_.end());
  asked_.erase(partition);
}

void RedisTransport::Sleep(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

double RedisTransport::Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace het
