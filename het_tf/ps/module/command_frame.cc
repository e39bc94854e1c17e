// HET.STEP and HET.READ: one request frame in, one reply frame out (core/wire/parts.h).
//
// What a frame comes to stands in the reply frame, not in a Redis error: only what keeps a frame
// from being looked at (no such key, no memory) is one. A step is replicated as its push alone, and
// only when this call applied it: checks, fetches, duplicates and refused parts change nothing. A
// frame that is nothing but a push goes on as it came, with the time at which it was applied behind
// it: `HET.STEP key frame time`. What the push made the tables sweep out follows as HET.LOAD.
// Replicas and the append-only file execute both in the same order, and so come to the same rows
// bit for bit; they never sweep by themselves.
//
// The answer is counted before anything is looked up: a part that asks for more than is left of
// het.max-reply-bytes (limits.h) is refused (kBadFrame). Workers never ask for so much at once.
//
// The parts of a frame belong to partitions of one namespace, and the first one's key is the
// command's. A part whose partition is not here, since it moves or has moved, or is not for this
// user, is refused in the reply (kElsewhere), and so is one that loads (kBusy): the other parts are
// done all the same. A part that comes alone is refused by an error of Redis, which says more. To
// copies each part goes as a step of its own.
#include <algorithm>
#include <utility>
#include <vector>

#include "het_tf/core/base/byte_pool.h"
#include "het_tf/core/base/steady_seconds.h"
#include "het_tf/core/wire/parts.h"
#include "het_tf/ps/module/command.h"
#include "het_tf/ps/module/limits.h"
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

// What one command costs. All that the thread computes is the server's; of that, a partition has its share of
// the time since the part that was answered before its own, and of the bytes, the first one with the heads'.
// The copy of the reply is no partition's. The clock of the thread leaves out what others take of the
// machine, but costs a system call: it is read once a command.
class Meter {
 public:
  Meter(size_t bytes_in, const RequestParts* parts, const Bytes* reply)
      : parts_(*parts), reply_(*reply), in_left_(bytes_in) {}
  ~Meter() {
    const double own = ThreadSeconds() - own_;
    const double share = std::min(1.0, own / (SteadySeconds() - began_));
    stats.busy_seconds += own;
    for (const auto& [traffic, took] : laps_) traffic->busy_seconds += share * took;
  }
  // Throws std::bad_alloc; nothing does later.
  void Begin() { laps_.reserve(parts_.size()); }
  // The part that was read last is answered.
  void Book(const Handled& handled, Traffic* traffic) {
    const double now = SteadySeconds();
    ++traffic->frames;
    traffic->rows_pulled += handled.rows;
    traffic->rows_pushed += handled.pushed;
    traffic->bytes_in += std::exchange(in_left_, parts_.bytes_left()) - parts_.bytes_left();
    traffic->bytes_out += reply_.size() - std::exchange(out_, reply_.size());
    laps_.emplace_back(traffic, now - std::exchange(last_, now));
  }

