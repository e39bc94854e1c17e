#include "het_tf/core/cache/counters.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace het {

std::string Counters::ToJson() const {
  nlohmann::json json;
#define HET_FIELD(name, help) json[#name] = name;
  HET_COUNTERS(HET_FIELD)
#undef HET_FIELD
  uint64_t checks_seen = 0;
  for (uint64_t count : lag_histogram) checks_seen += count;
  // A bucket is known by its upper end: the figures are upper bounds within a factor of two.
  double sum = 0;
  double p99 = 0;
  double max = 0;
  uint64_t below = 0;
  for (int i = 0; i < 65; ++i) {
    if (lag_histogram[i] == 0) continue;
    const double upper = i == 0 ? 0 : std::ldexp(1.0, i) - 1;
    sum += upper * static_cast<double>(lag_histogram[i]);
    if (static_cast<double>(below) < 0.99 * static_cast<double>(checks_seen)) p99 = upper;
    below += lag_histogram[i];
    max = upper;
  }
  json["staleness"] = {{"observed", checks_seen},
                       {"mean_at_most", checks_seen == 0 ? 0 : sum / static_cast<double>(checks_seen)},
                       {"p99_at_most", p99},
                       {"max_at_most", max}};
  return json.dump();
}

std::string CounterHelp() {
  std::string help;
#define HET_FIELD(name, text) help += #name "\t" text "\n";
  HET_COUNTERS(HET_FIELD)
#undef HET_FIELD
  return help;
}

}  // namespace het
