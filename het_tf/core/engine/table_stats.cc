#include "het_tf/core/engine/table_stats.h"

#include <nlohmann/json.hpp>

namespace het {
namespace {

using Json = nlohmann::json;

Json AsJson(const Staleness& seen) {
  return {{"observed", seen.observed},
          {"mean_at_most", seen.mean},
          {"p99_at_most", seen.p99},
          {"max_at_most", seen.max}};
}

Json AsJson(const Bound& bound) {
  if (bound == kUnbounded) return nullptr;
  if (bound.every == 0) return bound.most;
  return {{"most", bound.most}, {"of_age", 1.0 / bound.every}};
}

Json AsJson(const CacheStats& stats) {
  Json json = {{"rows", stats.rows},
               {"capacity", stats.capacity},
               {"unsent_rows", stats.unsent_rows},
               {"bytes", stats.bytes}};
#define HET_FIELD(name, help) json[#name] = stats.counters.name;
  HET_COUNTERS(HET_FIELD)
#undef HET_FIELD
  json["staleness"] = AsJson(stats.counters.staleness());
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

}  // namespace

std::string ToJson(const TableStats& stats) {
  Json json = {{"table", stats.table},     {"dim", stats.dim},
               {"updates", stats.applies}, {"unapplied_gradients", stats.dropped},
               {"planned", stats.planned}, {"rows", stats.rows},
               {"bytes", stats.bytes},     {"mode", stats.cache ? "cached" : "direct"}};
  if (stats.cache) json["cache"] = AsJson(*stats.cache);
  return json.dump();
}

}  // namespace het
