#include "tests/testing/world/world_config.h"

namespace het::testing {

std::string WorldConfig::ToString() const {
  auto bound = [](const Bound& b) {
    if (b == kUnbounded) return std::string("unbounded");
    return std::to_string(b.most) + (b.every == 0 ? "" : " by age / " + std::to_string(b.every)) +
           (b.from == 0 ? "" : ", " + std::to_string(b.early) + " below " + std::to_string(b.from));
  };
  return "seed " + std::to_string(seed) + ", workers " + std::to_string(workers) +
         (devices > 0 ? " (" + std::to_string(devices) + " on devices)" : "") + ", partitions " +
         std::to_string(partitions) + (shards > 0 ? " on " + std::to_string(shards) + " shards" : "") +
         ", tables " + std::to_string(tables) + ", " + optimizer + ", dim " + std::to_string(dim) + ", " +
         PolicyName(cache.policy) + ", capacity " + std::to_string(cache.capacity) + ", pull " +
         bound(cache.pull_bound) + ", push " + bound(cache.push_bound) + ", write_back " +
         std::to_string(cache.write_back_rows) +
         (cache.push_max_age ? ", push_max_age " + std::to_string(*cache.push_max_age) : "") +
         (cache.wire != RowFormat::kFloat32 ? std::string(", wire ") + RowFormatName(cache.wire) : "") +
         (cache.checks != Checks::kAsked
              ? std::string(", ") + ChecksName(cache.checks) + ", holds " + std::to_string(most_held)
              : "") +
         (client.durability != Durability::kApplied ? ", keeps frames" : "") +
         (client.far_keys == 0 ? ", names" : "") + (is_default ? ", the default" : "") +
         (age > 0 ? ", aged rows" : "") + (faults.delay > 0 ? ", faults" : "") +
         (failovers ? ", failovers" : "") +
         (operators == Operators::kRows     ? ", rows that operators change"
          : operators == Operators::kTables ? ", tables that operators change"
                                            : "") +
         (cache.layer != 0 ? ", one budget, which moves" : "") + (early ? ", early lookups" : "") +
         (stream == StreamMode::kNone      ? ""
          : stream == StreamMode::kPlanned ? ", planned"
                                           : ", on demand") +
         (summed ? ", summed" : "") + (kept ? ", kept" : "");
}

}  // namespace het::testing
