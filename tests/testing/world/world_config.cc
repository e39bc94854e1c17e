#include "tests/testing/world/world_config.h"

#include "tests/testing/world/modes.h"

namespace het::testing {

std::string WorldConfig::ToString() const {
  auto bound = [](const Bound& b) {
    if (b == kUnbounded) return std::string("unbounded");
    return std::to_string(b.most) + (b.every == 0 ? "" : " by age / " + std::to_string(b.every)) +
           (b.from == 0 ? "" : ", " + std::to_string(b.early) + " below " + std::to_string(b.from));
  };
  std::string modes;
  for (const auto& [mode, value] : ModesOf(*this)) modes += ", " + mode + ": " + value;
  return "seed " + std::to_string(seed) + ", workers " + std::to_string(workers) + ", devices " +
         std::to_string(devices) + ", partitions " + std::to_string(partitions) +
         (shards > 0 ? " on " + std::to_string(shards) + " shards" : "") + ", tables " +
         std::to_string(tables) + ", " + optimizer + ", dim " + std::to_string(dim) + ", capacity " +
         std::to_string(cache.capacity) + ", pull " + bound(cache.pull_bound) + ", push " +
         bound(cache.push_bound) + ", write_back " + std::to_string(cache.write_back_rows) + modes;
}

}  // namespace het::testing
