// An engine whose tables live at a parameter server.
//
//   OpenRemoteEngine ──► RedisCluster: which server has which slot
//                    ──► het:NAMESPACE: read the number of partitions, or make them
//                    ──► Engine(RedisStore, RedisTransport)
#pragma once

#include <memory>
#include <string>

#include "het_tf/core/client/client.h"
#include "het_tf/core/engine/engine.h"
#include "het_tf/ext/ps/client/address.h"

namespace het {

// Number of partitions of a new namespace.
constexpr uint32_t kNewPartitions = 64;

// Notices go to stderr unless `config` says otherwise. Unavailable: no server answers within some seconds;
// FailedPrecondition: it is not a het_tf parameter server.
Result<std::shared_ptr<Engine>> OpenRemoteEngine(const ServerAddress& address, const std::string& name_space,
                                                 size_t threads, ClientConfig config = ClientConfig());

}  // namespace het
