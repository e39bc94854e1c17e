#include "het_tf/ext/sizing/capi/replay.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "het_tf/core/base/answer.h"
#include "het_tf/core/engine/table_options.h"
#include "het_tf/ext/sizing/cc/replay.h"

namespace het {
namespace {

using Json = nlohmann::json;

Json AsJson(const FrameCounts& counts) {
  return {{"frames", counts.frames}, {"parts", counts.parts}, {"bytes", counts.bytes}};
}

Json AsJson(const ReplayOutcome& outcome) {
  Json counters;
#define HET_FIELD(name, help) counters[#name] = outcome.counters.name;
  HET_COUNTERS(HET_FIELD)
#undef HET_FIELD
  const NetworkCounts& traffic = outcome.traffic;
  return {{"steps", outcome.steps},
          {"waiting_reads", outcome.waiting_reads},
          {"waiting_writes", outcome.waiting_writes},
          {"client_seconds", outcome.client_seconds},
          {"store_seconds", outcome.store_seconds},
          {"store_rows", outcome.store_rows},
          {"store_bytes", outcome.store_bytes},
          {"cached_rows", outcome.cached_rows},
          {"unsent_rows", outcome.unsent_rows},
          {"evictions", outcome.evictions},
          {"counters", counters},
          {"traffic",
           {{"pushes", AsJson(traffic.pushes)},
            {"reads", AsJson(traffic.reads)},
            {"replies", AsJson(traffic.replies)},
            {"round_trips", traffic.round_trips}}}};
}

Result<ReplaySettings> SettingsOf(const Json& request) {
  ReplaySettings settings;
  HET_ASSIGN_OR_RETURN(const TableSpec spec, ParseTableSpec(request.at("spec").dump()));
  HET_ASSIGN_OR_RETURN(settings.schema, TableSchema::Create(spec));
  HET_ASSIGN_OR_RETURN(const CacheOptions given, ParseCacheOptions(request.at("cache").dump()));
  HET_ASSIGN_OR_RETURN(const TableOptions options, given.Resolve(*settings.schema, /*remote=*/true));
  settings.cache = *options.cache;
  settings.workers = settings.cache.workers;
  settings.partitions = request.at("partitions");
  settings.shards = request.at("shards");
  settings.warm_steps = request.at("warm_steps");
  settings.window = request.at("window");
  settings.on_demand = request.at("on_demand");
  return settings;
}

}  // namespace
}  // namespace het

int HetReplay(const char* request, const int64_t* keys, const uint64_t* ends, size_t batches) {
  using namespace het;  // NOLINT: C entry point
  return Answer([&]() -> Status {
    const Json json = Json::parse(request);
    HET_ASSIGN_OR_RETURN(const ReplaySettings settings, SettingsOf(json));
    const auto append = [&](size_t batch, std::vector<Key>* to) {
      to->insert(to->end(), keys + (batch == 0 ? 0 : ends[batch - 1]), keys + ends[batch]);
    };
    ReplayWatcher nobody;
    Replay replay({batches, append}, settings, &nobody);
    if (json.at("rows_exist")) {
      std::vector<Key> all(keys, keys + (batches == 0 ? 0 : ends[batches - 1]));
      std::sort(all.begin(), all.end());
      all.erase(std::unique(all.begin(), all.end()), all.end());
      HET_RETURN_IF_ERROR(replay.MakeRows({all.data(), all.size()}));
    }
    HET_ASSIGN_OR_RETURN(const ReplayOutcome outcome, replay.Run());
    Json answer = AsJson(outcome);
    constexpr size_t kOfClient = sizeof(ClientId) + sizeof(ClientState) + 4 * sizeof(void*);
    answer["partition_bytes"] = sizeof(Partition) + settings.workers * kOfClient;
    const SyncPolicy sync = settings.cache.sync();
    answer["pull_most"] = sync.pull.most;
    answer["push_most"] = sync.push.most;
    answer["line_bytes"] = Lines::Bytes(settings.schema->row_floats());
    Text() = answer.dump();
    return Status();
  });
}
