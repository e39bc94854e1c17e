#include "het_tf/core/engine/table_stats.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace het {
namespace {

using Json = nlohmann::json;

Json AsJson(const Counters& counters) {
  const Staleness seen = counters.staleness();
  Json lags = Json::array();  // see Counters::lag_histogram, without the zeros at its end
  uint64_t rest = seen.observed;
  for (size_t i = 0; rest > 0; rest -= counters.lag_histogram[i++]) lags.push_back(counters.lag_histogram[i]);
  return {{"observed", seen.observed},
          {"mean_at_most", seen.mean},
          {"p99_at_most", seen.p99},
          {"max_at_most", seen.max},
          {"lags", std::move(lags)}};
}

Json AsJson(const Bound& bound) {
  if (bound == kUnbounded) return nullptr;
  if (bound.every == 0) return bound.most;
  Json json = {{"most", bound.most}, {"of_age", 1.0 / bound.every}};
  if (bound.from != 0) json["below_age"] = {{"age", bound.from}, {"most", bound.early}};
  return json;
}

Json AsJson(const CacheStats& stats) {
  Json json = {{"rows", stats.rows},
               {"capacity", stats.capacity},
               {"unsent_rows", stats.unsent_rows},
               {"bytes", stats.bytes}};
#define HET_FIELD(name, help) json[#name] = stats.counters.name;
  HET_COUNTERS(HET_FIELD)
#undef HET_FIELD
  json["staleness"] = AsJson(stats.counters);
  json["pull_bound"] = AsJson(stats.pull_bound);
  json["push_bound"] = AsJson(stats.push_bound);
  if (stats.wire) json["wire"] = RowFormatName(*stats.wire);
  if (stats.device) {
    json["device"] = stats.device->device;
    json["invalid_rows"] = stats.device->invalid_rows;
    json["device_bytes"] = stats.device->bytes;
  }
  return json;
}

Json AsJson(const TableStats& stats) {
  Json json = {{"table", stats.table},     {"dim", stats.dim},
               {"updates", stats.applies}, {"unapplied_gradients", stats.dropped},
               {"planned", stats.planned}, {"rows", stats.rows},
               {"bytes", stats.bytes},     {"mode", stats.cache ? "cached" : "direct"}};
  if (stats.cache) json["cache"] = AsJson(*stats.cache);
  return json;
}

Json AsJson(const TraceLog::Total& total) {
  return {{"seconds", static_cast<double>(total.nanoseconds.load()) / 1e9},
          {"counts", std::vector<uint64_t>(std::begin(total.counts), std::end(total.counts))}};
}

}  // namespace

std::string ToJson(const TableStats& stats) { return AsJson(stats).dump(); }

Json AsJson(const std::vector<TableStats>& tables, const TraceLog& trace) {
  Json json = {{"tables", Json::object()}, {"phases", Json::object()}};
  for (const TableStats& stats : tables) json["tables"][stats.table] = AsJson(stats);
  for (size_t i = 0; i < kTraceKinds; ++i) {
    const auto kind = static_cast<TraceKind>(i);
    json["phases"][TraceKindName(kind)] = AsJson(trace.total(kind));
  }
  return json;
}

}  // namespace het
