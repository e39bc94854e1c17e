// The device: messages, memory, staging, and the checks of arguments.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "tests/ext/gpu/device/host/memory.h"
#include "tests/ext/gpu/device/reference/reference.h"

namespace het::reference {
namespace {

thread_local std::string last_error;

struct Alias {
  uintptr_t bytes, alias;
};
std::mutex aliases_mutex;
std::map<uintptr_t, Alias> aliases;  // by where they begin

}  // namespace

int Fail(int code, const std::string& message) {
  last_error = message;
  return code;
}

void Wanted::Add(uint32_t of_use, Key key, int64_t base) {
  use.push_back(of_use);
  keys.push_back(key);
  bases.push_back(base);
}

void Wanted::Show(HetDevWanted* shown) const {
  *shown = {keys.size(), use.data(), keys.data(), bases.data(), reads.data(), hits.data()};
}

void Export::Fill(const std::vector<LeavingOfUse>& leaving, HetDevExport* out) {
  uses.assign(leaving.size(), OfUse());
  shown.clear();
  for (uint32_t u = 0; u < leaving.size(); ++u) {
    OfUse& of = uses[u];
    for (const auto& [key, update] : leaving[u]) {
      of.keys.push_back(key);
      of.ticks.push_back(update.ticks);
      of.clocks.push_back(update.clock);
      of.updates.insert(of.updates.end(), update.update.begin(), update.update.end());
    }
    if (!of.keys.empty())
      shown.push_back(
          {u, of.keys.size(), of.keys.data(), of.ticks.data(), of.clocks.data(), of.updates.data()});
  }
  *out = {static_cast<uint32_t>(shown.size()), shown.data(), left_keys.size(), left_uses.data(),
          left_keys.data()};
}

const void* ReadableAddress(const void* device) {
  std::lock_guard<std::mutex> lock(aliases_mutex);
  const auto at = reinterpret_cast<uintptr_t>(device);
  auto it = aliases.upper_bound(at);
  if (it == aliases.begin()) return device;
  --it;
  if (at - it->first >= it->second.bytes) return device;
  return reinterpret_cast<const void*>(it->second.alias + (at - it->first));
}

Readable::Readable(const HetDevCall& call, const HetDevBatch& of)
    : features(of.features, of.features + of.n_features), batch(of) {
  for (size_t f = 0; f < call.ids.size(); ++f) features[f].ids = call.ids[f].data();
  for (HetDevFeature& feature : features) {
    feature.rows = ReadableAddress(feature.rows);
    feature.gradients = ReadableAddress(feature.gradients);
  }
  batch.features = features.data();
}

int CheckBatch(const HetDevContext* context, const HetDevCall* call, const HetDevBatch* batch, bool ids) {
  if (context == nullptr || call == nullptr || batch == nullptr) {
    return Fail(HET_DEV_INVALID, "context, call and batch must be given; one of them is null");
  }
  if (call->context != context) return Fail(HET_DEV_INVALID, "the call belongs to another context");
  std::set<const HetDevTable*> seen;
  for (uint32_t u = 0; u < batch->n_uses; ++u) {
    const HetDevUse& use = batch->uses[u];
    const std::string which = "use " + std::to_string(u);
    if (use.table == nullptr) return Fail(HET_DEV_INVALID, which + " has no table");
    if (use.table->context != context)
      return Fail(HET_DEV_INVALID, which + " has a table of another context");
    if (!seen.insert(use.table).second) {
      return Fail(HET_DEV_INVALID, which + " has table '" + use.table->name +
                                       "', as an earlier use has; give each table one use");
    }
    if (use.stamp >> 32 != 0) {
      return Fail(HET_DEV_INVALID,
                  which + ": stamp is " + std::to_string(use.stamp) + "; it must be below 2^32");
    }
    if (use.push_bound < 0 || (use.push_bound > 0 && !use.table->config.keep_updates)) {
      return Fail(HET_DEV_INVALID, which + ": push_bound is " + std::to_string(use.push_bound) +
                                       "; it must be 0 or more, and 0 for a table without keep_updates");
    }
  }
  for (uint32_t f = 0; f < batch->n_features; ++f) {
    const HetDevFeature& feature = batch->features[f];
    const std::string which = "feature " + std::to_string(f);
    if (feature.use >= batch->n_uses) {
      return Fail(HET_DEV_INVALID, which + ": use is " + std::to_string(feature.use) + "; there are " +
                                       std::to_string(batch->n_uses));
    }
    if (ids && feature.n > 0 && feature.ids == nullptr) return Fail(HET_DEV_INVALID, which + " has no ids");
  }
  return HET_DEV_OK;
}

std::vector<Keys> KeysOf(const HetDevBatch& batch, const uint8_t* active) {
  std::vector<Keys> keys(batch.n_uses);
  for (uint32_t f = 0; f < batch.n_features; ++f) {
    const HetDevFeature& feature = batch.features[f];
    if (active != nullptr && !active[f]) continue;
    for (uint64_t i = 0; i < feature.n; ++i) {
      if (!IsPadding(feature, feature.ids[i])) keys[feature.use].insert(feature.ids[i]);
    }
  }
  return keys;
}

}  // namespace het::reference

