// HET.STEP and HET.READ: one request frame in, one reply frame out (core/wire/frame.h).
//
// What a frame comes to stands in the reply frame, not in a Redis error: only what keeps a frame from being
// looked at (no such key, no memory) is one. A step is replicated as its push part alone, and only when this
// call applied it: checks, fetches, duplicates and refused frames change nothing. A frame that is nothing but
// a push goes on as it came, with the time at which it was applied behind it: `HET.STEP key frame time`. What
// the push made the tables sweep out follows as HET.LOAD. Replicas and the append-only file execute both in
// the same order, and so come to the same rows bit for bit; they never sweep by themselves.
//
// The parts of a frame belong to partitions of one namespace, and the first one's key is the command's. A
// part whose partition is not here, since it moves or has moved, or is not for this user, is told so in the
// reply (kElsewhere), and one that loads as well (kBusy): the others have nothing to do with it. To copies
// each part goes as a step of its own.
#include <utility>

#include "het_tf/core/base/byte_pool.h"
#include "het_tf/core/wire/frame_parts.h"
#include "het_tf/ps/module/command.h"
#include "het_tf/ps/module/neighbours.h"
#include "het_tf/ps/module/stats.h"
#include "het_tf/ps/module/sweeper.h"

namespace het::module {

Stats stats;

namespace {

// Memory that lives from command to command: commands run one after the other, in one thread.
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

// When the server has no room, what is believed of clients goes first: nothing is held, and they ask instead.
void LimitHoldings(RedisModuleCtx* ctx, Partition* partition) {
  const bool full = OutOfMemory(ctx);
  Holdings& holdings = partition->holdings();
  if (full) holdings.Clear();
  holdings.set_limit(full ? 0 : Holdings::kMostHeld);
}

// `name`: null where there is no such key, or not for this user. Returns the partition that is there.
const Partition* RunPart(RedisModuleCtx* ctx, RedisModuleString* name, Request* q, ReplyWriter* replies) {
  const PartRef ref{q->partition.index, q->request_id};
  const auto elsewhere = [&] {
    ++stats.by_status[static_cast<size_t>(FrameStatus::kElsewhere)];
    replies->Add(PartRefusal(ref, FrameStatus::kElsewhere, ""));
    return nullptr;
  };
  if (name == nullptr) return elsewhere();
  const Key key(ctx, name, q->seq != 0 ? kRead | kWrite : kRead);
  Partition* partition = key.empty() ? nullptr : GetPartition(key.get());
  if (partition == nullptr) return elsewhere();
  if (const std::string words = WhoLoads(ctx, name, *partition); !words.empty()) {
    ++stats.refused_loading;
    replies->Add(PartRefusal(ref, FrameStatus::kBusy, words));
    return partition;
  }
  Scratch push;
  std::vector<Bytes> removals;
  Handling how;
  how.now = UnixTime();
  how.push = push.get();
  how.removals = &removals;
  LimitHoldings(ctx, partition);
  const Handled handled = partition->HandlePart(q, replies, how);
  Count(handled);
  if (!handled.applied) return partition;
  redis.Replicate(ctx, "HET.STEP", "sb", name, reinterpret_cast<const char*>(push->data()), push->size());
  ReplicateRemovals(ctx, name, removals);
  return partition;
}

int RunParts(RedisModuleCtx* ctx, Args args) {
  const Span<const uint8_t> frame = BytesOf(args[2]);
  if (Replayed(ctx)) return ReplyError(ctx, "a copy gets one part of a frame at a time");
  Scratch reply;
  Neighbours neighbours(ctx, args[1]);
  bool first = true;
  uint32_t count = 0;  // of the partitions of this store; 0: the first one is not here, to say so
  AnswerParts(frame, reply.get(), [&](Request* q, ReplyWriter* replies) {
    if (std::exchange(first, false)) {
      const Partition* partition = RunPart(ctx, args[1], q, replies);
      if (partition != nullptr) count = partition->id().count;
      return;
    }
    RunPart(ctx, q->partition.count == count ? neighbours.Find(q->partition) : nullptr, q, replies);
  });
  return Answer(ctx, frame.size(), *reply);
}

}  // namespace

int RunStep(RedisModuleCtx* ctx, Args args) {
  if (args.size() != 3 && args.size() != 4) return ReplyWrongArity(ctx);
  uint64_t applied_at = 0;
  if (args.size() == 4 &&
      (!Replayed(ctx) || !ParseNumber(Text(args[3]), &applied_at) || applied_at > UINT32_MAX)) {
    return ReplyError(ctx, "the time behind the frame is '" + std::string(Text(args[3])) +
                               "'; it is for copies alone, which get it from their source");
  }
  const Span<const uint8_t> frame = BytesOf(args[2]);
  if (args.size() == 3 && IsOfManyParts(frame)) return RunParts(ctx, args);
  const Key key(ctx, args[1], HasPush(frame) ? kRead | kWrite : kRead);
  Partition* partition = FindPartition(ctx, key, args[1]);
  if (partition == nullptr) return kOk;
  if (ReplyLoading(ctx, args[1], *partition)) {
    ++stats.refused_loading;
    return kOk;
  }
  Scratch reply;
  Scratch push;
  std::vector<Bytes> removals;
  Handling how;
  how.now = Replayed(ctx) ? 0 : UnixTime();
  how.applied_at = static_cast<uint32_t>(applied_at);
  how.push = push.get();
  how.removals = &removals;
  LimitHoldings(ctx, partition);
  const Handled handled = partition->Handle(frame, reply.get(), how);
  if (handled.applied) {
    if (handled.whole) {  // the frame goes on as it is, uncopied
      redis.Replicate(ctx, "HET.STEP", "ssc", args[1], args[2], std::to_string(handled.time).c_str());
    } else {
      redis.Replicate(ctx, "HET.STEP", "sb", args[1], reinterpret_cast<const char*>(push->data()),
                      push->size());
    }
    ReplicateRemovals(ctx, args[1], removals);
  } else if (Replayed(ctx)) {
    redis.Log(ctx, "warning",
              "het: a replicated push was not applied (status %d): %s is not equal to its source any more. "
              "Remedy: more memory, then a full resynchronisation",
              static_cast<int>(handled.status), std::string(Text(args[1])).c_str());
  }
  Count(handled);
  return Answer(ctx, frame.size(), *reply);
}

int RunRead(RedisModuleCtx* ctx, Args args) {
  if (args.size() != 3) return ReplyWrongArity(ctx);
  const Span<const uint8_t> frame = BytesOf(args[2]);
  if (HasPush(frame)) {
    return ReplyError(ctx, "the frame has a push part and HET.READ changes nothing; send it with HET.STEP");
  }
  if (IsOfManyParts(frame)) return RunParts(ctx, args);
  const Key key(ctx, args[1], kRead);
  Partition* partition = FindPartition(ctx, key, args[1]);
  if (partition == nullptr) return kOk;
  if (ReplyLoading(ctx, args[1], *partition)) {
    ++stats.refused_loading;
    return kOk;
  }
  Scratch reply;
  LimitHoldings(ctx, partition);
  const Handled handled = partition->Handle(frame, reply.get());
  Count(handled);
  return Answer(ctx, frame.size(), *reply);
}

}  // namespace het::module
