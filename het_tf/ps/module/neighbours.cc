#include "het_tf/ps/module/neighbours.h"

#include <map>
#include <vector>

#include "het_tf/ps/keyspace.h"
#include "het_tf/ps/module/command.h"

namespace het::module {
namespace {

// What the server asks for at the declared key of a command without a key specification.
constexpr int kAllOfIt = kKeyAccess | kKeyUpdate | kKeyInsert | kKeyDelete;

// To find the tags takes some ten milliseconds, and they are the same in every namespace.
const std::vector<uint32_t>& TagsOf(uint32_t partitions) {
  static auto* known = new std::map<uint32_t, std::vector<uint32_t>>();  // never freed, as the module
  constexpr size_t kMostKnown = 16;
  const auto found = known->find(partitions);
  if (found != known->end()) return found->second;
  std::vector<uint32_t> tags = PartitionTags(partitions);
  if (known->size() >= kMostKnown) known->clear();
  return known->emplace(partitions, std::move(tags)).first->second;
}

}  // namespace

Neighbours::~Neighbours() {
  if (name_ != nullptr) redis.FreeString(ctx_, name_);
  if (user_ != nullptr) redis.FreeModuleUser(user_);
}

void Neighbours::Begin() {
  begun_ = true;
  named_ = NamespaceOf(std::string(Text(key_)), &name_space_);
  RedisModuleString* user = redis.GetClientUserNameById(ctx_, redis.GetClientId(ctx_));
  if (user == nullptr) return;
  user_ = redis.GetModuleUserFromUserName(user);
  redis.FreeString(ctx_, user);
}

RedisModuleString* Neighbours::Find(const PartitionId& id) {
  if (!begun_) Begin();
  if (!named_ || user_ == nullptr || id.index >= id.count || id.count > kSlots) return nullptr;
  const std::string key = PartitionKey(name_space_, TagsOf(id.count)[id.index]);
  if (name_ != nullptr) redis.FreeString(ctx_, name_);
  name_ = redis.CreateString(ctx_, key.data(), key.size());
  return redis.ACLCheckKeyPermissions(user_, name_, kAllOfIt) == kOk ? name_ : nullptr;
}

}  // namespace het::module
