#include "het_tf/ext/ps/module/command.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "het_tf/ext/ps/module/limits.h"

namespace het::module {
namespace {

constexpr size_t kMaxErrorBytes = 4096;

void LogIfReplayed(RedisModuleCtx* ctx, const char* why) {
  if (!Replayed(ctx)) return;
  redis.Log(ctx, "warning",
            "het: a replicated command was refused, so this copy now differs from its source (%s). "
            "Remedy: the source's version of the module or a newer one, and a full resynchronisation",
            why);
}

// Replies an error, which must be one line of the protocol.
int ReplyLine(RedisModuleCtx* ctx, std::string line) {
  if (line.size() > kMaxErrorBytes) line.resize(kMaxErrorBytes);
  for (char& c : line) {
    if (std::iscntrl(static_cast<unsigned char>(c)) != 0) c = ' ';
  }
  LogIfReplayed(ctx, line.c_str());
  redis.ReplyWithError(ctx, line.c_str());
  return kOk;
}

}  // namespace

bool ParseNumber(std::string_view text, uint64_t* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

bool Is(const RedisModuleString* argument, std::string_view word) {
  const std::string_view text = Text(argument);
  return std::equal(text.begin(), text.end(), word.begin(), word.end(),
                    [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
}

int ReplyError(RedisModuleCtx* ctx, const std::string& message) {
  return ReplyLine(ctx, "HETERR " + message);
}

int ReplyWrongArity(RedisModuleCtx* ctx) {
  LogIfReplayed(ctx, "this version does not know its number of arguments");
  return redis.WrongArity(ctx);
}

int ReplyOutOfMemory(RedisModuleCtx* ctx, const std::string& state) {
  return ReplyLine(ctx, "OOM out of memory, and " + state + "; raise maxmemory, or add shards");
}

int ReplyString(RedisModuleCtx* ctx, std::string_view text) {
  return redis.ReplyWithStringBuffer(ctx, text.data(), text.size());
}

std::string WhoLoads(RedisModuleCtx* ctx, const RedisModuleString* name, const Partition& partition) {
  const LoadMark* mark = partition.loading();
  if (mark == nullptr || !mark->holds(UnixTime()) || Replayed(ctx)) return "";
  const std::string key(Text(name));
  return "LOADING " + key + " is being loaded by " + mark->loader + " since " + std::to_string(mark->since) +
         " (seconds since 1970), at most until " + std::to_string(mark->until) + "; HET.TABLE " + key +
         " ABORT " + mark->loader + " ends it";
}

bool ReplyLoading(RedisModuleCtx* ctx, const RedisModuleString* name, const Partition& partition) {
  std::string words = WhoLoads(ctx, name, partition);
  if (words.empty()) return false;
  ReplyLine(ctx, std::move(words));
  return true;
}

std::string ClampedClocks(std::string_view key, size_t clocks) {
  return std::string(key) + " has " + std::to_string(clocks) +
         " clocks out of range. They were set to the maximum: pushes to their rows are refused. Remedy: "
         "clear the tables, or load them anew";
}

bool Replayed(RedisModuleCtx* ctx) {
  return (redis.GetContextFlags(ctx) & (kCtxReplicated | kCtxLoading)) != 0;
}

bool OutOfMemory(RedisModuleCtx* ctx) {
  return (redis.GetContextFlags(ctx) & (kCtxOutOfMemory | kCtxReplicated | kCtxLoading)) == kCtxOutOfMemory;
}

void LimitTables(RedisModuleCtx* ctx, Partition* partition) {
  partition->set_max_tables(Replayed(ctx) ? SIZE_MAX : static_cast<size_t>(limits.max_tables));
}

Partition* FindPartition(RedisModuleCtx* ctx, const Key& key, const RedisModuleString* name) {
  if (key.empty()) {
    const std::string text(Text(name));
    ReplyLine(ctx, "HETNOPART no partition at " + text + "; create it with HET.TABLE " + text + " CREATE");
    return nullptr;
  }
  Partition* partition = GetPartition(key.get());
  if (partition == nullptr) {
    redis.ReplyWithError(ctx, "WRONGTYPE Operation against a key holding the wrong kind of value");
  }
  return partition;
}

}  // namespace het::module
