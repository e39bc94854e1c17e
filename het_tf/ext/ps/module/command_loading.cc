// The mark of a load. A table is loaded one partition after the other, and no reader may see half of it. So
// the loader marks all partitions first (BEGIN), loads (HET.LOAD), and removes the marks (COMMIT). Meanwhile
// HET.STEP, HET.READ and HET.SCAN are answered -LOADING, and clients retry.
//
// A mark expires after its seconds, since a loader that died must not block the store forever; the loader
// renews it by another BEGIN. After expiry or ABORT the tables may be loaded in part: the log says so, and
// the load must be repeated. Cleared or loaded tables have new epochs, which invalidate caches of them; other
// tables' caches stay.
#include "het_tf/ext/ps/module/command.h"

namespace het::module {
namespace {

constexpr uint64_t kDefaultSeconds = 600;

}  // namespace

// BEGIN loader [seconds [since]]; `since` is only for replication.
int BeginLoad(RedisModuleCtx* ctx, Args args, Partition* partition) {
  if (args.size() < 4 || args.size() > 6) return ReplyWrongArity(ctx);
  uint64_t seconds = kDefaultSeconds;
  uint64_t since = UnixTime();
  if (args.size() > 4 &&
      (!ParseNumber(Text(args[4]), &seconds) || seconds == 0 || seconds > LoadMark::kMaxSeconds)) {
    return ReplyError(ctx, "seconds is '" + std::string(Text(args[4])) + "'; it must be a number from 1 to " +
                               std::to_string(LoadMark::kMaxSeconds));
  }
  if (args.size() == 6 && (!Replayed(ctx) || !ParseNumber(Text(args[5]), &since) || since > UINT32_MAX)) {
    return ReplyError(ctx, "since is '" + std::string(Text(args[5])) + "'; only replication may give it");
  }
  const std::string loader(Text(args[3]));
  if (loader.empty()) return ReplyError(ctx, "loader is ''; give a name, for others' error messages");
  const LoadMark* mark = partition->loading();
  const bool other = mark != nullptr && mark->loader != loader && mark->holds(static_cast<uint32_t>(since));
  if (other && !Replayed(ctx)) {
    return ReplyError(ctx, mark->loader + " loads since " + std::to_string(mark->since) +
                               " (seconds since 1970), at most until " + std::to_string(mark->until) +
                               "; wait, or end it with HET.TABLE " + std::string(Text(args[1])) + " ABORT " +
                               mark->loader);
  }
  LoadMark next;
  next.loader = loader;
  next.since = static_cast<uint32_t>(since);
  next.until = static_cast<uint32_t>(since + seconds);
  partition->SetLoadMark(next);
  redis.Replicate(ctx, "HET.TABLE", "scscc", args[1], "BEGIN", args[3], std::to_string(seconds).c_str(),
                  std::to_string(since).c_str());
  return redis.ReplyWithSimpleString(ctx, "OK");
}

// COMMIT loader | ABORT loader
int EndLoad(RedisModuleCtx* ctx, Args args, Partition* partition) {
  if (args.size() != 4) return ReplyWrongArity(ctx);
  const std::string loader(Text(args[3]));
  const LoadMark* mark = partition->loading();
  const bool in_time = mark != nullptr && (mark->holds(UnixTime()) || Replayed(ctx));
  if (!in_time || mark->loader != loader) {
    return ReplyError(ctx,
                      loader + " does not load " + std::string(Text(args[1])) + ": " +
                          (in_time ? mark->loader + " does"
                                   : "no load is in progress, or it expired and readers may have seen a part "
                                     "of it; load again, with more seconds"));
  }
  if (Is(args[2], "ABORT")) {
    redis.Log(ctx, "warning", "het: %s gave up loading %s; its tables may be loaded in part", loader.c_str(),
              std::string(Text(args[1])).c_str());
  }
  partition->SetLoadMark(LoadMark());
  redis.ReplicateVerbatim(ctx);
  return redis.ReplyWithSimpleString(ctx, "OK");
}

}  // namespace het::module
