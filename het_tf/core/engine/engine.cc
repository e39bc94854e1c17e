#include "het_tf/core/engine/engine.h"

#include <algorithm>

#include "het_tf/core/engine/cached_backend.h"
#include "het_tf/core/engine/direct_backend.h"
#include "het_tf/core/engine/extensions.h"
#include "het_tf/core/store/local_store.h"
#include "het_tf/core/store/local_transport.h"

namespace het {
namespace {

ClientConfig EmbeddedConfig() {
  ClientConfig config;
  config.fail_out_of_memory = true;
  return config;
}

ClientConfig Traced(ClientConfig config, TraceLog* trace) {
  config.trace = trace;
  return config;
}

EngineStore EmbeddedStore(TimeFn time) {
  EngineStore store;
  store.service = std::make_unique<LocalService>(LocalService::kDefaultPartitions, 0, std::move(time));
  store.tables = std::make_unique<LocalStore>(store.service.get());
  store.transport = std::make_unique<LocalTransport>(store.service.get());
  return store;
}

std::unique_ptr<Lookahead> MakeLookahead(EngineParts* parts) {
  if (extensions.lookahead != nullptr) return extensions.lookahead(parts);
  return std::make_unique<Lookahead>(&parts->step_store);
}

}  // namespace

Backends::Backends(LocalService* embedded, ClientDriver* driver, const PartitionId& store) {
  if (embedded != nullptr) all_.push_back(std::make_unique<DirectBackend>(embedded));
  // The device comes first, since the cache's backend flushes the device's pushes.
  if (extensions.device != nullptr) all_.push_back(extensions.device(driver, store));
  all_.push_back(std::make_unique<CachedBackend>(driver));
}

TableBackend& Backends::Of(const TableOptions& options) const {
  return **std::find_if(all_.begin(), all_.end(),
                        [&](const auto& backend) { return backend->Serves(options); });
}

Status Backends::Check(const BatchCall& call) const {
  const TablePtr* there = nullptr;
  const TablePtr* here = nullptr;
  for (const TablePtr& table : call.tables) (table->options.on_device() ? there : here) = &table;
  if (there != nullptr && here != nullptr) {
    return InvalidArgument("one call has table '" + (*there)->name() +
                           "', whose cache is in GPU memory, and table '" + (*here)->name() +
                           "', which has none there; give all of them one het_tf.Cache(device=...)");
  }
  if (there == nullptr && call.memory.on_device) {
    return InvalidArgument("table '" + call.tables[0]->name() +
                           "' has no cache in GPU memory, but its op runs there; place it on the CPU");
  }
  return Status();
}

EngineParts::EngineParts(std::string given_name, EngineStore given_store, const ClientConfig& config)
    : name(std::move(given_name)),
      store(std::move(given_store)),
      notice(config.notice),
      lookahead(MakeLookahead(this)),
      driver(store.transport.get(), Traced(config, &trace), remote(), lookahead.get()),
      backends(store.service.get(), &driver, store.transport->id(0)),
      catalog(name) {}

Status EngineParts::RefuseWhileLoading() const {
  if (!loading.load(std::memory_order_acquire)) return Status();
  return FailedPrecondition("a checkpoint is being restored into namespace '" + name +
                            "': its tables cannot be used until it is done. Wait for the restore, which "
                            "another thread does; if it failed half-way, restore again or call "
                            "het_tf.reset()");
}

Engine::Engine(std::string name, size_t threads, TimeFn time)
    : Engine(std::move(name), threads, EmbeddedStore(std::move(time)), EmbeddedConfig()) {}

Engine::Engine(std::string name, size_t threads, std::unique_ptr<TableStore> store,
               std::unique_ptr<Transport> transport, const ClientConfig& config)
    : Engine(std::move(name), threads, EngineStore{nullptr, std::move(store), std::move(transport)}, config) {
}

Engine::Engine(std::string name, size_t threads, EngineStore store, const ClientConfig& config)
    : parts_(std::move(name), std::move(store), config),
      steps_(&parts_, threads),
      caches_(&parts_),
      tables_(&parts_, &steps_, &caches_),
      loads_(&parts_, &steps_) {}

}  // namespace het
