// The fleet for ctypes; fleet.py is the other side. Every call answers null, or a message
// that is good until the thread's next call.
#include <nlohmann/json.hpp>

#include "benchmarks/accuracy/fleet.h"

#define HET_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using het::Span;
using het::Status;
using het::accuracy::Feature;
using het::accuracy::Fleet;

std::string& Text() {
  thread_local std::string text;
  return text;
}

template <typename F>
const char* Answer(F f) {
  Status status;
  try {
    status = f();
  } catch (const std::exception& error) {
    status = het::InvalidArgument(error.what());
  }
  if (status.ok()) return nullptr;
  Text() = status.message();
  return Text().c_str();
}

Fleet* Of(void* handle) { return static_cast<Fleet*>(handle); }

}  // namespace

// config: {"workers", "partitions", "tables": [{"spec", "options"}], "features": [{"table", "padding"}]},
// where padding is an id or null.
HET_EXPORT const char* het_fleet_create(const char* config, void** handle) {
  return Answer([&]() -> Status {
    const auto json = nlohmann::json::parse(config);
    std::vector<std::string> specs, options;
    for (const auto& table : json.at("tables")) {
      specs.push_back(table.at("spec").dump());
      options.push_back(table.at("options").dump());
    }
    std::vector<Feature> features;
    for (const auto& one : json.at("features")) {
      Feature feature;
      feature.table = one.at("table").get<uint32_t>();
      if (!one.at("padding").is_null()) feature.padding_id = one.at("padding").get<int64_t>();
      features.push_back(feature);
    }
    auto fleet = Fleet::Create(json.at("workers").get<uint32_t>(), json.at("partitions").get<uint32_t>(),
                               specs, options, std::move(features));
    if (!fleet.ok()) return fleet.status();
    *handle = fleet.value().release();
    return Status();
  });
}

HET_EXPORT void het_fleet_destroy(void* handle) { delete Of(handle); }

// Arrays of one element a feature.
HET_EXPORT const char* het_fleet_read(void* handle, const int64_t* const* ids, const size_t* counts,
                                      float* const* out) {
  const size_t n = Of(handle)->features();
  return Answer([&] {
    return Of(handle)->Read(Span<const int64_t* const>(ids, n), Span<const size_t>(counts, n),
                            Span<float* const>(out, n));
  });
}

HET_EXPORT const char* het_fleet_plan(void* handle, const int64_t* const* ids, const size_t* counts,
                                      uint64_t place) {
  const size_t n = Of(handle)->features();
  return Answer([&] {
    return Of(handle)->Plan(Span<const int64_t* const>(ids, n), Span<const size_t>(counts, n), place);
  });
}

// rates: one a table.
HET_EXPORT const char* het_fleet_write(void* handle, const int64_t* const* ids, const size_t* counts,
                                       const float* const* gradients, const float* rates, size_t tables) {
  const size_t n = Of(handle)->features();
  return Answer([&] {
    return Of(handle)->Write(Span<const int64_t* const>(ids, n), Span<const size_t>(counts, n),
                             Span<const float* const>(gradients, n), Span<const float>(rates, tables));
  });
}

HET_EXPORT const char* het_fleet_flush(void* handle) {
  return Answer([&] { return Of(handle)->Flush(); });
}

// values: dim floats a key.
HET_EXPORT const char* het_fleet_serve(void* handle, uint32_t table, const int64_t* keys, size_t n,
                                       float* values) {
  return Answer([&] { return Of(handle)->Serve(table, Span<const int64_t>(keys, n), values); });
}

HET_EXPORT const char* het_fleet_largest_clock(void* handle, uint32_t table, uint64_t* clock) {
  return Answer([&] {
    *clock = Of(handle)->LargestClock(table);
    return Status();
  });
}

// *text is good until the thread's next call.
HET_EXPORT const char* het_fleet_stats(void* handle, const char** text) {
  return Answer([&]() -> Status {
    auto stats = Of(handle)->Stats();
    if (!stats.ok()) return stats.status();
    Text() = stats.value();
    *text = Text().c_str();
    return Status();
  });
}