using het::reference::Fail;
using het::reference::ReadableAddress;

bool HetDevContext::Begin() {
  sums.reset();
  leaving.left_uses.clear();
  leaving.left_keys.clear();
  return fail_allocation == 0 || --fail_allocation > 0;
}

int HetDevContext::OutOfMemory() {
  return Fail(HET_DEV_OUT_OF_MEMORY, "out of memory, as HetDevFailAllocation asked for");
}

const char* HetDevError() { return het::reference::last_error.c_str(); }

int HetDevAbiVersion() { return HET_DEV_ABI_VERSION; }

int HetDevDescribe(int device, HetDevInfo* info) {
  *info = HetDevInfo();
  info->abi_version = HET_DEV_ABI_VERSION;
  info->executor = "reference";
  info->built = "g++ " __VERSION__;
  if (device != 0) {
    return Fail(HET_DEV_NO_DEVICE, "there is no device " + std::to_string(device) +
                                       "; the reference has one device, with the number 0");
  }
  std::snprintf(info->name, sizeof info->name, "reference");
  info->multiprocessors = 1;
  info->memory_bytes = info->free_bytes = uint64_t{1} << 40;
  return HET_DEV_OK;
}

int HetDevCreateContext(int device, HetDevContext** context) {
  HetDevInfo info;
  if (const int bad = HetDevDescribe(device, &info)) return bad;
  *context = new HetDevContext();
  return HET_DEV_OK;
}

void HetDevDestroyContext(HetDevContext* context) { delete context; }

int HetDevMalloc(HetDevContext* context, size_t bytes, void** memory) {
  if (!context->Begin()) return context->OutOfMemory();
  *memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (*memory == nullptr)
    return Fail(HET_DEV_OUT_OF_MEMORY, "out of memory: " + std::to_string(bytes) + " bytes");
  return HET_DEV_OK;
}

void HetDevFree(HetDevContext*, void* memory) { std::free(memory); }

int HetDevCopyIn(HetDevContext* context, void* device, const void* host, size_t bytes, HetDevStream) {
  context->sums.reset();
  if (bytes > 0) std::memcpy(ReadableAddress(device), host, bytes);
  return HET_DEV_OK;
}

int HetDevCopyOut(HetDevContext* context, void* host, const void* device, size_t bytes, HetDevStream) {
  context->sums.reset();
  if (bytes > 0) std::memcpy(host, ReadableAddress(device), bytes);
  return HET_DEV_OK;
}

int HetDevSynchronize(HetDevContext* context, HetDevStream) {
  context->sums.reset();
  return HET_DEV_OK;
}

int HetDevCollect(HetDevContext*) { return HET_DEV_OK; }

int HetDevStage(HetDevContext* context, size_t bytes, void** memory) {
  context->stage.resize(bytes + 1);
  *memory = context->stage.data();
  return HET_DEV_OK;
}

void HetDevFailAllocation(HetDevContext* context, uint64_t n) { context->fail_allocation = n; }

void HetDevHostAlias(void* device_base, size_t bytes, void* alias) {
  std::lock_guard<std::mutex> lock(het::reference::aliases_mutex);
  het::reference::aliases[reinterpret_cast<uintptr_t>(device_base)] = {bytes,
                                                                       reinterpret_cast<uintptr_t>(alias)};
}

void HetDevHostUnalias(void* device_base) {
  std::lock_guard<std::mutex> lock(het::reference::aliases_mutex);
  het::reference::aliases.erase(reinterpret_cast<uintptr_t>(device_base));
}
