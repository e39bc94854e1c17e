#include "het_tf/ext/ps/client/remote_engine.h"

#include <cstdio>

#include "het_tf/core/store/local_service.h"
#include "het_tf/ext/ps/client/redis_store.h"
#include "het_tf/ext/ps/client/redis_transport.h"

namespace het {
namespace {

// Durability::kReplicated needs WAIT: every server must support it, and should have replicas.
Status CheckReplicas(RedisCluster* cluster, const ClientConfig& config) {
  for (const ServerNode& node : std::vector<ServerNode>(cluster->nodes())) {
    HET_ASSIGN_OR_RETURN(auto counted,
                         cluster->AskServer(node, {"WAIT", std::to_string(config.min_replicas), "1000"}));
    if (counted.kind != RedisReply::kInteger) {
      return FailedPrecondition(node.ToString() + " refuses to count its replicas (" + counted.text() +
                                "); durability='replicated' asks with WAIT: grant the user +wait");
    }
    if (counted.integer >= config.min_replicas) continue;
    config.notice(node.ToString() + " has " + std::to_string(counted.integer) +
                  " replicas, and durability='replicated' keeps pushes until " +
                  std::to_string(config.min_replicas) + " have them: they are kept here, up to " +
                  std::to_string(config.keep_bytes / 1000000) + " MB, until there are more");
  }
  return Status();
}

}  // namespace

Result<std::shared_ptr<Engine>> OpenRemoteEngine(const ServerAddress& address, const std::string& name_space,
                                                 size_t threads, ClientConfig config) {
  config.seed = RandomId();  // differs between workers
  if (config.notice == nullptr) {
    config.notice = [where = address.ToString()](const std::string& text) {
      std::fprintf(stderr, "het_tf: parameter server %s: %s\n", where.c_str(), text.c_str());
    };
  }
  HET_ASSIGN_OR_RETURN(auto store, RedisStore::Open(address, name_space, config.deadline, config.notice));
  RedisCluster cluster(address);  // only for the transport: calls about tables do not wait for steps
  HET_RETURN_IF_ERROR(cluster.Refresh(config.deadline));
  if (config.durability == Durability::kReplicated) HET_RETURN_IF_ERROR(CheckReplicas(&cluster, config));
  auto transport = std::make_unique<RedisTransport>(std::move(cluster), store->keys(), store->hash_seed());
  return std::make_shared<Engine>(name_space, threads, std::move(store), std::move(transport), config);
}

}  // namespace het
