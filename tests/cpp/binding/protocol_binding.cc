// A protocol world (tests/cpp/testing/world/world.h) for ctypes; the other side is
// tests/python/session/test_protocol_properties.py.
//
// Lookups are numbered steps: begun, finished when their answers have come, and written or forgotten. Calls
// return false when the client's call failed; het_world_error says why, or what a check has found.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cpp/testing/world/world.h"

#define HET_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using het::testing::TestStep;
using het::testing::World;
using het::testing::WorldConfig;

struct Step {
  size_t worker;
  std::unique_ptr<TestStep> step;
  std::unique_ptr<het::ReadOp> op;  // until it is finished
};

struct Handle {
  explicit Handle(const WorldConfig& config) : world(config) {}
  ~Handle() {
    for (auto& [number, step] : steps) {
      if (step.op != nullptr) static_cast<void>(world.client(step.worker).FinishRead(step.op.get()));
    }
  }

  bool Ok(const het::Status& status) {
    if (!status.ok() && error.empty()) error = status.message();
    return status.ok();
  }

  World world;
  std::map<int, Step> steps;
  std::map<uint32_t, het::Bytes> snapshots;
  int next_step = 1;
  std::string error;
};

Handle* Of(void* handle) { return static_cast<Handle*>(handle); }
int64_t Bound(int64_t bound) { return bound < 0 ? het::kUnbounded : bound; }

}  // namespace

// Negative bounds: unbounded.
HET_EXPORT void* het_world_create(uint64_t seed, uint32_t workers, uint32_t partitions, uint32_t tables,
                                  const char* optimizer, uint32_t dim, const char* policy, uint64_t capacity,
                                  uint32_t admit_after, int64_t pull_bound, int64_t push_bound,
                                  uint64_t write_back_rows, int keep_until_durable) {
  WorldConfig config;
  config.seed = seed;
  config.workers = workers;
  config.partitions = partitions;
  config.tables = tables;
  config.optimizer = optimizer;
  config.dim = dim;
  config.cache.policy = policy;
  config.cache.capacity = capacity;
  config.cache.admit_after = admit_after;
  config.cache.pull_bound = Bound(pull_bound);
  config.cache.push_bound = Bound(push_bound);
  config.cache.write_back_rows = write_back_rows;
  config.client.durability =
      keep_until_durable != 0 ? het::Durability::kCheckpoint : het::Durability::kApplied;
  return new Handle(config);
}
HET_EXPORT void het_world_destroy(void* handle) { delete Of(handle); }

// The first thing that went wrong, or "".
HET_EXPORT const char* het_world_error(void* handle) {
  Handle* h = Of(handle);
  if (h->error.empty()) h->error = h->world.FirstError();
  return h->error.c_str();
}

HET_EXPORT int het_world_begin(void* handle, uint32_t worker, uint32_t table, const int64_t* keys,
                               uint64_t count, int training) {
  Handle* h = Of(handle);
  std::vector<std::vector<het::Key>> all(h->world.config().tables);
  all[table].assign(keys, keys + count);
  Step step{worker, h->world.NewStep(all), nullptr};
  step.op = h->world.BeginRead(worker, step.step.get(), training != 0);
  h->steps[h->next_step] = std::move(step);
  return h->next_step++;
}
// Waits for the answers and checks I2-I4 on what was read.
HET_EXPORT bool het_world_finish(void* handle, int number) {
  Handle* h = Of(handle);
  Step& step = h->steps.at(number);
  het::Client& client = h->world.client(step.worker);
  for (int i = 0; i < 20000 && !step.op->done(); ++i) client.Progress(0.05);
  const bool ok = h->Ok(client.FinishRead(step.op.get()));
  step.op = nullptr;
  if (ok) h->world.CheckRead(step.worker, step.step.get());
  return ok;
}
// Checks I1.
HET_EXPORT bool het_world_write(void* handle, int number) {
  Handle* h = Of(handle);
  Step step = std::move(h->steps.at(number));
  h->steps.erase(number);
  return h->Ok(h->world.Write(step.worker, step.step.get()));
}
HET_EXPORT void het_world_forget(void* handle, int number) { Of(handle)->steps.erase(number); }
// dim floats of a key of a finished step.
HET_EXPORT bool het_world_value(void* handle, int number, uint32_t table, int64_t key, float* out) {
  Handle* h = Of(handle);
  const het::TableSchema& schema = *h->world.schema(table);
  const float* value = h->steps.at(number).step->Value(schema.id(), key);
  if (value == nullptr) return false;
  std::copy_n(value, schema.dim(), out);
  return true;
}
HET_EXPORT int64_t het_world_clock(void* handle, uint32_t table, int64_t key) {
  World& world = Of(handle)->world;
  return world.ServerClock({world.schema(table)->id(), key});
}

HET_EXPORT void het_world_progress(void* handle, uint32_t worker) {
  Of(handle)->world.client(worker).Progress(0);
}
HET_EXPORT bool het_world_flush(void* handle, uint32_t worker) {
  Handle* h = Of(handle);
  return h->Ok(h->world.Flush(worker));
}

// --- faults

HET_EXPORT void het_world_set_faults(void* handle, uint32_t worker, double each) {
  using het::testing::Faults;
  Of(handle)->world.transport(worker).faults = each == 0 ? Faults::None() : Faults::Some(each);
}
HET_EXPORT void het_world_cut(void* handle, uint32_t worker, uint32_t partition, uint64_t applied) {
  Of(handle)->world.transport(worker).Cut(partition, applied);
}
HET_EXPORT void het_world_refuse(void* handle, uint32_t worker, uint32_t partition) {
  Of(handle)->world.transport(worker).RefuseNext(partition);
}
HET_EXPORT void het_world_silence(void* handle, uint32_t worker, uint32_t partition) {
  Of(handle)->world.transport(worker).SilenceOnce(partition);
}
HET_EXPORT void het_world_hold_replies(void* handle, uint32_t worker, uint32_t partition, double seconds) {
  Of(handle)->world.transport(worker).HoldRepliesFor(partition, seconds);
}
HET_EXPORT void het_world_snapshot(void* handle, uint32_t partition) {
  Handle* h = Of(handle);
  h->snapshots[partition] = h->world.Snapshot(partition);
}
HET_EXPORT void het_world_restart(void* handle, uint32_t partition, int close) {
  World& world = Of(handle)->world;
  world.Restart(partition, world.Snapshot(partition), close != 0);
}
// Back to the snapshot; false without one.
HET_EXPORT bool het_world_failover(void* handle, uint32_t partition) {
  Handle* h = Of(handle);
  const auto snapshot = h->snapshots.find(partition);
  if (snapshot == h->snapshots.end()) return false;
  h->world.Failover(partition, snapshot->second);
  return true;
}

// --- checks

// I5, as it holds at any moment.
HET_EXPORT void het_world_check(void* handle) { Of(handle)->world.CheckConservation(); }
// Faults end, everything is pushed, and the store must hold all of it.
HET_EXPORT bool het_world_drain(void* handle) {
  Handle* h = Of(handle);
  for (auto& [number, step] : h->steps) {
    if (step.op != nullptr) static_cast<void>(h->world.client(step.worker).FinishRead(step.op.get()));
    step.op = nullptr;
  }
  if (!h->Ok(h->world.Drain())) return false;
  h->world.CheckConservation();
  if (!h->world.lossy() || h->world.keeps()) h->world.CheckDrained();
  return true;
}
