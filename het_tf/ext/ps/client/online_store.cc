#include "het_tf/ext/ps/client/online_store.h"

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "het_tf/ext/ps/client/redis_store.h"
#include "het_tf/ext/ps/client/redis_transport.h"
#include "het_tf/ext/ps/keyspace.h"
#include "het_tf/ext/serving/cc/open_objects.h"

namespace het {
namespace {

using serve::OnlineReader;

// By namespace, address and options. Never destroyed: kernels may outlive static destructors.
auto& Readers() {
  static auto* readers = new OpenObjects<std::pair<std::string, std::string>, OnlineReader>();
  return *readers;
}

std::string Quoted(const std::string& name) { return "'" + name + "'"; }

}  // namespace

Result<std::unique_ptr<RedisOnlineStore>> RedisOnlineStore::Open(const ServerAddress& address,
                                                                 const std::string& name_space,
                                                                 double seconds) {
  HET_RETURN_IF_ERROR(CheckNamespace(name_space));
  std::unique_ptr<RedisOnlineStore> store(new RedisOnlineStore(address, name_space, seconds));
  HET_RETURN_IF_ERROR(store->cluster_.Refresh(seconds));
  HET_ASSIGN_OR_RETURN(const auto found, FindPartitions(&store->cluster_, name_space, seconds));
  if (!found || found->made.empty()) {
    return FailedPrecondition("the parameter server at " + address.ToString() + " has no namespace " +
                              Quoted(name_space) +
                              "; serve from the server that the model was trained with (HET_SERVE_PS names "
                              "another one than the model does)");
  }
  HET_RETURN_IF_ERROR(CheckRule(name_space, found->made));
  store->keys_ = found->keys;
  store->hash_seed_ = found->hash_seed;
  return store;
}

Result<std::unique_ptr<Transport>> RedisOnlineStore::Connect() {
  RedisCluster cluster(address_, nullptr, /*only_reads=*/true);
  HET_RETURN_IF_ERROR(cluster.Refresh(seconds_));
  return std::unique_ptr<Transport>(std::make_unique<RedisTransport>(std::move(cluster), keys_, hash_seed_));
}

Result<TableSpec> RedisOnlineStore::Find(const std::string& table) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::string names;
  // First the table, whose id is its cursor; if it is missing, a list of existing tables.
  for (const std::string& cursor : {std::to_string(HashName(table)), std::string("0")}) {
    HET_ASSIGN_OR_RETURN(auto page,
                         cluster_.Ask(keys_[0], {"HET.STAT", keys_[0], "TABLES", cursor}, seconds_));
    names.clear();
    if (page.array.size() != 2) break;
    for (const RedisReply& line : page.array[1].array) {
      if (line.array.size() < 2) continue;
      const std::string name = line.array[0].text();
      if (name == table) return ParseTableSpec(line.array[1].text());
      names += (names.empty() ? "" : ", ") + Quoted(name);
    }
  }
  return Status(Code::kNotFound, "there is no table " + Quoted(table) + " in the namespace " +
                                     Quoted(name_space_) + " at " + Where() +
                                     "; there are: " + (names.empty() ? "none" : names));
}

Result<std::shared_ptr<OnlineReader>> OpenOnlineReader(const std::string& online,
                                                       const std::string& name_space) {
  HET_ASSIGN_OR_RETURN(auto spec, serve::ParseOnlineSpec(online));
  const char* const other = std::getenv("HET_SERVE_PS");
  if (other != nullptr && *other != '\0') spec.ps = other;

  const auto open = [&]() -> Result<std::shared_ptr<OnlineReader>> {
    HET_ASSIGN_OR_RETURN(auto address, ParseServerAddress(spec.ps));
    HET_ASSIGN_OR_RETURN(auto store, RedisOnlineStore::Open(address, name_space, spec.config.deadline));
    const auto notice = [where = address.ToString()](const std::string& text) {
      std::fprintf(stderr, "het_tf: parameter server %s: %s\n", where.c_str(), text.c_str());
    };
    return std::make_shared<OnlineReader>(std::move(store), spec.config, notice);
  };
  return Readers().Get({name_space, spec.ps + "\n" + online}, open);
}

std::string OnlineReaderStats() {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [key, reader] : Readers().All()) {
    nlohmann::json stats = nlohmann::json::parse(reader->Stats());
    stats["namespace"] = key.first;
    list.push_back(std::move(stats));
  }
  return list.dump();
}

}  // namespace het
