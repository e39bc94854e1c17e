// The fixture of the named tests of what the client does for tables whose cache is on a device.
#pragma once

#include <map>
#include <vector>

#include "tests/cpp/testing/world/world_test.h"

namespace het::testing {

// All workers, or as many as the config says, keep their caches on toy devices.
class DeviceTest : public WorldTest {
 protected:
  void Make(WorldConfig config, bool all = true);
  ToyDevice& toy(size_t w = 0) { return *world().device(w); }
  Client& client(size_t w = 0) { return world().client(w); }
  std::map<Key, ToyDevice::Row>& rows(size_t w = 0) { return toy(w).rows(At(0).first); }
  const Counters& counters(size_t w = 0) { return client(w).Stats(At(0).first); }
  // The first `count` keys from 0 on that live in partition p.
  std::vector<Key> KeysOf(uint32_t p, size_t count);
};

// A read of partition 0, with memory of its own for what comes.
struct Rows {
  Rows(const Schema& schema, std::vector<Key> k, Clock base = kNoBase);
  std::vector<Key> keys;
  std::vector<Clock> bases, clocks;
  std::vector<uint8_t> came, admit;
  std::vector<float> rows;
  DeviceRead read;
};

// Updates of one tick each, of rows that had none before: `dv` in every float of the row.
struct Ticks {
  Ticks(const Schema& schema, std::vector<Key> k, float dv);
  std::vector<Key> keys;
  std::vector<uint32_t> ticks;
  std::vector<Clock> clocks;
  std::vector<float> updates;
  DevicePush push;
};

}  // namespace het::testing
