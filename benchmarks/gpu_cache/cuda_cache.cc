// Question: how close do the calls of the cache on a device come to the goals, and to what the device's
// memory could do? Everything goes through the C ABI (ext/gpu/cc/abi.h), so what is measured is
// what the engine gets, waits for the host included.
//
//   cuda_cache LIBRARY [--only PART] [--rows N] [--batch N] [--repeats N] [--json FILE]
//
//   lookup         all of `batch` different keys are there: probe and gather
//   gather         HetDevGather of as many rows, which a lookup has left out: the ceiling of a lookup
//   install+evict  `batch` new rows enter full buckets, and as many dirty ones leave
//   apply          RowWiseAdagrad: sums and ticks of `batch` different keys
//   step           26 features of 4096 ids (Zipf, exponent 1.05), dim 16, all hits: lookup, then apply
//   default        the same step at the default bounds of two workers: rows are subscribed, the store has
//   named
//                  the 1,000 hottest, which are fetched, and updates are due by the age of their rows
//   asked          the same step with checks="asked": the store checks every row and renews none
//   misses         the same step with 5 % new ids, whose rows enter
//   t10            10 tables of 2^20 rows (fewer where memory is short), dim 128, SGD, 1,048,570 ids (Zipf,
//   exponent
//                  1.05) in one call: the stream of NVIDIA's recsys-examples, whose sizes of tables differ
//
// Shares are of the bandwidth of a copy within the device, measured first in the same run. Bytes of a row are
// counted as what has to move at the least; they stand in the table. tools/gpu_check.sh builds and runs this;
// on the host library it runs small, and its figures mean nothing.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/gpu_cache/cuda_library.h"
#include "benchmarks/gpu_cache/cuda_measurements.h"
#include "benchmarks/gpu_cache/cuda_steps.h"
#include "benchmarks/gpu_cache/cuda_table.h"

namespace het::bench {
namespace {

HetDevFeature Feature(uint64_t n, const int64_t* ids, float* rows, const float* gradients) {
  HetDevFeature feature = {};
  feature.n = n;
  feature.ids = ids;
  feature.rows = rows;
  feature.gradients = gradients;
  return feature;
}

class Bench : public Measurements {
 public:
  using Measurements::Measurements;

  void Run() {
    Begin();
    const std::pair<uint32_t, double> goals[] = {{16, 6.0}, {32, 5.5}, {64, 4.5}, {128, 2.8}};
    for (const auto& [dim, goal] : goals) {
      if (Measured("lookup")) Lookups(dim, goal);
    }
    for (const auto& [dim, goal] : goals) {
      if (Measured("gather")) Gathers(dim);
    }
    if (Measured("install")) InstallAndEvict(32);
    for (const auto& [dim, goal] : goals) {
      if (Measured("apply")) Apply(dim);
    }
    if (Measured("step")) Steps();
    if (Measured("default")) RealSteps("default step", kNotified, 0);
    if (Measured("asked")) RealSteps("asked step", kAsked, 0);
    if (Measured("misses")) RealSteps("5 % new ids", kUnbounded, 0.05);
    if (Measured("t10")) StepsOfTenTables();
  }

 private:
  // Ids of some batches of different keys that are there.
  std::vector<std::vector<int64_t>> Batches(const std::vector<int64_t>& resident, uint64_t batch) const {
    std::vector<std::vector<int64_t>> batches;
    for (size_t begin = 0; begin + batch <= resident.size() && batches.size() < 8; begin += batch) {
      batches.emplace_back(resident.begin() + static_cast<std::ptrdiff_t>(begin),
                           resident.begin() + static_cast<std::ptrdiff_t>(begin + batch));
    }
    if (batches.empty()) {
      std::fprintf(stderr, "cuda_cache: %zu rows are there, fewer than --batch %llu; give more --rows\n",
                   resident.size(), static_cast<unsigned long long>(batch));
      std::exit(2);
    }
    return batches;
  }

