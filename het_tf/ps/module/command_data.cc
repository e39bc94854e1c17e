// HET.SCAN and HET.LOAD move a partition's content in chunks (core/chunk.h): checkpoints, copies to a store
// of another shape. HET.STAT says what is there.
#include "het_tf/core/chunk.h"
#include "het_tf/ps/module/command.h"

namespace het::module {
namespace {

constexpr uint64_t kDefaultRows = 1024;

// A cursor is "0" at the beginning and at the end, "TABLE-ID:ROW" between.
bool ParseCursor(std::string_view text, ScanPosition* at) {
  if (text == "0") return true;
  const size_t colon = text.find(':');
  uint64_t row = 0;
  if (colon == std::string_view::npos || !ParseNumber(text.substr(0, colon), &at->table) ||
      !ParseNumber(text.substr(colon + 1), &row) || row > UINT32_MAX) {
    return false;
  }
  at->row = static_cast<uint32_t>(row);
  return true;
}

}  // namespace

int RunScan(RedisModuleCtx* ctx, Args args) {
  if (args.size() != 3 && args.size() != 5) return redis.WrongArity(ctx);
  ScanPosition at;
  if (!ParseCursor(Text(args[2]), &at)) {
    return ReplyError(ctx, "cursor '" + std::string(Text(args[2])) +
                               "' is none; begin with 0 and go on with what HET.SCAN answered");
  }
  uint64_t rows = kDefaultRows;
  if (args.size() == 5 && !Is(args[3], "COUNT")) {
    return ReplyError(ctx, "unknown option '" + std::string(Text(args[3])) + "'; HET.SCAN knows COUNT rows");
  }
  if (args.size() == 5 && (!ParseNumber(Text(args[4]), &rows) || rows == 0)) {
    return ReplyError(ctx, "COUNT is '" + std::string(Text(args[4])) + "'; it must be a number from 1 on");
  }
  const Key key(ctx, args[1], kRead);
  Partition* partition = FindPartition(ctx, key, args[1]);
  if (partition == nullptr) return kOk;
  Bytes chunk;
  std::string next = "0";
  if (ScanRows(*partition, &at, rows, kMaxChunkBytes, &chunk)) {
    next = std::to_string(at.table) + ":" + std::to_string(at.row);
  }
  redis.ReplyWithArray(ctx, 2);
  ReplyString(ctx, next);
  return redis.ReplyWithStringBuffer(ctx, reinterpret_cast<const char*>(chunk.data()), chunk.size());
}

int RunLoad(RedisModuleCtx* ctx, Args args) {
  if (args.size() < 3) return redis.WrongArity(ctx);
  const Key key(ctx, args[1], kRead | kWrite);
  Partition* partition = FindPartition(ctx, key, args[1]);
  if (partition == nullptr) return kOk;
  size_t rows = 0;
  for (size_t i = 2; i < args.size(); ++i) {
    const std::string which = "chunk " + std::to_string(i - 1) + " of " + std::to_string(args.size() - 2) +
                              " was not loaded, those before it were";
    if (TakesMemory(BytesOf(args[i])) && OutOfMemory(ctx)) return ReplyOutOfMemory(ctx, which);
    size_t of_chunk = 0;
    Status status;
    try {
      status = LoadChunk(BytesOf(args[i]), partition, &of_chunk);
    } catch (const std::bad_alloc&) {
      return ReplyOutOfMemory(ctx, which);
    }
    if (!status.ok()) return ReplyError(ctx, which + ": " + status.message());
    rows += of_chunk;
    // One by one: what follows may fail.
    redis.Replicate(ctx, "HET.LOAD", "ss", args[1], args[i]);
  }
  return redis.ReplyWithLongLong(ctx, static_cast<long long>(rows));
}

int RunStat(RedisModuleCtx* ctx, Args args) {
  if (args.size() != 2) return redis.WrongArity(ctx);
  const Key key(ctx, args[1], kRead);
  const Partition* partition = FindPartition(ctx, key, args[1]);
  if (partition == nullptr) return kOk;
  // As text: these use all 64 bits, which an integer of the protocol, being signed, has not.
  const std::string hash_seed = std::to_string(partition->id().hash_seed);
  const std::string incarnation = std::to_string(partition->incarnation());
  auto number = [ctx](std::string_view name, uint64_t value) {
    ReplyString(ctx, name);
    redis.ReplyWithLongLong(ctx, static_cast<long long>(value));
  };
  redis.ReplyWithMap(ctx, 8);
  number("index", partition->id().index);
  number("count", partition->id().count);
  ReplyString(ctx, "hash_seed");
  ReplyString(ctx, hash_seed);
  ReplyString(ctx, "incarnation");
  ReplyString(ctx, incarnation);
  number("tables", partition->shards().size());
  number("rows", RowsOf(*partition));
  number("bytes", MemoryOf(*partition));
  number("clients", partition->clients().size());
  return kOk;
}

}  // namespace het::module
