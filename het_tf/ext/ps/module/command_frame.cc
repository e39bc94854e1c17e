// HET.STEP and HET.READ: one request frame in, one reply frame out (core/wire/parts.h).
//
// The reply frame carries the result. Redis errors are only for frames that were not looked at (no such key,
// no memory). A step replicates only its push, and only if this call applied it: checks, fetches, duplicates
// and refused parts change nothing. A frame with only a push is replicated unchanged, followed by the time of
// its application: `HET.STEP key frame time`. Rows that the push swept out follow as HET.LOAD. Replicas and
// the append-only file execute both in the same order, which gives the same rows bit for bit; they never
// sweep by themselves.
//
// The answer's size is computed before any lookup: a part that asks for more than the rest of
// het.max-reply-bytes (limits.h) is refused (kBadFrame). Workers never ask for that much at once.
//
// The parts of a frame belong to partitions of one namespace; the command's key is the first part's. A part
// is refused in the reply if its partition is not here (kElsewhere: it moves or has moved, or this user may
// not use it) or is loading (kBusy); the other parts are processed. A frame's only part is refused by a Redis
// error, which has more detail. Each part is replicated as a step of its own.
#include <algorithm>
#include <utility>

#include "het_tf/core/base/cpu_seconds.h"
#include "het_tf/core/wire/parts.h"
#include "het_tf/ext/ps/byte_pool.h"
#include "het_tf/ext/ps/module/command.h"
#include "het_tf/ext/ps/module/limits.h"
#include "het_tf/ext/ps/module/neighbours.h"
#include "het_tf/ext/ps/module/stats.h"
#include "het_tf/ext/ps/module/sweeper.h"

namespace het::module {

Stats stats;

namespace {

// Memory that commands reuse: they run one after the other, in one thread.
class Scratch {
 public:
  Scratch() : bytes_(pool().Take(0)) {}
  ~Scratch() { pool().Give(std::move(bytes_)); }
  Bytes* get() { return &bytes_; }
  Bytes* operator->() { return &bytes_; }
  Bytes& operator*() { return bytes_; }

 private:
  static BytePool& pool() {
    static auto* pool = new BytePool(kMostScratch);  // never freed: the server may still need it at its exit
    return *pool;
  }
  static constexpr size_t kMostScratch = size_t{4} << 20;

  Bytes bytes_;
};

// Counts the thread's own time of one command, which excludes other load of the machine.
class Meter {
 public:
  ~Meter() { stats.busy_seconds += CpuSeconds::Now() - began_; }

