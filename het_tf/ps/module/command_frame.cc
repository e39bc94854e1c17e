// HET.STEP and HET.READ: one request frame in, one reply frame out (core/frame.h).
//
// What a frame comes to stands in the reply frame, not in a Redis error: only what keeps a frame from being
// looked at (no such key, no memory) is one. A step is replicated as its push part alone, and only when this
// call applied it: checks, fetches, duplicates and refused frames change nothing. What the push made the
// tables sweep out follows as HET.LOAD. Replicas and the append-only file execute both in the same order, and
// so come to the same rows bit for bit; they never sweep by themselves.
#include "het_tf/ps/module/command.h"
#include "het_tf/ps/module/stats.h"
#include "het_tf/ps/module/sweeper.h"

namespace het::module {

Stats stats;

namespace {

int Answer(RedisModuleCtx* ctx, const Handled& handled, size_t bytes_in, const Bytes& reply) {
  ++stats.frames;
  ++stats.by_status[static_cast<size_t>(handled.status)];
  stats.pushes_applied += handled.applied;
  stats.pulls += handled.pulled;
  stats.swept += handled.swept;
  stats.rows_pulled += handled.rows;
  stats.bytes_in += bytes_in;
  stats.bytes_out += reply.size();
  return redis.ReplyWithStringBuffer(ctx, reinterpret_cast<const char*>(reply.data()), reply.size());
}

}  // namespace

int RunStep(RedisModuleCtx* ctx, Args args) {
  if (args.size() != 3) return redis.WrongArity(ctx);
  const Span<const uint8_t> frame = BytesOf(args[2]);
  const Key key(ctx, args[1], SeqOf(frame) == 0 ? kRead : kRead | kWrite);
  Partition* partition = FindPartition(ctx, key, args[1]);
  if (partition == nullptr) return kOk;
  Bytes reply;
  Bytes push;
  if (ReplyLoading(ctx, args[1], *partition)) {
    ++stats.refused_loading;
    return kOk;
  }
  std::vector<Bytes> removals;
  Handling how;
  how.now = Replayed(ctx) ? 0 : UnixTime();
  how.push = &push;
  how.removals = &removals;
  const Handled handled = partition->Handle(frame, &reply, how);
  if (handled.applied) {
    redis.Replicate(ctx, "HET.STEP", "sb", args[1], reinterpret_cast<const char*>(push.data()), push.size());
    ReplicateRemovals(ctx, args[1], removals);
  } else if (Replayed(ctx)) {
    redis.Log(ctx, "warning",
              "het: a replicated push was not applied (status %d): %s is not equal to its source any more. "
              "Remedy: more memory, then a full resynchronisation",
              static_cast<int>(handled.status), std::string(Text(args[1])).c_str());
  }
  return Answer(ctx, handled, frame.size(), reply);
}

int RunRead(RedisModuleCtx* ctx, Args args) {
  if (args.size() != 3) return redis.WrongArity(ctx);
  const Span<const uint8_t> frame = BytesOf(args[2]);
  if (const uint64_t seq = SeqOf(frame); seq != 0) {
    return ReplyError(ctx, "the frame has a push part (seq " + std::to_string(seq) +
                               ") and HET.READ changes nothing; send it with HET.STEP");
  }
  const Key key(ctx, args[1], kRead);
  Partition* partition = FindPartition(ctx, key, args[1]);
  if (partition == nullptr) return kOk;
  if (ReplyLoading(ctx, args[1], *partition)) {
    ++stats.refused_loading;
    return kOk;
  }
  Bytes reply;
  const Handled handled = partition->Handle(frame, &reply);
  return Answer(ctx, handled, frame.size(), reply);
}

}  // namespace het::module
