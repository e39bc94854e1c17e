// What the commands share: their entry from C, keys, arguments and errors.
//
// A command is a C++ function `int Run(RedisModuleCtx*, Args)`; Entry<Run> is what the server
// calls. It lets no exception out: memory that ends becomes -OOM. A command therefore makes
// everything that can fail before it begins to answer, and changes its partition either whole or
// not at all.
//
// Errors: HETNOPART (no such key), WRONGTYPE, OOM, LOADING (a load is going on), and HETERR for all
// else, which names the argument and the remedy.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "het_tf/core/base/span.h"
#include "het_tf/ps/module/redis_api.h"
#include "het_tf/ps/module/value.h"

namespace het::module {

using Args = Span<RedisModuleString*>;  // [0]: the command, [1]: the key

inline std::string_view Text(const RedisModuleString* argument) {
  size_t size = 0;
  const char* bytes = redis.StringPtrLen(argument, &size);
  return {bytes, size};
}
inline Span<const uint8_t> BytesOf(const RedisModuleString* argument) {
  const std::string_view text = Text(argument);
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Decimal digits and nothing else.
bool ParseNumber(std::string_view text, uint64_t* number);
// Without regard to case.
bool Is(const RedisModuleString* argument, std::string_view word);

// "-HETERR message" on one line, whatever the message holds. All these answer kOk, so that a
// command can end with them, and log what they refuse to a primary or to the append-only file: from
// then on this copy is not equal to its source.
int ReplyError(RedisModuleCtx* ctx, const std::string& message);
// `state`: how things are now.
int ReplyWrongArity(RedisModuleCtx* ctx);
int ReplyOutOfMemory(RedisModuleCtx* ctx, const std::string& state = "nothing was changed");
int ReplyString(RedisModuleCtx* ctx, std::string_view text);
// True, and -LOADING has been answered, while somebody loads into this partition and others: a
// client asks again. What a primary or the append-only file says is done in any case.
bool ReplyLoading(RedisModuleCtx* ctx, const RedisModuleString* name, const Partition& partition);
// The same as words: "" while nobody loads.
std::string WhoLoads(RedisModuleCtx* ctx, const RedisModuleString* name, const Partition& partition);

// For the log: so many clocks of the partition at `key` were out of range.
std::string ClampedClocks(std::string_view key, size_t clocks);

// The answer when `maxmemory` is used up, for commands that refuse on their own because only some
// of their forms take memory. What the primary or the append-only file says is done in any case.
bool OutOfMemory(RedisModuleCtx* ctx);
// The command comes from the primary or from the append-only file: it was accepted once.
bool Replayed(RedisModuleCtx* ctx);

// What is to be made next must fit in het.max-tables; what was accepted once is made.
void LimitTables(RedisModuleCtx* ctx, Partition* partition);

// A key held open.
class Key {
 public:
  Key(RedisModuleCtx* ctx, RedisModuleString* name, int mode)
      : key_(static_cast<RedisModuleKey*>(redis.OpenKey(ctx, name, mode))) {}
  ~Key() {
    if (key_ != nullptr) redis.CloseKey(key_);
  }
  Key(const Key&) = delete;
  Key& operator=(const Key&) = delete;

  RedisModuleKey* get() const { return key_; }
  bool empty() const { return key_ == nullptr || redis.KeyType(key_) == kKeyTypeEmpty; }

 private:
  RedisModuleKey* key_;
};

// The partition in `key`, which is called `name`. Null when there is none: then the error has been
// answered.
Partition* FindPartition(RedisModuleCtx* ctx, const Key& key, const RedisModuleString* name);

template <int (*Run)(RedisModuleCtx*, Args)>
int Entry(RedisModuleCtx* ctx, RedisModuleString** argv, int argc) {
  try {
    return Run(ctx, Args(argv, static_cast<size_t>(argc)));
  } catch (const std::bad_alloc&) {
    return ReplyOutOfMemory(ctx);
  } catch (const std::exception& error) {
    redis.Log(ctx, "warning", "het: %s", error.what());
    return redis.ReplyWithError(ctx, "HETERR internal error; see the server's log");
  }
}

int RunTable(RedisModuleCtx* ctx, Args args);  // command_table.cc
// command_loading.cc: HET.TABLE's BEGIN, COMMIT and ABORT
int BeginLoad(RedisModuleCtx* ctx, Args args, Partition* partition);
int EndLoad(RedisModuleCtx* ctx, Args args, Partition* partition);
int RunStep(RedisModuleCtx* ctx, Args args);  // command_frame.cc
int RunRead(RedisModuleCtx* ctx, Args args);
int RunScan(RedisModuleCtx* ctx, Args args);  // command_data.cc
int RunLoad(RedisModuleCtx* ctx, Args args);
int RunStat(RedisModuleCtx* ctx, Args args);

}  // namespace het::module
