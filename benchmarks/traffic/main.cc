// Question: how many rows and bytes travel between N workers with caches and their parameter server, and how
// stale is what the workers read?
//
//   traffic --stream FILE [--workers 8] [--dim 16] [--batch 128] [--partitions 64]
//           [--capacity ROWS] [--staleness S [--optimizer row_wise_adagrad] | --pull S --push S]
//           [--policy lru] [--checks asked] [--wire float32] [--warm SAMPLES]
//           [--rows sgd] [--window BATCHES] [--sync always|on_demand]
//
// S is a number or "unbounded". One run, no network, no thread: equal arguments print equal JSON.
// run.py makes the streams and runs the sweeps. simulation.h says what is simulated.
#include <sys/resource.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "benchmarks/traffic/simulation.h"

namespace het::traffic {
namespace {

int Fail(const std::string& message) {
  fprintf(stderr, "traffic: %s\n", message.c_str());
  return 2;
}

// False unless `text` is a number from `least` to `most`.
bool Number(const std::string& text, uint64_t least, uint64_t most, uint64_t* value) {
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != std::string::npos)
    return false;
  *value = std::stoull(text);
  return *value >= least && *value <= most;
}

bool Ticks(const std::string& text, int64_t* ticks) {
  uint64_t value = 0;
  if (text == "unbounded") {
    *ticks = kUnbounded;
  } else if (Number(text, 0, uint64_t{1} << 62, &value)) {
    *ticks = static_cast<int64_t>(value);
  } else {
    return false;
  }
  return true;
}

nlohmann::json ToJson(const Bound& bound) {
  if (bound == kUnbounded) return nullptr;
  return {{"most", bound.most}, {"every", bound.every}, {"early", bound.early}, {"from", bound.from}};
}

nlohmann::json ToJson(Counts counts) {
  nlohmann::json json;
  counts.ForEach([&json](const std::string& name, const uint64_t* value) {
    const size_t dot = name.find('.');
    if (dot == std::string::npos) {
      json[name] = *value;
    } else {
      json[name.substr(0, dot)][name.substr(dot + 1)] = *value;
    }
  });
  return json;
}

// mean, p99 and max of [lag] = how often, and null of nothing; `reads` beside it.
nlohmann::json Staleness(const std::vector<uint64_t>& histogram, uint64_t reads) {
  if (histogram.empty()) return {{"reads", reads}, {"mean", nullptr}, {"p99", nullptr}, {"max", nullptr}};
  uint64_t all = 0;
  double sum = 0;
  for (size_t lag = 0; lag < histogram.size(); ++lag) {
    all += histogram[lag];
    sum += static_cast<double>(lag) * static_cast<double>(histogram[lag]);
  }
  size_t p99 = 0;
  for (uint64_t below = 0; p99 < histogram.size(); ++p99) {
    below += histogram[p99];
    if (below * 100 >= all * 99) break;
  }
  return {{"reads", reads},
          {"mean", sum / static_cast<double>(all)},
          {"p99", p99},
          {"max", histogram.size() - 1}};
}

int Main(int argc, char** argv) {
  Settings settings;
  std::string path;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (i + 1 == argc) return Fail(name + " is no argument, or wants a value; see the head of main.cc");
    const std::string text = argv[++i];
    uint64_t value = 0;
    int64_t ticks = 0;
    bool fits = true;
    if (name == "--stream") {
      path = text;
    } else if (name == "--workers") {
      fits = Number(text, 1, 1024, &value);
      settings.replay.workers = static_cast<uint32_t>(value);
    } else if (name == "--dim") {
      fits = Number(text, 1, TableSchema::kMaxDim, &value);
      settings.dim = static_cast<uint32_t>(value);
    } else if (name == "--batch") {
      fits = Number(text, 1, 1 << 20, &value);
      settings.batch = static_cast<uint32_t>(value);
    } else if (name == "--partitions") {
      fits = Number(text, 1, 65536, &value);
      settings.replay.partitions = static_cast<uint32_t>(value);
    } else if (name == "--capacity") {
      fits = Number(text, 0, uint64_t{1} << 31, &value);
      settings.replay.cache.capacity = value;
    } else if (name == "--warm") {
      fits = Number(text, 0, uint64_t{1} << 40, &value);
      settings.warm_samples = value;
    } else if (name == "--window") {
      fits = Number(text, 0, 4096, &value);
      settings.replay.window = value;
    } else if (name == "--policy") {
      const auto known = ParsePolicy(text);
      if (!known.ok()) return Fail(known.status().message());
      settings.replay.cache.policy = known.value();
    } else if (name == "--wire") {
      const auto known = ParseRowFormat(text);
      if (!known.ok()) return Fail(known.status().message());
      settings.replay.cache.wire = known.value();
    } else if (name == "--checks") {
      const auto known = ParseChecks(text);
      if (!known.ok()) return Fail(known.status().message());
      settings.replay.cache.checks = known.value();
    } else if (name == "--pull") {
      fits = Ticks(text, &ticks);
      settings.replay.cache.pull_bound = ticks;
    } else if (name == "--push") {
      fits = Ticks(text, &ticks);
      settings.replay.cache.push_bound = ticks;
    } else if (name == "--staleness") {
      fits = Ticks(text, &ticks);
      settings.replay.cache.staleness = ticks;
    } else if (name == "--sync") {
      fits = text == "always" || text == "on_demand";
      settings.replay.on_demand = text == "on_demand";
    } else if (name == "--optimizer") {
      settings.optimizer = text;
    } else if (name == "--rows") {
      settings.rows = text;
    } else {
      return Fail("there is no argument " + name + "; see the head of main.cc");
    }
    if (!fits) return Fail(name + " cannot be '" + text + "'");
  }
  if (path.empty()) return Fail("--stream is missing");
  auto stream = Stream::Open(path);
  if (!stream.ok()) return Fail(stream.status().message());
  auto outcome = Simulate(*stream.value(), settings);
  if (!outcome.ok()) return Fail(outcome.status().message());
  Outcome& o = outcome.value();
  if (o.all.class_bytes() != o.all.bytes_in + o.all.bytes_out || o.client_bytes != o.all.class_bytes()) {
    return Fail("bytes of the classes " + std::to_string(o.all.class_bytes()) + ", of frames " +
                std::to_string(o.all.bytes_in + o.all.bytes_out) + ", by the clients' own counters " +
                std::to_string(o.client_bytes));
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const nlohmann::json json = {{"steps", o.replay.steps},
                               {"reads", o.replay.counters.reads},
                               {"hits", o.replay.counters.hits},
                               {"counts", ToJson(o.counts)},
                               {"all", ToJson(o.all)},
                               {"client_rows", o.client_rows},
                               {"staleness", Staleness(o.staleness, o.uses)},
                               {"bounds", {{"pull", ToJson(o.pull)}, {"push", ToJson(o.push)}}},
                               {"reads_that_waited", o.replay.waiting_reads},
                               {"writes_that_waited", o.replay.waiting_writes},
                               {"cached_rows", o.replay.cached_rows},
                               {"unsent_rows", o.replay.unsent_rows},
                               {"unsent_rows_before", o.unsent_rows_before},
                               {"distinct", stream.value()->distinct()},
                               {"memory_mb", usage.ru_maxrss / 1024}};
  puts(json.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace het::traffic

int main(int argc, char** argv) { return het::traffic::Main(argc, argv); }