  void Lookups(uint32_t dim, double goal) {
    const uint64_t n = sizes_.batch;
    Table table(library_, context_, dim, Rows(dim, false), n, false);
    std::vector<int64_t> ids(n);
    Buffer rows(library_, context_, n * dim * sizeof(float));
    for (const double load : {0.5, 0.75, 1.0}) {
      table.Fill(load);
      const auto batches = Batches(table.resident(), n);
      const HetDevFeature feature = Feature(n, ids.data(), rows.as<float>(), nullptr);
      const Time time = Repeat(
          [&](int turn) {
            table.Reset();
            ids = batches[static_cast<size_t>(turn) % batches.size()];
          },
          [&](int) { Expect(table.Lookup({feature}, true).n == 0); });
      // Id, tag, digests of the bucket, slot read and written, row read and written: ANCHORS of the design.
      AddRate("lookup, all hits", dim, load, n, time, goal, 113 + 8.0 * dim);
    }
  }

  void InstallAndEvict(uint32_t dim) {
    const uint64_t n = sizes_.batch;
    Table table(library_, context_, dim, Rows(dim, true), n, true);
    std::vector<int64_t> ids(n);
    Buffer gradients(library_, context_, n * dim * sizeof(float));
    gradients.Put(std::vector<float>(n * dim, 0.01f));
    table.Fill(1.0);
    const std::vector<int64_t> resident = table.resident();
    for (size_t begin = 0; begin + n <= resident.size(); begin += n) {  // all of them get an update
      std::copy_n(resident.begin() + static_cast<std::ptrdiff_t>(begin), n, ids.begin());
      const HetDevFeature feature = Feature(n, ids.data(), nullptr, gradients.as<float>());
      table.Lookup({feature}, true);
      table.Apply({feature});
      table.Reset();
    }
    std::vector<int64_t> keys;
    uint64_t victims = 0, turns = 0;
    const int repeats = sizes_.repeats;  // as many as there are dirty rows for
    sizes_.repeats =
        static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(repeats), resident.size() / n / 2 + 1));
    const Time time = Repeat(
        [&](int) {
          table.Reset();
          keys = table.NewKeys(n);
          table.Look(keys);
        },
        [&](int) {
          victims += table.Enter(keys);
          ++turns;
        });
    sizes_.repeats = repeats;
    const double dirty = static_cast<double>(victims) / static_cast<double>(turns * n);
    char what[64];
    std::snprintf(what, sizeof what, "install+evict, %.0f %% dirty", 100 * dirty);
    // Rows in, and as much out, cross the link to the host: that is the limit, and the share is of it.
    const double bytes = 4.0 * (dim + 1) + 16;
    const double limit = 1 / (bytes / to_device_ + dirty * bytes / from_device_);
    const double rate = static_cast<double>(n) / time.device;
    Add({what, dim, 1.0, rate * 1e-9, "G rows/s", 1.2, 0, 0, time.wall * 1e6});
    Add({"  of the link's limit", dim, 1.0, limit * 1e-9, "G rows/s", 0, bytes, rate / limit, 0});
  }

  void Apply(uint32_t dim) {
    const uint64_t n = sizes_.batch;
    Table table(library_, context_, dim, Rows(dim, true), n, true);
    std::vector<int64_t> ids(n);
    Buffer gradients(library_, context_, n * dim * sizeof(float));
    std::vector<float> drawn(n * dim);
    std::mt19937 random(2);
    std::normal_distribution<float> normal(0, 0.01f);
    for (float& g : drawn) g = normal(random);
    gradients.Put(drawn);
    table.Fill(0.75);
    const auto batches = Batches(table.resident(), n);
    const HetDevFeature feature = Feature(n, ids.data(), nullptr, gradients.as<float>());
    const Time time = Repeat(
        [&](int turn) {
          table.Reset();
          ids = batches[static_cast<size_t>(turn) % batches.size()];
          table.Lookup({feature}, true);
        },
        [&](int) { table.Apply({feature}); });
    // Id and gradient read; slot, row and update read and written.
    const double bytes = 8 + 4.0 * dim + 2 * 32 + 2 * 4.0 * (dim + 1) + 2 * 4.0 * (dim + 1);
    AddRate("apply, row_wise_adagrad", dim, 0.75, n, time, 0.5 * bandwidth_ / bytes * 1e-9, bytes);
  }

