// Helpers of all commands: entry from C, keys, arguments and errors.
//
// A command is a C++ function `int Run(RedisModuleCtx*, Args)`; the server calls Entry<Run>, which turns
// std::bad_alloc into -OOM and lets no exception out. So a command must do all that can fail before it begins
// to reply, and must change its partition either completely or not at all.
//
// Errors: HETNOPART (no such key), WRONGTYPE, OOM, LOADING (a load is in progress), and HETERR otherwise,
// which names the argument and the remedy.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "het_tf/core/base/span.h"
#include "het_tf/ext/ps/module/redis_api.h"
#include "het_tf/ext/ps/module/value.h"

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

// Parses decimal digits only.
bool ParseNumber(std::string_view text, uint64_t* number);
// Compares without case.
bool Is(const RedisModuleString* argument, std::string_view word);

// Replies "-HETERR message" on one line. All these functions return kOk, so that a command can end with them.
// For a command from the primary or the append-only file they also log the refusal: this copy then differs
// from its source.
int ReplyError(RedisModuleCtx* ctx, const std::string& message);
// `state`: the state of the data, for the message.
int ReplyWrongArity(RedisModuleCtx* ctx);
int ReplyOutOfMemory(RedisModuleCtx* ctx, const std::string& state = "nothing was changed");
int ReplyString(RedisModuleCtx* ctx, std::string_view text);
// Returns true after replying -LOADING, if a load is in progress: the client retries. Commands from a primary
// or the append-only file are always carried out.
bool ReplyLoading(RedisModuleCtx* ctx, const RedisModuleString* name, const Partition& partition);
// The same as text: "" if no load is in progress.
std::string WhoLoads(RedisModuleCtx* ctx, const RedisModuleString* name, const Partition& partition);

// Log text: `clocks` clocks of the partition at `key` were out of range.
std::string ClampedClocks(std::string_view key, size_t clocks);

// Returns true after replying OOM, if `maxmemory` is exhausted: for commands of which only some forms take
// memory. Commands from the primary or the append-only file are always carried out.
bool OutOfMemory(RedisModuleCtx* ctx);
// Whether the command comes from the primary or the append-only file, which accepted it before.
bool Replayed(RedisModuleCtx* ctx);

// Limits new tables to het.max-tables; replayed commands are exempt.
void LimitTables(RedisModuleCtx* ctx, Partition* partition);

// An open key.
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

// Returns the partition in `key`, which is called `name`, or null after replying an error.
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
int RunChanges(RedisModuleCtx* ctx, Args args);  // command_changes.cc

}  // namespace het::module
