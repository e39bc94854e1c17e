#include "het_tf/ps/client/redis_changes.h"

#include <algorithm>
#include <utility>

#include "het_tf/core/base/steady_seconds.h"
#include "het_tf/ps/client/online_store.h"
#include "het_tf/ps/keyspace.h"

namespace het {
namespace {

using follow::ChangeAnswer;

constexpr double kLookSeconds = 1;         // between two searches for the owners of slots
constexpr double kReconnectSeconds = 0.2;  // between two connections to a server

}  // namespace

bool ReadChangesPage(RedisReply* reply, ChangesPage* page) {
  std::vector<RedisReply>& parts = reply->array;
  if (reply->kind != RedisReply::kArray || parts.size() < 3) return false;
  if (!ParsePosition(parts[0].text(), &page->start) || page->start.incarnation == 0) return false;
  if (!ParseCursor(parts[1].text(), &page->next)) return false;
  if (!ParseChangesKind(parts[2].text(), &page->kind)) return false;
  for (size_t i = 3; i < parts.size(); ++i) {
    if (parts[i].kind != RedisReply::kString) return false;
    page->chunks.push_back(std::move(parts[i].bytes));
  }
  return true;
}

Result<std::unique_ptr<RedisChanges>> RedisChanges::Open(const ServerAddress& address,
                                                         const std::string& name_space, double timeout) {
  HET_ASSIGN_OR_RETURN(auto store, RedisOnlineStore::Open(address, name_space, timeout));
  RedisCluster cluster(address);
  HET_RETURN_IF_ERROR(cluster.Refresh(timeout));
  return std::unique_ptr<RedisChanges>(
      new RedisChanges(std::move(cluster), store->keys(), store->hash_seed(), timeout));
}

RedisChanges::RedisChanges(RedisCluster cluster, std::vector<std::string> keys, uint64_t hash_seed,
                           double timeout)
    : cluster_(std::move(cluster)), keys_(std::move(keys)), hash_seed_(hash_seed), timeout_(timeout) {
  for (const std::string& key : keys_) slots_.push_back(SlotOf(key));
}

ServerNode RedisChanges::NodeOf(uint32_t partition) const {
  const auto asked = asked_.find(partition);
  return asked == asked_.end() ? cluster_.NodeOf(slots_[partition]) : asked->second;
}

bool RedisChanges::IsAway(const ServerNode& node) const {
  return std::none_of(servers_.begin(), servers_.end(), [&](const auto& server) {
    return !server->connection->closed() && server->connection->node() == node;
  });
}

// The server may have no open connection.
RedisChanges::Server* RedisChanges::ServerAt(const ServerNode& node) {
  auto it = std::find_if(servers_.begin(), servers_.end(),
                         [&](const auto& server) { return server->connection->node() == node; });
  if (it == servers_.end()) it = servers_.insert(servers_.end(), std::make_unique<Server>());
  Server* const server = it->get();
  const double now = SteadySeconds();
  if (server->connection == nullptr || (server->connection->closed() && now >= server->connect_at)) {
    if (server->connection != nullptr) Lost(server);
    server->connection = std::make_unique<RedisConnection>(node, cluster_.AddressOf(node));
    server->connect_at = now + kReconnectSeconds;
  }
  return server;
}

void RedisChanges::AskPage(uint32_t partition, const ChangesRequest& request) {
  std::vector<std::string> words = {"HET.CHANGES", keys_[partition], "SINCE", ToString(request.since)};
  // A poll of a partition that does not change must be short.
  if (!request.cursor.begins()) words.insert(words.end(), {"CURSOR", ToString(request.cursor)});
  words.insert(words.end(), {"MAXBYTES", std::to_string(request.max_bytes)});
  if (request.format != RowFormat::kFloat32)
    words.insert(words.end(), {"ROWS", RowFormatName(request.format)});
  Send(partition, Owed::kPage, {words});
}

void RedisChanges::AskTables(uint32_t partition, const std::vector<std::string>& names) {
  Tables& tables = tables_[partition];
  tables = Tables();
  tables.names = names;
  tables.answer.partition = partition;
  tables.answer.tables.resize(names.size());
  tables.missing = names.size();
  std::vector<std::vector<std::string>> commands;
  for (const std::string& name : names) {  // a table's id is its cursor
    commands.push_back({"HET.STAT", keys_[partition], "TABLES", std::to_string(HashName(name))});
  }
  Send(partition, Owed::kTable, commands);
}

void RedisChanges::Send(uint32_t partition, Owed::Kind kind,
                        const std::vector<std::vector<std::string>>& commands) {
  Server* const server = ServerAt(NodeOf(partition));
  if (server->connection->closed()) {
    LookForOwners();
    return Fail(partition, Status(Code::kUnavailable, server->connection->reason()));
  }
  const double now = SteadySeconds();
  for (size_t i = 0; i < commands.size(); ++i) {
    if (asked_.count(partition) != 0) {
      server->connection->Enqueue({"ASKING"});
      server->owed.push_back({Owed::kAsking, partition, 0, now});
    }
    server->connection->Enqueue(commands[i]);
    server->owed.push_back({kind, partition, i, now});
  }
  server->connection->Write();  // Collect finds out if this has failed
}

void RedisChanges::Fail(uint32_t partition, Status status) {
  tables_.erase(partition);
  ChangeAnswer answer;
  answer.partition = partition;
  answer.status = std::move(status);
  answers_.push_back(std::move(answer));
}

void RedisChanges::Descriptors(std::vector<pollfd>* descriptors) {
  for (const auto& server : servers_) {
    const bool writes = server->connection->wants_to_write();
    if (server->connection->closed() || (server->owed.empty() && !writes)) continue;
    descriptors->push_back(
        {server->connection->fd(), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
  }
}

void RedisChanges::Collect(std::vector<ChangeAnswer>* answers) {
  for (size_t i = 0; i < servers_.size(); ++i) Read(servers_[i].get());  // errors may add servers
  if (std::exchange(looking_, false)) LookForOwners();
  std::move(answers_.begin(), answers_.end(), std::back_inserter(*answers));
  answers_.clear();
}

void RedisChanges::Read(Server* server) {
  RedisConnection& connection = *server->connection;
  std::vector<RedisReply> replies;
  try {
    connection.Write();
    connection.Read(&replies);
    for (RedisReply& reply : replies) {
      if (server->owed.empty()) {
        connection.Close(connection.node().ToString() + " sent a reply without a request");
        break;
      }
      const Owed owed = server->owed.front();
      server->owed.pop_front();
      Take(server, owed, &reply);
    }
  } catch (const std::bad_alloc&) {  // answers are lost: later ones cannot be matched
    connection.Close("out of memory while answers were read");
    Lost(server);
    throw;
  }
  if (connection.closed()) return Lost(server);
  if (server->owed.empty()) return;
  const double silent = SteadySeconds() - std::max(connection.moved_at(), server->owed.front().since);
  if (silent < timeout_) return;
  connection.Close(connection.node().ToString() + " gave no answer for " +
                   std::to_string(static_cast<int>(silent)) + " s");
  Lost(server);
}

void RedisChanges::TakeOwners(Server* server, size_t number, RedisReply* reply) {
  const ServerNode node = server->connection->node();
  if (number == 0) server->owners.clear();
  server->owners.push_back(std::move(*reply));
  if (server->owners.size() < cluster_.Questions(node).size()) return;
  // A server without cluster mode knows no owners: it gets the questions if the one before is away, or a
  // replica.
  const bool knows = server->owners[0].kind == RedisReply::kArray || !cluster_.address().service.empty();
  if (!knows && !is_replica_ && !IsAway(cluster_.nodes()[0])) return;
  std::optional<ServerNode> named;
  if (cluster_.Learn(server->owners, node, &named).ok()) is_replica_ = false;
  if (named) AskForOwners(*named);
}

void RedisChanges::Take(Server* server, const Owed& owed, RedisReply* reply) {
  const ServerNode node = server->connection->node();
  if (owed.kind == Owed::kAsking) return;
  if (owed.kind == Owed::kOwners) return TakeOwners(server, owed.table, reply);
  if (owed.kind == Owed::kTable) return TakeTable(owed, node, *reply);
  if (!reply->ok()) return Fail(owed.partition, Refused(owed.partition, node, reply->text()));
  ChangeAnswer answer;
  answer.partition = owed.partition;
  if (!ReadChangesPage(reply, &answer.page)) {
    return Fail(owed.partition, FailedPrecondition(node.ToString() + " sent something else than changes"));
  }
  answers_.push_back(std::move(answer));
}

void RedisChanges::TakeTable(const Owed& owed, const ServerNode& node, const RedisReply& reply) {
  const auto it = tables_.find(owed.partition);
  if (it == tables_.end()) return;  // failed already
  if (!reply.ok()) return Fail(owed.partition, Refused(owed.partition, node, reply.text()));
  Tables& tables = it->second;
  if (reply.array.size() == 2) {  // [cursor, [[name, spec, ...], ...]]
    for (const RedisReply& line : reply.array[1].array) {
      if (line.array.size() < 2 || line.array[0].text() != tables.names[owed.table]) continue;
      auto spec = ParseTableSpec(line.array[1].text());
      if (!spec.ok()) return Fail(owed.partition, spec.status());
      tables.answer.tables[owed.table] = std::move(spec.value());
    }
  }
  if (--tables.missing > 0) return;
  answers_.push_back(std::move(tables.answer));
  tables_.erase(it);
}

Status RedisChanges::Refused(uint32_t partition, const ServerNode& node, const std::string& error) {
  Status later(Code::kUnavailable, node.ToString() + ": " + error);
  Redirect redirect;
  if (ParseRedirect(error, node, &redirect)) {
    if (redirect.ask) {
      asked_[partition] = redirect.node;
    } else {
      asked_.erase(partition);
      cluster_.Moved(redirect.slot, redirect.node);
    }
    return later;
  }
  if (error.rfind("TRYAGAIN", 0) != 0) asked_.erase(partition);
  if (error.find("this server is a replica") != std::string::npos) {
    looking_ = is_replica_ = true;
    return later;
  }
  if (!PassesByItself(error)) return StatusOfError(error, node);
  // A server that has left the cluster says this for every slot; another one knows their owners.
  if (MayHaveMoved(error)) looking_ = true;
  return later;
}

void RedisChanges::Lost(Server* server) {
  if (server->owed.empty()) return;
  static_cast<void>(cluster_.AsksLogin(server->connection->node(), server->connection->reason()));
  std::vector<uint32_t> partitions;
  for (const Owed& owed : std::exchange(server->owed, {})) {
    if (owed.kind == Owed::kPage || owed.kind == Owed::kTable) partitions.push_back(owed.partition);
  }
  std::sort(partitions.begin(), partitions.end());
  partitions.erase(std::unique(partitions.begin(), partitions.end()), partitions.end());
  for (uint32_t partition : partitions) {
    asked_.erase(partition);
    Fail(partition, Status(Code::kUnavailable, server->connection->reason()));
  }
  if (!partitions.empty()) looking_ = true;
}

void RedisChanges::LookForOwners() {
  const double now = SteadySeconds();
  if (!cluster_.has_others() || now < look_at_) return;
  look_at_ = now + kLookSeconds;
  for (const ServerNode& node : cluster_.Candidates()) AskForOwners(node);
}

void RedisChanges::AskForOwners(const ServerNode& node) {
  Server* const server = ServerAt(node);
  if (server->connection->closed()) return;
  size_t number = 0;
  for (const auto& question : cluster_.Questions(node)) {
    server->connection->Enqueue(question);
    server->owed.push_back({Owed::kOwners, 0, number++, SteadySeconds()});
  }
  server->connection->Write();
}

}  // namespace het