  void Gathers(uint32_t dim) {
    const uint64_t n = sizes_.batch;
    Table table(library_, context_, dim, Rows(dim, false), n, false);
    std::vector<int64_t> ids(n);
    Buffer rows(library_, context_, n * dim * sizeof(float));
    table.Fill(0.75);
    table.SetCheck(true);
    const auto batches = Batches(table.resident(), n);
    const HetDevFeature feature = Feature(n, ids.data(), rows.as<float>(), nullptr);
    const Time time = Repeat(
        [&](int turn) {
          table.Reset();
          ids = batches[static_cast<size_t>(turn) % batches.size()];
          table.Lookup({feature}, true);
        },
        [&](int) { table.Gather(); });
    AddRate("gather alone", dim, 0.75, n, time, 0, 8.0 * dim);
  }

  // What a step of 26 features works on.
  struct StepTable {
    static constexpr uint32_t kDim = 16;
    StepTable(Bench* bench)
        : table(bench->library_, bench->context_, kDim, std::max<uint64_t>(bench->Rows(kDim, true), 1 << 14),
                bench->sizes_.batch, true),
          batch(bench->library_, bench->context_, kDim, 26, 4096) {}
    Table table;
    StepBatch batch;
  };

  void Steps() {
    StepTable of(this);
    of.table.Fill(0.75);
    of.batch.Draw({&of.table.resident()}, 0, nullptr);
    std::vector<HetDevFeature> all;
    const auto prepare = [&](int turn) {
      of.table.Reset();
      all = of.batch.Features(turn);
    };
    const auto lookup = [&](int) { Expect(of.table.Lookup(all, true).n == 0); };
    const Time looked = Repeat(prepare, lookup);
    const Time whole = Repeat(prepare, [&](int turn) {
      lookup(turn);
      of.table.Apply(all);
    });
    AddStep("step of 26 x 4096: lookup", of.kDim, looked, 25);
    AddStep("step of 26 x 4096: all of it", of.kDim, whole, 60);
  }

  // `new_ids`: their share. With it each turn has ids of its own, which are then there.
  enum Reads { kUnbounded, kAsked, kNotified };
  void RealSteps(const char* name, Reads reads, double new_ids) {
    StepTable of(this);
    if (reads != kUnbounded) of.table.SetBounds(38, 8);
    if (reads == kNotified) of.table.SetSubscribes();
    of.table.Fill(0.75);
    if (reads == kAsked) of.table.SetCheck(true);
    const std::vector<int64_t>& hottest = of.table.resident();
    const size_t n_moved = std::min<size_t>(1000, hottest.size());
    const std::vector<int64_t> moved(hottest.begin(), hottest.begin() + static_cast<std::ptrdiff_t>(n_moved));
    std::vector<HetDevFeature> all;
    std::vector<int64_t> missing;
    uint64_t wanted_rows = 0, due = 0, turns = 0;
    const Time time = Repeat(
        [&](int turn) {
          of.table.Reset();
          if (turn % StepBatch::kTurns == 0) of.batch.Draw({&of.table.resident()}, new_ids, &of.table);
          all = of.batch.Features(turn);
        },
        [&](int) {
          if (reads == kNotified) of.table.Moved(moved);
          const HetDevWanted wanted = of.table.Lookup(all, true);
          wanted_rows += wanted.n;
          missing.clear();
          for (uint64_t i = 0; i < wanted.n; ++i) {
            if (wanted.bases[i] < 0) missing.push_back(wanted.keys[i]);
          }
          const bool gather = wanted.n > 0;
          if (!missing.empty()) of.table.Enter(missing);
          if (gather) of.table.Gather();
          due += of.table.Apply(all, false);
          ++turns;
        });
    char what[64];
    std::snprintf(what, sizeof what, "%s: %.0f wanted, %.0f due", name,
                  static_cast<double>(wanted_rows) / static_cast<double>(turns),
                  static_cast<double>(due) / static_cast<double>(turns));
    AddStep(what, of.kDim, time, 0);
  }

