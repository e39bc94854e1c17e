// Tables at Redis servers, for serving processes that only read them (ext/serving/cc/serve/online_reader.h).
//
// The server's user needs only these rights: CLUSTER SLOTS, HGET of the namespace's key, HET.STAT, HET.READ.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "het_tf/ext/ps/client/cluster.h"
#include "het_tf/ext/serving/cc/serve/online_spec.h"

namespace het {

class RedisOnlineStore : public serve::OnlineStore {
 public:
  // FailedPrecondition: the server does not have the namespace. Unavailable: no answer within `seconds`.
  static Result<std::unique_ptr<RedisOnlineStore>> Open(const ServerAddress& address,
                                                        const std::string& name_space, double seconds);

  uint32_t partitions() const override { return static_cast<uint32_t>(keys_.size()); }
  uint64_t hash_seed() const override { return hash_seed_; }
  std::string Where() const override { return address_.ToString(); }
  // The keys of the partitions.
  const std::vector<std::string>& keys() const { return keys_; }
  Result<std::unique_ptr<Transport>> Connect() override;
  Result<TableSpec> Find(const std::string& table) override;

 private:
  RedisOnlineStore(const ServerAddress& address, std::string name_space, double seconds)
      : address_(address),
        name_space_(std::move(name_space)),
        seconds_(seconds),
        cluster_(address, nullptr, /*only_reads=*/true) {}

  const ServerAddress address_;
  const std::string name_space_;
  const double seconds_;
  std::vector<std::string> keys_;
  uint64_t hash_seed_ = 0;

  std::mutex mutex_;  // guards cluster_
  RedisCluster cluster_;
};

// Returns this process's reader of the namespace, or opens one; it lives as long as a caller holds it.
// `online` is JSON (online_spec.h). If the environment sets HET_SERVE_PS, it replaces the address: a
// SavedModel should not contain a login. Notices go to stderr.
Result<std::shared_ptr<serve::OnlineReader>> OpenOnlineReader(const std::string& online,
                                                              const std::string& name_space);
// Returns a JSON list of this process's readers: their namespaces and Stats.
std::string OnlineReaderStats();

}  // namespace het
