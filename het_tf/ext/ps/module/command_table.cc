// HET.TABLE creates and drops partitions and tables. These commands draw random numbers (epochs) and
// replicate themselves with the numbers drawn.
//
// Only CREATE and ADD take memory, and a full store must still be able to drop a table. So the command is not
// flagged deny-oom, and these two refuse on their own.
#include "het_tf/core/store/local_service.h"
#include "het_tf/ext/ps/module/command.h"

namespace het::module {
namespace {

std::string ToString(const PartitionId& id) {
  return "index " + std::to_string(id.index) + ", count " + std::to_string(id.count) + ", hash_seed " +
         std::to_string(id.hash_seed);
}

// CREATE index count hash_seed
int Create(RedisModuleCtx* ctx, Args args) {
  if (args.size() != 6) return ReplyWrongArity(ctx);
  static constexpr const char* kNames[] = {"index", "count", "hash_seed"};
  uint64_t numbers[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    if (ParseNumber(Text(args[3 + i]), &numbers[i])) continue;
    return ReplyError(ctx, std::string(kNames[i]) + " is '" + std::string(Text(args[3 + i])) +
                               "'; it must be a decimal number from 0 on");
  }
  const auto [index, count, hash_seed] = numbers;
  if (count == 0 || count > UINT32_MAX || index >= count) {
    return ReplyError(ctx, "index is " + std::to_string(index) + " and count " + std::to_string(count) +
                               "; the partitions of a store have the indices 0 to count - 1");
  }
  const PartitionId id{static_cast<uint32_t>(index), static_cast<uint32_t>(count), hash_seed};
  const Key key(ctx, args[1], kRead | kWrite);
  if (key.empty()) {
    if (OutOfMemory(ctx)) return ReplyOutOfMemory(ctx);
    SetNewPartition(key.get(), id, {std::string(Text(args[1])), redis.GetSelectedDb(ctx)});
    redis.ReplicateVerbatim(ctx);
    return redis.ReplyWithSimpleString(ctx, "OK");
  }
  const Partition* partition = FindPartition(ctx, key, args[1]);
  if (partition == nullptr) return kOk;
  if (partition->id() == id) return redis.ReplyWithSimpleString(ctx, "OK");
  return ReplyError(ctx, "the partition at " + std::string(Text(args[1])) + " has " +
                             ToString(partition->id()) + "; wanted: " + ToString(id) +
                             ". Use another key, or connect with the store's own numbers");
}

// Takes the epoch from args[4], or draws one. Returns false after replying an error.
bool GetEpoch(RedisModuleCtx* ctx, Args args, uint64_t* epoch) {
  if (args.size() == 4) {
    *epoch = RandomId();
  } else if (!ParseNumber(Text(args[4]), epoch) || *epoch == 0) {
    ReplyError(ctx, "epoch is '" + std::string(Text(args[4])) +
                        "'; it must be a decimal number from 1 on, or absent to draw one");
    return false;
  }
  return true;
}

// ADD spec-json [epoch]
int Add(RedisModuleCtx* ctx, Args args, Partition* partition) {
  if (args.size() != 4 && args.size() != 5) return ReplyWrongArity(ctx);
  uint64_t epoch = 0;
  if (!GetEpoch(ctx, args, &epoch)) return kOk;
  auto spec = ParseTableSpec(std::string(Text(args[3])));
  if (!spec.ok()) return ReplyError(ctx, spec.status().message());
  auto schema = TableSchema::Create(std::move(spec.value()));
  if (!schema.ok()) return ReplyError(ctx, schema.status().message());
  const uint64_t id = schema.value()->id();
  const Shard* shard = partition->Find(id);
  const bool exists = shard != nullptr;
  const std::string before = exists ? shard->schema().ToJson(shard->limits()) : "";
  const std::string answer = std::to_string(exists ? shard->epoch() : epoch);
  if (!exists && OutOfMemory(ctx)) return ReplyOutOfMemory(ctx);
  LimitTables(ctx, partition);
  const Status status = partition->CreateTable(schema.value(), epoch, Replayed(ctx) ? 0 : UnixTime());
  if (!status.ok()) return ReplyError(ctx, status.message());
  // With its limits and their start, so that copies do not use their own clocks.
  shard = partition->Find(id);
  const std::string after = shard->schema().ToJson(shard->limits());
  if (after != before) {
    redis.Replicate(ctx, "HET.TABLE", "sccc", args[1], "ADD", after.c_str(), answer.c_str());
  }
  return ReplyString(ctx, answer);
}

// Returns the table named by args[3], or null after replying an error.
Shard* FindTable(RedisModuleCtx* ctx, Args args, Partition* partition) {
  const std::string_view name = Text(args[3]);
  Shard* shard = partition->Find(HashName(name));
  if (shard != nullptr && shard->schema().spec().name == name) return shard;
  const std::string key(Text(args[1]));
  ReplyError(ctx, "no table '" + std::string(name) + "' at " + key + "; HET.TABLE " + key +
                      " ADD makes one, HET.STAT " + key + " TABLES 0 lists the tables");
  return nullptr;
}

// DROP name
int Drop(RedisModuleCtx* ctx, Args args, Partition* partition) {
  if (args.size() != 4) return ReplyWrongArity(ctx);
  const Shard* shard = FindTable(ctx, args, partition);
  if (shard == nullptr) return kOk;
  partition->DropTable(shard->schema().id());
  redis.ReplicateVerbatim(ctx);
  return redis.ReplyWithSimpleString(ctx, "OK");
}

// CLEAR name [epoch]
int Clear(RedisModuleCtx* ctx, Args args, Partition* partition) {
  if (args.size() != 4 && args.size() != 5) return ReplyWrongArity(ctx);
  uint64_t epoch = 0;
  if (!GetEpoch(ctx, args, &epoch)) return kOk;
  const Shard* shard = FindTable(ctx, args, partition);
  if (shard == nullptr) return kOk;
  const std::string answer = std::to_string(epoch);
  partition->ClearTable(shard->schema().id(), epoch);
  redis.Replicate(ctx, "HET.TABLE", "scsc", args[1], "CLEAR", args[3], answer.c_str());
  return ReplyString(ctx, answer);
}

}  // namespace

int RunTable(RedisModuleCtx* ctx, Args args) {
  if (args.size() < 3) return ReplyWrongArity(ctx);
  if (Is(args[2], "CREATE")) return Create(ctx, args);
  const Key key(ctx, args[1], kRead | kWrite);
  Partition* partition = FindPartition(ctx, key, args[1]);
  if (partition == nullptr) return kOk;
  if (args.size() < 4) return ReplyWrongArity(ctx);
  if (Is(args[2], "ADD")) return Add(ctx, args, partition);
  if (Is(args[2], "DROP")) return Drop(ctx, args, partition);
  if (Is(args[2], "CLEAR")) return Clear(ctx, args, partition);
  if (Is(args[2], "BEGIN")) return BeginLoad(ctx, args, partition);
  if (Is(args[2], "COMMIT") || Is(args[2], "ABORT")) return EndLoad(ctx, args, partition);
  return ReplyError(ctx, "HET.TABLE has no '" + std::string(Text(args[2])) +
                             "'; it knows CREATE, ADD, DROP, CLEAR, BEGIN, COMMIT and ABORT");
}

}  // namespace het::module
