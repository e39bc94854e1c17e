#include "het_tf/ps/client/remote_engine.h"

#include <cstdio>

#include "het_tf/ps/client/redis_store.h"
#include "het_tf/ps/client/redis_transport.h"

namespace het {

Result<std::shared_ptr<Engine>> OpenRemoteEngine(const ServerAddress& address, const std::string& name_space,
                                                 size_t threads) {
  auto store = RedisStore::Open(address, name_space);
  if (!store.ok()) return store.status();
  RedisCluster cluster(address);  // the transport's own: calls about tables do not wait for steps
  HET_RETURN_IF_ERROR(cluster.Refresh(RedisStore::kSeconds));
  auto transport =
      std::make_unique<RedisTransport>(std::move(cluster), store.value()->keys(), store.value()->hash_seed());
  auto notice = [where = address.ToString()](const std::string& text) {
    std::fprintf(stderr, "het_tf: parameter server %s: %s\n", where.c_str(), text.c_str());
  };
  return std::make_shared<Engine>(name_space, threads, std::move(store.value()), std::move(transport),
                                  notice);
}

}  // namespace het