 private:
  const RequestParts& parts_;
  const Bytes& reply_;
  const double own_ = ThreadSeconds();
  const double began_ = SteadySeconds();
  double last_ = began_;
  size_t in_left_;
  size_t out_ = 0;
  std::vector<std::pair<Traffic*, double>> laps_;
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

// When the server has no room, what is believed of clients goes first: nothing is held, and they
// ask instead.
void LimitHoldings(RedisModuleCtx* ctx, Partition* partition) {
  const bool full = OutOfMemory(ctx);
  Holdings& holdings = partition->holdings();
  if (full) holdings.Clear();
  holdings.set_limit(full ? 0 : Holdings::kMostHeld);
}

void Replicate(RedisModuleCtx* ctx, Args args, RedisModuleString* name, const Replication& replication) {
  if (replication.frame) {  // as it came, uncopied
    redis.Replicate(ctx, "HET.STEP", "ssc", name, args[2], std::to_string(replication.time).c_str());
  } else {
    redis.Replicate(ctx, "HET.STEP", "sb", name, reinterpret_cast<const char*>(replication.push.data()),
                    replication.push.size());
  }
  ReplicateRemovals(ctx, name, replication.removals);
}

// A copy that does not apply what its source applied.
void LogDifference(RedisModuleCtx* ctx, const RedisModuleString* name, FrameStatus status) {
  redis.Log(ctx, "warning",
            "het: a replicated push was not applied (status %d): %s is not equal to its source any more. "
            "Remedy: more memory, then a full resynchronisation",
            static_cast<int>(status), std::string(Text(name)).c_str());
}

// A part that no partition looks at.
Handled Refuse(const Request& q, FrameStatus status, const std::string& why, ReplyWriter* replies) {
  replies->Add(PartRefusal({q.partition.index, q.request_id}, status, why));
  Handled refused;
  refused.status = status;
  Count(refused);
  return refused;
}

// One part, for the partition in `key`, which is called `name`.
Handled RunPart(RedisModuleCtx* ctx, Args args, RedisModuleString* name, const Key& key, const Handling& how,
                Request* q, ReplyWriter* replies, Meter* meter) {
  Partition* partition = key.empty() ? nullptr : GetPartition(key.get());
  if (partition == nullptr) return Refuse(*q, FrameStatus::kElsewhere, "", replies);
  if (const std::string words = WhoLoads(ctx, name, *partition); !words.empty()) {
    ++stats.refused_loading;
    return Refuse(*q, FrameStatus::kBusy, words, replies);
  }
  LimitHoldings(ctx, partition);
  Handled handled = partition->HandlePart(q, replies, how);
  Count(handled);
  if (handled.applied) Replicate(ctx, args, name, handled.replication);
  meter->Book(handled, &partition->traffic());
  return handled;
}

// All parts of an open frame; the command's key `first` is the first one's. Returns what the last
// came to.
Handled RunParts(RedisModuleCtx* ctx, Args args, const Key& first, const Handling& how, RequestParts* parts,
                 Bytes* reply, Meter* meter) {
  const Partition* here = first.empty() ? nullptr : GetPartition(first.get());
  Neighbours neighbours(ctx, args[1], here == nullptr ? 0 : here->id().count);
  Handled handled;
  Handling of_part = how;
  bool begun = false;
  const FrameStatus read = AnswerParts(parts, reply, [&](Request* q, ReplyWriter* replies) {
    const auto most = static_cast<size_t>(limits.max_reply_bytes);
    of_part.most_bytes = most - std::min(most, reply->size());
    if (!std::exchange(begun, true)) {
      handled = RunPart(ctx, args, args[1], first, of_part, q, replies, meter);
      return;
    }
    // The first partition says how many there are.
    const bool ours = here != nullptr && q->partition.count == here->id().count;
    RedisModuleString* name = ours ? neighbours.Find(q->partition.index) : nullptr;
    if (name == nullptr) {
      handled = Refuse(*q, FrameStatus::kElsewhere, "", replies);
    } else {
      const Key key(ctx, name, q->seq != 0 ? kRead | kWrite : kRead);
      handled = RunPart(ctx, args, name, key, of_part, q, replies, meter);
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
  Meter meter(frame.size(), &parts, reply.get());
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
  meter.Begin();
  const Key first(ctx, args[1], parts.pushes() ? kRead | kWrite : kRead);
  if (how.lone) {
    const Partition* partition = FindPartition(ctx, first, args[1]);
    if (partition == nullptr) return kOk;
    if (ReplyLoading(ctx, args[1], *partition)) {
      ++stats.refused_loading;
      return kOk;
    }
  } else if (Replayed(ctx)) {
    return ReplyError(ctx, "a copy gets one part of a frame at a time");
  }
  const Handled handled = RunParts(ctx, args, first, how, &parts, reply.get(), &meter);
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
                               "'; it is for copies alone, which get it from their source");
  }
  return RunFrame(ctx, args, /*may_push=*/true, static_cast<uint32_t>(applied_at));
}

int RunRead(RedisModuleCtx* ctx, Args args) {
  if (args.size() != 3) return ReplyWrongArity(ctx);
  return RunFrame(ctx, args, /*may_push=*/false, 0);
}

}  // namespace het::module
