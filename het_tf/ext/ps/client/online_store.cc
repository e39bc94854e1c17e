#include "het_tf/ext/ps/client/online_store.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "het_tf/ext/ps/client/redis_transport.h"
#include "het_tf/ext/ps/keyspace.h"

namespace het {
namespace {

using serve::OnlineReader;

// The reader of one namespace, address and options. The mutex is held while it opens, so that other
// namespaces do not wait.
struct Slot {
  std::mutex mutex;
  std::weak_ptr<OnlineReader> reader;
};

struct Readers {
  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<Slot>> slots;
};
// Never destroyed: kernels may outlive static destructors.
Readers& All() {
  static auto* readers = new Readers();
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
  auto partitions = store->Get("partitions");
  if (!partitions.ok()) return partitions.status();
  HET_ASSIGN_OR_RETURN(auto hash_seed, store->Get("hash_seed"));
  HET_ASSIGN_OR_RETURN(const uint64_t rule, store->Get("made"));
  HET_RETURN_IF_ERROR(CheckRule(name_space, std::to_string(rule)));
  if (partitions.value() < 1 || partitions.value() > kSlots) {
    return FailedPrecondition("the key '" + MetaKey(name_space) + "' at " + address.ToString() + " says " +
                              std::to_string(partitions.value()) +
                              " partitions; it is not a namespace of het_tf");
  }
  store->keys_ = PartitionKeys(name_space, static_cast<uint32_t>(partitions.value()));
  store->hash_seed_ = hash_seed;
  return store;
}

Result<uint64_t> RedisOnlineStore::Get(const char* field) {
  const std::string key = MetaKey(name_space_);
  HET_ASSIGN_OR_RETURN(auto reply, cluster_.Ask(key, {"HGET", key, field}, seconds_));
  if (reply.kind == RedisReply::kString) {
    return std::strtoull(reply.text().c_str(), nullptr, 10);
  }
  return FailedPrecondition("the parameter server at " + address_.ToString() + " has no namespace " +
                            Quoted(name_space_) +
                            "; serve from the server that the model was trained with (HET_SERVE_PS names "
                            "another one than the model does)");
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

  std::shared_ptr<Slot> slot;
  {
    Readers& all = All();
    std::lock_guard<std::mutex> lock(all.mutex);
    std::shared_ptr<Slot>& of = all.slots[{name_space, spec.ps + "\n" + online}];
    if (of == nullptr) of = std::make_shared<Slot>();
    slot = of;
  }
  std::lock_guard<std::mutex> lock(slot->mutex);
  if (auto reader = slot->reader.lock()) return reader;
  HET_ASSIGN_OR_RETURN(auto address, ParseServerAddress(spec.ps));
  HET_ASSIGN_OR_RETURN(auto store, RedisOnlineStore::Open(address, name_space, spec.config.deadline));
  const auto notice = [where = address.ToString()](const std::string& text) {
    std::fprintf(stderr, "het_tf: parameter server %s: %s\n", where.c_str(), text.c_str());
  };
  auto reader = std::make_shared<OnlineReader>(std::move(store), spec.config, notice);
  slot->reader = reader;
  return reader;
}

std::string OnlineReaderStats() {
  std::vector<std::pair<std::string, std::shared_ptr<Slot>>> slots;
  {
    Readers& all = All();
    std::lock_guard<std::mutex> lock(all.mutex);
    for (const auto& [key, slot] : all.slots) slots.emplace_back(key.first, slot);
  }
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [name_space, slot] : slots) {
    std::lock_guard<std::mutex> lock(slot->mutex);
    const std::shared_ptr<OnlineReader> reader = slot->reader.lock();
    if (reader == nullptr) continue;
    nlohmann::json stats = nlohmann::json::parse(reader->Stats());
    stats["namespace"] = name_space;
    list.push_back(std::move(stats));
  }
  return list.dump();
}

}  // namespace het
