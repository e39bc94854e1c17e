// The keys beside the one that a command declares: of the other partitions of its namespace.
//
// The server has looked at the declared key alone: that it is this server's, and that the user may
// use it. So for each other key the user's rights are asked for here. Where nobody knows the user
// (in a script), no other key is found.
#pragma once

#include <cstdint>
#include <vector>

#include "het_tf/ps/module/redis_api.h"

namespace het::module {

class Neighbours {
 public:
  using Keys = std::vector<RedisModuleString*>;

  // `key`: the declared one, which outlives the object; its namespace has so many partitions.
  Neighbours(RedisModuleCtx* ctx, const RedisModuleString* key, uint32_t partitions)
      : ctx_(ctx), key_(key), partitions_(partitions) {}
  ~Neighbours();
  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;

  // The key of a partition; null when there is none, or none for this user.
  RedisModuleString* Find(uint32_t partition);

 private:
  void Begin();

  RedisModuleCtx* const ctx_;
  const RedisModuleString* const key_;
  const uint32_t partitions_;
  bool begun_ = false;
  RedisModuleUser* user_ = nullptr;
  const Keys* keys_ = nullptr;  // of the namespace; null: the key is in none, or nobody knows the user
};

}  // namespace het::module
