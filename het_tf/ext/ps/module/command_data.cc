// HET.SCAN and HET.LOAD move a partition's content in chunks (core/store/chunk.h), for checkpoints and copies
// to a store of another shape. HET.LOAD draws a new epoch for a table that it loads, and replicates it behind
// the chunks. HET.STAT describes the content.
#include <algorithm>
#include <vector>

#include "het_tf/core/store/chunk.h"
#include "het_tf/core/store/local_service.h"
#include "het_tf/ext/ps/module/command.h"
#include "het_tf/ext/ps/module/stats.h"

namespace het::module {
namespace {

constexpr uint64_t kDefaultRows = 1024;
constexpr uint64_t kMostTables = 100;  // in one answer: some milliseconds

// Parses COUNT number. Returns false after replying an error.
bool ParseCount(RedisModuleCtx* ctx, const RedisModuleString* word, const RedisModuleString* number,
                const std::string& of, uint64_t* count) {
  if (!Is(word, "COUNT")) {
    ReplyError(ctx, "unknown option '" + std::string(Text(word)) + "'; there is COUNT " + of);
    return false;
  }
  if (ParseNumber(Text(number), count) && *count > 0) return true;
  ReplyError(ctx, "COUNT is '" + std::string(Text(number)) + "'; it must be a number from 1 on");
  return false;
}

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

// TABLES [cursor [COUNT tables]]. A cursor is "0" at the beginning and at the end, a table's id between.
// Replies for each table: name, spec with limits, epoch, rows, bytes, clock floor.
int StatTables(RedisModuleCtx* ctx, Args args, const Partition& partition) {
  uint64_t cursor = 0;
  if (args.size() > 3 && !ParseNumber(Text(args[3]), &cursor)) {
    return ReplyError(ctx, "cursor '" + std::string(Text(args[3])) +
                               "' is invalid; begin with 0 and go on with the last answer of HET.STAT");
  }
  uint64_t count = kMostTables;
  if (args.size() > 4 && !ParseCount(ctx, args[4], args[5], "tables", &count)) return kOk;
  struct Line {
    std::string spec;
    std::string epoch;
    const Shard* shard;
  };
  std::vector<Line> lines;
  const auto& shards = partition.shards();
  auto at = shards.lower_bound(cursor);
  for (; at != shards.end() && lines.size() < std::min(count, kMostTables); ++at) {
    const Shard& shard = *at->second;
    lines.push_back({shard.schema().ToJson(shard.limits()), std::to_string(shard.epoch()), &shard});
  }
  const std::string next = std::to_string(at == shards.end() ? 0 : at->first);
  redis.ReplyWithArray(ctx, 2);
  ReplyString(ctx, next);
  redis.ReplyWithArray(ctx, static_cast<long>(lines.size()));
  for (const Line& line : lines) {
    redis.ReplyWithArray(ctx, 6);
    ReplyString(ctx, line.shard->schema().spec().name);
    ReplyString(ctx, line.spec);
    ReplyString(ctx, line.epoch);
    redis.ReplyWithLongLong(ctx, static_cast<long long>(line.shard->rows().size()));
    redis.ReplyWithLongLong(ctx, static_cast<long long>(line.shard->bytes()));
    redis.ReplyWithLongLong(ctx, static_cast<long long>(line.shard->clock_floor()));
  }
  return kOk;
}

}  // namespace

int RunScan(RedisModuleCtx* ctx, Args args) {
  if (args.size() != 3 && args.size() != 5) return ReplyWrongArity(ctx);
  ScanPosition at;
  if (!ParseCursor(Text(args[2]), &at)) {
    return ReplyError(ctx, "cursor '" + std::string(Text(args[2])) +
                               "' is invalid; begin with 0 and go on with the last answer of HET.SCAN");
  }
  uint64_t rows = kDefaultRows;
  if (args.size() == 5 && !ParseCount(ctx, args[3], args[4], "rows", &rows)) return kOk;
  const Key key(ctx, args[1], kRead);
  Partition* partition = FindPartition(ctx, key, args[1]);
  if (partition == nullptr) return kOk;
  if (ReplyLoading(ctx, args[1], *partition)) return kOk;
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
  if (args.size() < 3) return ReplyWrongArity(ctx);
  const Key key(ctx, args[1], kRead | kWrite);
  Partition* partition = FindPartition(ctx, key, args[1]);
  if (partition == nullptr) return kOk;
  LimitTables(ctx, partition);
  size_t rows = 0;
  for (size_t i = 2; i < args.size(); ++i) {
    const std::string which = "chunk " + std::to_string(i - 1) + " of " + std::to_string(args.size() - 2) +
                              " was not loaded, those before it were";
    if (TakesMemory(BytesOf(args[i])) && OutOfMemory(ctx)) return ReplyOutOfMemory(ctx, which);
    Loaded loaded;
    Status status;
    Span<const uint8_t> chunk = BytesOf(args[i]);
    Bytes stamped;
    Bytes behind;
    try {
      uint64_t epoch = 0;
      if (!Replayed(ctx)) {
        if (StampSet(chunk, UnixTime(), &stamped)) chunk = {stamped.data(), stamped.size()};
        epoch = RandomId();
        EncodeEpoch(chunk, epoch, &behind);
      }
      status = LoadChunk(chunk, partition, &loaded, epoch);
    } catch (const std::bad_alloc&) {
      return ReplyOutOfMemory(ctx, which);
    }
    if (!status.ok()) return ReplyError(ctx, which + ": " + status.message());
    rows += loaded.rows;
    if (!TakesMemory(chunk)) stats.rows_removed += loaded.rows;
    if (loaded.clamped > 0) {
      redis.Log(ctx, "warning", "het: %s", ClampedClocks(Text(args[1]), loaded.clamped).c_str());
    }
    // One by one: a later chunk may fail.
    for (const Span<const uint8_t> part : {chunk, Span<const uint8_t>(behind.data(), behind.size())}) {
      if (part.size() == 0) continue;
      redis.Replicate(ctx, "HET.LOAD", "sb", args[1], reinterpret_cast<const char*>(part.data()),
                      part.size());
    }
  }
  return redis.ReplyWithLongLong(ctx, static_cast<long long>(rows));
}

int RunStat(RedisModuleCtx* ctx, Args args) {
  if (args.size() < 2 || args.size() == 5 || args.size() > 6) return ReplyWrongArity(ctx);
  if (args.size() > 2 && !Is(args[2], "TABLES")) {
    return ReplyError(ctx, "HET.STAT has no '" + std::string(Text(args[2])) + "'; it knows TABLES");
  }
  const Key key(ctx, args[1], kRead);
  Partition* partition = FindPartition(ctx, key, args[1]);
  if (partition == nullptr) return kOk;
  if (args.size() > 2) return StatTables(ctx, args, *partition);
  const LoadMark* mark = partition->loading();
  std::string loading;
  if (mark != nullptr) {
    loading = mark->loader + " " + std::to_string(mark->since) + " " + std::to_string(mark->until);
  }
  // As text: these use all 64 bits, and integers of the protocol are signed.
  const std::string hash_seed = std::to_string(partition->id().hash_seed);
  const std::string incarnation = std::to_string(partition->incarnation());
  auto number = [ctx](std::string_view name, uint64_t value) {
    ReplyString(ctx, name);
    redis.ReplyWithLongLong(ctx, static_cast<long long>(value));
  };
  redis.ReplyWithMap(ctx, 13);
  number("index", partition->id().index);
  number("count", partition->id().count);
  ReplyString(ctx, "hash_seed");
  ReplyString(ctx, hash_seed);
  ReplyString(ctx, "incarnation");
  ReplyString(ctx, incarnation);
  number("changes", partition->changes().now());
  number("tables", partition->shards().size());
  number("rows", RowsOf(*partition));
  number("bytes", MemoryOf(*partition));
  number("clients", partition->clients().all().size());
  number("subscribed_rows", partition->subscribers().held());
  number("notified_rows", partition->subscribers().notified());
  number("subscription_resets", partition->subscribers().resets());
  ReplyString(ctx, "loading");
  ReplyString(ctx, loading);
  return kOk;
}

}  // namespace het::module
