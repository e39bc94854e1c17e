#include "tests/cpp/testing/device/device_test.h"

#include <utility>
#include <vector>

namespace het::testing {

void DeviceTest::Make(WorldConfig config, bool all) {
  if (all) config.devices = config.workers;
  WorldTest::Make(config);
}

std::vector<Key> DeviceTest::KeysOf(uint32_t p, size_t count) {
  std::vector<Key> keys;
  for (Key key = 0; keys.size() < count; ++key) {
    const uint64_t hash = HashKey(key, world().service().hash_seed());
    if (PartitionOf(hash, world().service().partitions()) == p) keys.push_back(key);
  }
  return keys;
}

Rows::Rows(const Schema& schema, std::vector<Key> k, Clock base)
    : keys(std::move(k)),
      bases(keys.size(), base),
      clocks(keys.size(), -7),
      came(keys.size(), 7),
      admit(keys.size(), 7),
      rows(keys.size() * schema->row_floats(), -777) {
  read.parts.push_back({schema->id(), 0, keys.size(), keys.data(), bases.data(), came.data(), admit.data(),
                        clocks.data(), rows.data()});
}

Ticks::Ticks(const Schema& schema, std::vector<Key> k, float dv)
    : keys(std::move(k)),
      ticks(keys.size(), 1),
      clocks(keys.size(), 1),
      updates(keys.size() * schema->row_floats(), dv) {
  push.parts.push_back({schema->id(), keys.size(), keys.data(), ticks.data(), clocks.data(), updates.data(),
                        /*evicted=*/true});
}

}  // namespace het::testing