  void StepsOfTenTables() {
    constexpr uint32_t kDim = 128, kTables = 10;
    const uint64_t rows = cuda_ ? std::min<uint64_t>(Rows(kDim, true) / 16, 1 << 20) : Rows(kDim, true);
    std::vector<std::unique_ptr<Table>> tables;
    std::vector<const std::vector<int64_t>*> resident;
    std::vector<HetDevUse> uses;
    for (uint32_t t = 0; t < kTables; ++t) {
      tables.push_back(
          std::make_unique<Table>(library_, context_, kDim, rows, sizes_.batch, true, HET_DEV_SGD));
      tables.back()->Fill(0.75);
      resident.push_back(&tables.back()->resident());
      uses.push_back(tables.back()->use());
    }
    StepBatch batch(library_, context_, kDim, kTables, cuda_ ? 104857 : 1 << 10);
    batch.Draw(resident, 0, nullptr);
    SeveralTables step(library_, context_, uses);
    std::vector<HetDevFeature> all;
    const auto prepare = [&](int turn) {
      step.Reset();
      all = batch.Features(turn);
      for (uint32_t t = 0; t < kTables; ++t) all[t].use = t;
    };
    const Time looked = Repeat(prepare, [&](int) { Expect(step.Lookup(all).n == 0); });
    const Time whole = Repeat(prepare, [&](int) {
      Expect(step.Lookup(all).n == 0);
      step.Apply(all);
    });
    AddStep("10 tables, 1,048,570 ids: lookup", kDim, looked, 0);
    AddStep("10 tables, 1,048,570 ids: all", kDim, whole, 0);
  }

  static void Expect(bool all_hits) {
    if (all_hits) return;
    std::fprintf(stderr, "cuda_cache: a lookup that should be all hits is not\n");
    std::exit(1);
  }
};

}  // namespace
}  // namespace het::bench

int main(int argc, char** argv) {
  const char* usage =
      "usage: cuda_cache LIBRARY [--only PART] [--rows N] [--batch N] [--repeats N] [--json FILE]\n";
  if (argc < 2 || argc % 2 != 0) {
    std::fprintf(stderr, "%s", usage);
    return 2;
  }
  het::bench::Sizes sizes;
  std::string json;
  for (int i = 2; i < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--json") {
      json = argv[i + 1];
      continue;
    }
    if (name == "--only") {
      sizes.only = argv[i + 1];
      const std::set<std::string> parts = {"lookup",  "gather", "install", "apply", "step",
                                           "default", "asked",  "misses",  "t10"};
      if (parts.count(sizes.only) == 1) continue;
      std::fprintf(
          stderr,
          "--only %s: there are lookup, gather, install, apply, step, default, asked, misses and t10\n%s",
          argv[i + 1], usage);
      return 2;
    }
    const uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (value == 0 || (name != "--rows" && name != "--batch" && name != "--repeats")) {
      std::fprintf(stderr, "%s %s\n%s", argv[i], argv[i + 1], usage);
      return 2;
    }
    if (name == "--rows") sizes.rows = value;
    if (name == "--batch") sizes.batch = value;
    if (name == "--repeats") sizes.repeats = static_cast<int>(std::min<uint64_t>(value, 100000));
  }
  std::string error;
  const auto library = het::bench::Library::Open(argv[1], &error);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 2;
  }
  het::bench::Bench bench(*library, sizes);
  bench.Run();
  if (!json.empty()) bench.WriteJson(json);
  return 0;
}
