// HET.CHANGES answers what has changed in a partition since a position (core/store/changes.h).
//
//   HET.CHANGES key SINCE position [CURSOR cursor] [MAXBYTES bytes] [TABLE id] [STORED | ROWS format]
//   HET.CHANGES key SINCE position TABLE id COUNT
//
// The answer is a list: the position at the start of the scan, the next page's cursor ("0": this was the
// last), the kind of the scan, and the page's chunks. With COUNT it is the kind of a scan, and upper bounds
// on its rows and removals.
//
// Only a primary answers: a reader dates its rows by the request that it sent, and a replica may be behind.

#include "het_tf/core/store/changes.h"
#include "het_tf/ext/ps/module/command.h"
#include "het_tf/ext/ps/module/stats.h"

namespace het::module {
namespace {

constexpr uint64_t kDefaultBytes = uint64_t{1} << 20;
constexpr uint64_t kMostBytes = uint64_t{64} << 20;

struct Options {
  ChangesRequest request;
  bool count = false;
};

// Returns false after replying an error.
bool ParseOptions(RedisModuleCtx* ctx, Args args, Options* options) {
  ChangesRequest& request = options->request;
  request.max_bytes = kDefaultBytes;
  bool since = false;
  for (size_t i = 2; i < args.size(); ++i) {
    if (Is(args[i], "STORED")) {
      request.stored = true;
      continue;
    }
    if (Is(args[i], "COUNT")) {
      options->count = true;
      continue;
    }
    const std::string word(Text(args[i]));
    const auto unknown = [&] {
      ReplyError(ctx, "'" + word + "' is not an option, or has no value; HET.CHANGES takes SINCE, CURSOR, " +
                          "MAXBYTES, TABLE and ROWS with a value, STORED and COUNT");
      return false;
    };
    if (i + 1 == args.size()) return unknown();
    const RedisModuleString* const value = args[++i];
    const auto refuse = [&](const char* what) {
      ReplyError(ctx, word + " is '" + std::string(Text(value)) + "'; " + what);
      return false;
    };
    if (Is(args[i - 1], "SINCE")) {
      since = ParsePosition(Text(value), &request.since);
      if (!since) return refuse("give the position of an earlier answer, INCARNATION:NUMBER, or 0:0");
    } else if (Is(args[i - 1], "CURSOR")) {
      if (!ParseCursor(Text(value), &request.cursor)) {
        return refuse("begin with 0 and go on with the last answer of HET.CHANGES");
      }
    } else if (Is(args[i - 1], "MAXBYTES")) {
      uint64_t bytes = 0;
      if (!ParseNumber(Text(value), &bytes) || bytes == 0 || bytes > kMostBytes) {
        return refuse("it must be a number from 1 to 67108864");
      }
      request.max_bytes = bytes;
    } else if (Is(args[i - 1], "TABLE")) {
      uint64_t table = 0;
      if (!ParseNumber(Text(value), &table)) return refuse("give the decimal id of a table");
      request.table = table;
    } else if (Is(args[i - 1], "ROWS")) {
      const auto format = ParseRowFormat(std::string(Text(value)));
      if (!format.ok()) return refuse("give float32, float16, int8 or int4");
      request.format = format.value();
    } else {
      return unknown();
    }
  }
  if (request.stored && request.format != RowFormat::kFloat32) {
    ReplyError(ctx, "STORED rows are float32; leave ROWS or STORED out");
    return false;
  }
  if (options->count && !request.table) {
    ReplyError(ctx, "COUNT needs TABLE and the decimal id of a table");
    return false;
  }
  if (since) return true;
  ReplyError(ctx, "HET.CHANGES needs SINCE and a position; 0:0 asks for the whole partition");
  return false;
}

int ReplyPage(RedisModuleCtx* ctx, const Partition& partition, const ChangesRequest& request) {
  ChangesPage page;
  ReadChanges(partition, request, &page);
  const std::string start = ToString(page.start);
  const std::string next = ToString(page.next);
  ++stats.changes_pages;
  redis.ReplyWithArray(ctx, 3 + static_cast<long>(page.chunks.size()));
  ReplyString(ctx, start);
  ReplyString(ctx, next);
  ReplyString(ctx, NameOf(page.kind));
  for (const Bytes& chunk : page.chunks) {
    stats.changes_bytes += chunk.size();
    redis.ReplyWithStringBuffer(ctx, reinterpret_cast<const char*>(chunk.data()), chunk.size());
  }
  return kOk;
}

int ReplyCount(RedisModuleCtx* ctx, const Partition& partition, const ChangesRequest& request) {
  const ChangesCount count = CountChanges(partition, request.since, *request.table);
  redis.ReplyWithArray(ctx, 3);
  ReplyString(ctx, NameOf(count.kind));
  redis.ReplyWithLongLong(ctx, static_cast<long long>(count.rows));
  return redis.ReplyWithLongLong(ctx, static_cast<long long>(count.removed));
}

}  // namespace

int RunChanges(RedisModuleCtx* ctx, Args args) {
  Options options;
  if (args.size() < 2) return ReplyWrongArity(ctx);
  if (!ParseOptions(ctx, args, &options)) return kOk;
  if ((redis.GetContextFlags(ctx) & kCtxPrimary) == 0) {
    return ReplyError(ctx,
                      "this server is a replica; HET.CHANGES promises how old rows are, which only a "
                      "primary knows: connect to the primary");
  }
  const Key key(ctx, args[1], kRead);
  const Partition* partition = FindPartition(ctx, key, args[1]);
  if (partition == nullptr || ReplyLoading(ctx, args[1], *partition)) return kOk;
  return options.count ? ReplyCount(ctx, *partition, options.request)
                       : ReplyPage(ctx, *partition, options.request);
}

}  // namespace het::module