 private:
  const double began_ = CpuSeconds::Now();
};

void Count(const Handled& handled) {
  ++stats.by_status[static_cast<size_t>(handled.status)];
  stats.pushes_applied += handled.applied;
  stats.pulls += handled.pulled;
  stats.swept += handled.swept;
  stats.rows_pulled += handled.rows;
}

int Answer(RedisModuleCtx* ctx, size_t bytes_in, const Bytes& reply) {
  ++stats.frames;
  stats.bytes_in += bytes_in;
  stats.bytes_out += reply.size();
  return redis.ReplyWithStringBuffer(ctx, reinterpret_cast<const char*>(reply.data()), reply.size());
}

// A server without memory first forgets clients' subscriptions and names: clients then ask, and say keys in
// full, instead.
void LimitSubscribers(RedisModuleCtx* ctx, Partition* partition) {
  const bool full = OutOfMemory(ctx);
  Subscribers& subscribers = partition->subscribers();
  if (full) partition->ForgetSoft();
  subscribers.set_limit(full ? 0 : Subscribers::kMostRows);
}

void Replicate(RedisModuleCtx* ctx, Args args, RedisModuleString* name, const Replication& replication) {
  if (replication.frame) {  // unchanged, uncopied
    redis.Replicate(ctx, "HET.STEP", "ssc", name, args[2], std::to_string(replication.time).c_str());
  } else {
    redis.Replicate(ctx, "HET.STEP", "sb", name, reinterpret_cast<const char*>(replication.push.data()),
                    replication.push.size());
  }
  ReplicateRemovals(ctx, name, replication.removals);
}

// Logs that a copy did not apply what its source applied.
void LogDifference(RedisModuleCtx* ctx, const RedisModuleString* name, FrameStatus status) {
  redis.Log(ctx, "warning",
            "het: a replicated push was not applied (status %d): %s now differs from its source. "
            "Remedy: more memory, then a full resynchronisation",
            static_cast<int>(status), std::string(Text(name)).c_str());
}

// Refuses a part that reaches no partition.
Handled Refuse(const Request& q, FrameStatus status, const std::string& why, ReplyWriter* replies) {
  replies->Add(PartRefusal({q.partition.index, q.request_id}, status, why));
  Handled refused;
  refused.status = status;
  Count(refused);
  return refused;
}

// Runs one part for the partition in `key`, which is called `name`.
Handled RunPart(RedisModuleCtx* ctx, Args args, RedisModuleString* name, const Key& key, const Handling& how,
                Request* q, ReplyWriter* replies) {
  Partition* partition = key.empty() ? nullptr : GetPartition(key.get());
  if (partition == nullptr) return Refuse(*q, FrameStatus::kElsewhere, "", replies);
  if (const std::string words = WhoLoads(ctx, name, *partition); !words.empty()) {
    ++stats.refused_loading;
    return Refuse(*q, FrameStatus::kBusy, words, replies);
  }
  LimitSubscribers(ctx, partition);
  Handled handled = partition->HandlePart(q, replies, how);
  Count(handled);
  if (handled.applied) Replicate(ctx, args, name, handled.replication);
  return handled;
}

// Runs all parts of an open frame; the command's key `first` is the first part's. Returns the last result.
Handled RunParts(RedisModuleCtx* ctx, Args args, const Key& first, const Handling& how, RequestParts* parts,
                 Bytes* reply) {
  const Partition* here = first.empty() ? nullptr : GetPartition(first.get());
  Neighbours neighbours(ctx, args[1], here == nullptr ? 0 : here->id().count);
  Handled handled;
  Handling of_part = how;
  bool begun = false;
  const FrameStatus read = AnswerParts(parts, reply, [&](Request* q, ReplyWriter* replies) {
    const auto most = static_cast<size_t>(limits.max_reply_bytes);
    of_part.most_bytes = most - std::min(most, reply->size());
    if (!std::exchange(begun, true)) {
      handled = RunPart(ctx, args, args[1], first, of_part, q, replies);
      return;
    }
    // The first partition determines how many there are.
    const bool ours = here != nullptr && q->partition.count == here->id().count;
    RedisModuleString* name = ours ? neighbours.Find(q->partition.index) : nullptr;
    if (name == nullptr) {
      handled = Refuse(*q, FrameStatus::kElsewhere, "", replies);
    } else {
      const Key key(ctx, name, q->seq != 0 ? kRead | kWrite : kRead);
      handled = RunPart(ctx, args, name, key, of_part, q, replies);
    }
  });
  if (read == FrameStatus::kOk) return handled;
  handled = Handled();
  handled.status = read;
  Count(handled);
  return handled;
}

int RunFrame(RedisModuleCtx* ctx, Args args, bool may_push, uint32_t applied_at) {
  const Span<const uint8_t> frame = BytesOf(args[2]);
  Scratch reply;
  RequestParts parts;
  const Meter meter;
  if (const Status opened = parts.Open(frame); !opened.ok()) {
    RefuseFrame(opened, reply.get());
    Count(Handled());
    if (Replayed(ctx)) LogDifference(ctx, args[1], FrameStatus::kBadFrame);
    return Answer(ctx, frame.size(), *reply);
  }
  if (parts.pushes() && !may_push) {
    return ReplyError(ctx, "the frame has a push part and HET.READ changes nothing; send it with HET.STEP");
  }
  Handling how;
  how.now = Replayed(ctx) ? 0 : UnixTime();
  how.applied_at = applied_at;
  how.replicate = true;
  how.lone = parts.size() == 1;
  const Key first(ctx, args[1], parts.pushes() ? kRead | kWrite : kRead);
  if (how.lone) {
    const Partition* partition = FindPartition(ctx, first, args[1]);
    if (partition == nullptr) return kOk;
    if (ReplyLoading(ctx, args[1], *partition)) {
      ++stats.refused_loading;
      return kOk;
    }
  } else if (Replayed(ctx)) {
    return ReplyError(ctx, "a replicated frame must have one part");
  }
  const Handled handled = RunParts(ctx, args, first, how, &parts, reply.get());
  if (Replayed(ctx) && !handled.applied) LogDifference(ctx, args[1], handled.status);
  if (handled.clamped) redis.Log(ctx, "warning", "het: %s", ClampedClocks(Text(args[1]), 1).c_str());
  return Answer(ctx, frame.size(), *reply);
}

}  // namespace

int RunStep(RedisModuleCtx* ctx, Args args) {
  if (args.size() != 3 && args.size() != 4) return ReplyWrongArity(ctx);
  uint64_t applied_at = 0;
  if (args.size() == 4 &&
      (!Replayed(ctx) || !ParseNumber(Text(args[3]), &applied_at) || applied_at > UINT32_MAX)) {
    return ReplyError(ctx, "the time behind the frame is '" + std::string(Text(args[3])) +
                               "'; only replication may give it");
  }
  return RunFrame(ctx, args, /*may_push=*/true, static_cast<uint32_t>(applied_at));
}

int RunRead(RedisModuleCtx* ctx, Args args) {
  if (args.size() != 3) return ReplyWrongArity(ctx);
  return RunFrame(ctx, args, /*may_push=*/false, 0);
}

}  // namespace het::module
