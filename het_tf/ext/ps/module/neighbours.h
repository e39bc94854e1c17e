// Finds the keys of the other partitions in the namespace of a command's declared key.
//
// The server has checked only the declared key: that it is on this server, and that the user may use it. So
// Find checks the user's rights to each other key. For an unknown user (in a script) it finds none.
#pragma once

#include <cstdint>
#include <vector>

#include "het_tf/ext/ps/module/redis_api.h"

namespace het::module {

class Neighbours {
 public:
  using Keys = std::vector<RedisModuleString*>;

  // `key`: the declared key, which must outlive the object; its namespace has `partitions` partitions.
  Neighbours(RedisModuleCtx* ctx, const RedisModuleString* key, uint32_t partitions)
      : ctx_(ctx), key_(key), partitions_(partitions) {}
  ~Neighbours();
  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;

  // Returns the key of a partition; null if it is missing or the user has no right to it.
  RedisModuleString* Find(uint32_t partition);

 private:
  void Begin();

  RedisModuleCtx* const ctx_;
  const RedisModuleString* const key_;
  const uint32_t partitions_;
  bool begun_ = false;
  RedisModuleUser* user_ = nullptr;
  const Keys* keys_ = nullptr;  // of the namespace; null: no namespace, or an unknown user
};

}  // namespace het::module
