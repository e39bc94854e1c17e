#include "het_tf/ext/ps/module/neighbours.h"

#include <map>
#include <string>
#include <utility>

#include "het_tf/ext/ps/keyspace.h"
#include "het_tf/ext/ps/module/command.h"

namespace het::module {
namespace {

// The rights that the server requires for the declared key of a command without a key specification.
constexpr int kAllOfIt = kKeyAccess | kKeyUpdate | kKeyInsert | kKeyDelete;

// Finding the keys takes some ten milliseconds.
const Neighbours::Keys& KeysOf(const std::string& name_space, uint32_t partitions) {
  using Keys = Neighbours::Keys;
  static auto* known = new std::map<std::pair<std::string, uint32_t>, Keys>();  // never freed, as the module
  constexpr size_t kMostKnown = 16;
  const auto found = known->find({name_space, partitions});
  if (found != known->end()) return found->second;
  const std::vector<std::string> names = PartitionKeys(name_space, partitions);
  if (known->size() >= kMostKnown) {
    for (const auto& [of, keys] : *known) {
      for (RedisModuleString* key : keys) redis.FreeString(nullptr, key);
    }
    known->clear();
  }
  Keys& keys = known->emplace(std::pair(name_space, partitions), Keys(names.size())).first->second;
  for (size_t i = 0; i < names.size(); ++i)
    keys[i] = redis.CreateString(nullptr, names[i].data(), names[i].size());
  return keys;
}

}  // namespace

Neighbours::~Neighbours() {
  if (user_ != nullptr) redis.FreeModuleUser(user_);
}

void Neighbours::Begin() {
  begun_ = true;
  std::string name_space;
  if (partitions_ > kSlots || !NamespaceOf(std::string(Text(key_)), &name_space)) return;
  RedisModuleString* user = redis.GetClientUserNameById(ctx_, redis.GetClientId(ctx_));
  if (user == nullptr) return;
  user_ = redis.GetModuleUserFromUserName(user);
  redis.FreeString(ctx_, user);
  if (user_ != nullptr) keys_ = &KeysOf(name_space, partitions_);
}

RedisModuleString* Neighbours::Find(uint32_t partition) {
  if (!begun_) Begin();
  if (keys_ == nullptr || partition >= partitions_) return nullptr;
  RedisModuleString* const key = (*keys_)[partition];
  return redis.ACLCheckKeyPermissions(user_, key, kAllOfIt) == kOk ? key : nullptr;
}

}  // namespace het::module
