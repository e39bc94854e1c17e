#include "het_tf/core/engine/registry.h"

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <set>

#include "het_tf/core/base/after_fork.h"
#include "het_tf/core/engine/engine.h"

namespace het {
namespace {

struct Registry {
  std::mutex mutex;
  size_t threads = 1;
  EngineFactory factory;
  uint64_t factories = 0;  // number of factories so far
  std::map<std::string, std::shared_ptr<Engine>> engines;
  std::set<std::string> being_made;  // callers with one of these names wait for `made`
  std::condition_variable made;
};

// Never destroyed: kernels may outlive static destructors.
Registry& GetRegistry() {
  static Registry* const registry = new Registry();
  return *registry;
}

}  // namespace

Status SetEngineFactory(EngineFactory factory) {
  HET_RETURN_IF_ERROR(CheckNotInChild());
  Registry& registry = GetRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  for (const auto& [name, engine] : registry.engines) {
    const std::vector<std::string> tables = engine->tables().Names();
    if (tables.empty()) continue;
    return FailedPrecondition("table '" + tables[0] + "' of the namespace '" + name +
                              "' is somewhere else already");
  }
  registry.engines.clear();
  registry.factory = std::move(factory);
  ++registry.factories;
  return Status();
}

std::shared_ptr<Engine> FindEngine(const std::string& name) {
  if (InRefusedChild()) return nullptr;
  Registry& registry = GetRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  const auto it = registry.engines.find(name);
  return it == registry.engines.end() ? nullptr : it->second;
}

Result<std::shared_ptr<Engine>> GetEngine(const std::string& name) {
  HET_RETURN_IF_ERROR(CheckNotInChild());
  Registry& registry = GetRegistry();
  std::unique_lock<std::mutex> lock(registry.mutex);
  for (;;) {
    const auto it = registry.engines.find(name);
    if (it != registry.engines.end()) return it->second;
    RefuseInChildren();
    if (registry.being_made.insert(name).second) break;
    registry.made.wait(lock);
  }
  for (;;) {
    const EngineFactory factory = registry.factory;
    const uint64_t number = registry.factories;
    const size_t threads = registry.threads;
    lock.unlock();  // connecting takes long: other names stay usable
    Result<std::shared_ptr<Engine>> made = Status(Code::kResourceExhausted, "out of memory");
    try {
      made = factory == nullptr ? std::make_shared<Engine>(name, threads) : factory(name, threads);
    } catch (const std::bad_alloc&) {
    } catch (const std::exception& error) {  // otherwise the next call with this name would wait forever
      made = Status(Code::kInternal, error.what());
    }
    lock.lock();
    if (number != registry.factories) continue;  // the factory was replaced meanwhile
    registry.being_made.erase(name);
    registry.made.notify_all();
    if (!made.ok()) return made;
    if (threads != registry.threads) made.value()->steps().SetThreads(registry.threads);
    return registry.engines[name] = made.value();
  }
}

std::vector<std::string> EngineNames() {
  std::vector<std::string> names;
  if (InRefusedChild()) return names;
  Registry& registry = GetRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  for (const auto& entry : registry.engines) names.push_back(entry.first);
  return names;
}

void ResetEngine(const std::string& name) {
  if (InRefusedChild()) return;
  Registry& registry = GetRegistry();
  decltype(registry.engines)::node_type gone;  // ends after the lock
  std::lock_guard<std::mutex> lock(registry.mutex);
  gone = registry.engines.extract(name);
}

void SetEngineThreads(size_t threads) {
  if (InRefusedChild()) return;
  Registry& registry = GetRegistry();
  std::vector<std::shared_ptr<Engine>> engines;
  {
    std::lock_guard<std::mutex> lock(registry.mutex);
    registry.threads = threads;
    for (auto& entry : registry.engines) engines.push_back(entry.second);
  }
  for (auto& engine : engines) engine->steps().SetThreads(threads);  // waits for a running Apply
}

}  // namespace het
