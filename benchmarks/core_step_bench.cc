// Question: what does one step of the engine cost for each looked-up row, without TensorFlow around it?
//
// The workload of local_step.py: 26 x 4096 ids a step from a Zipf distribution of exponent 1.05, on one table
// whose rows all exist. `ns_row` is CPU time of all threads for one looked-up row; Google Benchmark's own
// "Time" is a step's wall time. The gradient given to Apply is a fixed buffer, so what is measured is the
// engine and nothing else.
//
//   core_step_bench --benchmark_filter=small       # 1e6 rows of 16 floats
//   core_step_bench --benchmark_filter=tiny        # the same, 3,328 ids a step
//   core_step_bench --benchmark_filter=large       # 1e7 rows of 64 floats: up to 6 GB
#include <benchmark/benchmark.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "het_tf/core/engine/engine.h"

namespace het {
namespace {

constexpr size_t kAllIds = 26 * 4096 * 32;

// Zipf numbers in [0, rows), scattered over the ids by a bijection: neighbours in popularity are no
// neighbours in memory.
std::vector<int64_t> ZipfIds(size_t n, size_t rows, double exponent) {
  // Inversion of the continuous distribution with the same exponent (as benchmarks/workload.py does).
  const double top = std::pow(static_cast<double>(rows) + 1, 1 - exponent) - 1;
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<int64_t> ids(n);
  for (int64_t& id : ids) {
    const double x = std::pow(1 + uniform(random) * top, 1 / (1 - exponent));
    const uint64_t rank = std::min<uint64_t>(rows - 1, static_cast<uint64_t>(x - 1));
    id = static_cast<int64_t>((rank * 7368787 + 12345) % rows);
  }
  return ids;
}

struct Table {
  Table(size_t ids_of_step, size_t rows, size_t dim, const std::string& optimizer, bool cached)
      : engine("bench", 1),
        step(ids_of_step),
        ids(ZipfIds(kAllIds, rows, 1.05)),
        out(step * dim),
        gradient(step * dim) {
    TableSpec spec;
    spec.name = "t";
    spec.dim = static_cast<uint32_t>(dim);
    spec.optimizer.name = optimizer;
    TableOptions options;
    if (cached) {
      options.cache = CacheConfig();
      options.cache->capacity = rows;
      options.cache->pull_bound = kUnbounded;
      options.cache->push_bound = kUnbounded;
    }
    Check(engine.tables().Create(spec, options));
    std::vector<int64_t> keys(std::min<size_t>(rows, 100000));
    std::vector<float> values(keys.size() * dim, 0.01f);
    for (size_t begin = 0; begin < rows; begin += keys.size()) {
      for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(begin + i);
      Check(engine.tables().Assign("t", Span<const Key>(keys.data(), keys.size()), values.data(), false));
    }
    table = engine.tables().Find("t").value();
    std::mt19937 random(2);
    std::normal_distribution<float> normal(0, 0.01f);
    for (float& g : gradient) g = normal(random);
    for (size_t i = 0; i < kAllIds / step; ++i) Step(true);  // warm, and with a cache: filled
  }

  static void Check(const Status& status) {
    if (status.ok()) return;
    fprintf(stderr, "%s\n", status.message().c_str());
    abort();
  }

  void Step(bool train) {
    const FeatureIds feature{0, Span<const int64_t>(&ids[at * step], step), std::nullopt};
    at = (at + 1) % (kAllIds / step);
    const BatchCall call{Span<const TablePtr>(&table, 1), Span<const FeatureIds>(&feature, 1)};
    float* const outs[] = {out.data()};
    uint64_t token = 0;
    Check(engine.steps().Lookup(call, Span<float* const>(outs, 1), train ? &token : nullptr));
    benchmark::DoNotOptimize(out.data());
    if (!train) return;
    const float* const gradients[] = {gradient.data()};
    const float rate = 0.01f;
    ApplyArgs args;
    args.token = token;
    args.gradients = Span<const float* const>(gradients, 1);
    args.learning_rates = Span<const float>(&rate, 1);
    bool skipped = false;
    Check(engine.steps().Apply(call, args, &skipped));
  }

  Engine engine;
  size_t step;
  std::vector<int64_t> ids;
  std::vector<float> out;
  std::vector<float> gradient;
  TablePtr table;
  size_t at = 0;
};

// A table is kept for all benchmarks that use it, and dropped when another one is asked for.
Table* Get(size_t ids, size_t rows, size_t dim, const std::string& optimizer, bool cached) {
  static std::string current;
  static std::unique_ptr<Table> table;
  const std::string wanted = std::to_string(ids) + " " + std::to_string(rows) + " " + std::to_string(dim) +
                             " " + optimizer + (cached ? " cached" : "");
  if (wanted != current) {
    table.reset();
    table = std::make_unique<Table>(ids, rows, dim, optimizer, cached);
    current = wanted;
  }
  return table.get();
}

void Step(benchmark::State& state, size_t ids, size_t rows, size_t dim, const std::string& optimizer,
          bool cached, bool train, size_t threads) {
  Table* table = Get(ids, rows, dim, optimizer, cached);
  table->engine.steps().SetThreads(threads);
  table->Step(train);
  for (auto _ : state) table->Step(train);
  state.counters["ns_row"] =
      benchmark::Counter(static_cast<double>(state.iterations() * ids) * 1e-9,  // of CPU time
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

int Register() {
  struct Size {
    const char* name;
    size_t ids;
    size_t rows;
    size_t dim;
  };
  for (const Size& size : {Size{"tiny", 3328, 1000000, 16}, Size{"small", 26 * 4096, 1000000, 16},
                           Size{"large", 26 * 4096, 10000000, 64}}) {
    for (const std::string optimizer : {"sgd", "adagrad", "row_wise_adagrad"}) {
      for (const bool cached : {false, true}) {
        for (const bool train : {false, true}) {
          for (const size_t threads : {1, 2}) {
            if (!train && optimizer != "sgd") continue;  // lookups read the same values
            const std::string name = std::string(size.name) + "/" + (cached ? "cached" : "direct") + "/" +
                                     (train ? optimizer : "lookup") + "/threads:" + std::to_string(threads);
            benchmark::RegisterBenchmark(name.c_str(),
                                         [=](benchmark::State& state) {
                                           Step(state, size.ids, size.rows, size.dim, optimizer, cached,
                                                train, threads);
                                         })
                ->MeasureProcessCPUTime()
                ->Unit(benchmark::kMicrosecond);
          }
        }
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace het

int main(int argc, char** argv) {
  het::Register();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
