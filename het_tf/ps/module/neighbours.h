// The keys beside the one that a command declares: of the other partitions of its namespace.
//
// The server has looked at the declared key alone: that it is this server's, and that the user may
// use it. So for each other key the user's rights are asked for here. Where nobody knows the user
// (in a script), no other key is found.
#ifndef HET_TF_PS_MODULE_NEIGHBOURS_H_
#define HET_TF_PS_MODULE_NEIGHBOURS_H_

#include <string>

#include "het_tf/core/wire/ids.h"
#include "het_tf/ps/module/redis_api.h"

namespace het::module {

class Neighbours {
 public:
  // `key`: the declared one, which outlives the object.
  Neighbours(RedisModuleCtx* ctx, const RedisModuleString* key) : ctx_(ctx), key_(key) {}
  ~Neighbours();
  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;

  // The key of a partition, good until the next call; null when there is none, or none for this
  // user.
  RedisModuleString* Find(const PartitionId& id);

 private:
  void Begin();

  RedisModuleCtx* const ctx_;
  const RedisModuleString* const key_;
  bool begun_ = false;
  bool named_ = false;  // as keys of namespaces are
  std::string name_space_;
  RedisModuleUser* user_ = nullptr;
  RedisModuleString* name_ = nullptr;
};

}  // namespace het::module

#endif  // HET_TF_PS_MODULE_NEIGHBOURS_H_
