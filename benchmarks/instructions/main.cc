// Question: how many instructions does a cached row cost, on each of the three ways that it takes?
//
//   hit   lookup and gradient of cached rows, through the engine, before an embedded store
//   miss  lookup of absent rows into a full cache: classify, ask, take in, evict
//   push  gradient of cached rows and their push: every second step sends its rows, and a flush the rest
//
// run.py runs this program under callgrind, which counts what runs inside of Measured; in the last
// two, except the store's own work. Seeds, ids and numbers of steps are fixed. One thread.
//
//   instructions hit|miss|push    prints the compiler and the rows that were measured
#include <valgrind/callgrind.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "het_tf/core/client/client.h"
#include "het_tf/core/engine/engine.h"
#include "het_tf/core/store/local_transport.h"
#include "tests/testing/keep_and_apply.h"

namespace het {
namespace {

constexpr size_t kRows = 2048;  // of a step
constexpr size_t kSteps = 16;
constexpr size_t kDim = 16;
constexpr uint32_t kPartitions = 4;

uint32_t NoTime() { return 1; }

void Check(const Status& status) {
  if (status.ok()) return;
  fprintf(stderr, "%s\n", status.message().c_str());
  exit(1);
}

bool measuring = false;

template <typename Fn>
void Measured(Fn run) {
  measuring = true;
  CALLGRIND_TOGGLE_COLLECT;
  run();
  CALLGRIND_TOGGLE_COLLECT;
  measuring = false;
}

class UncountedStore : public LocalTransport {
 public:
  using LocalTransport::LocalTransport;
  void Send(OutFrame frame) override {
    if (measuring) CALLGRIND_TOGGLE_COLLECT;
    LocalTransport::Send(std::move(frame));
    if (measuring) CALLGRIND_TOGGLE_COLLECT;
  }
};

TableSpec Spec() {
  TableSpec spec;
  spec.name = "rows";
  spec.dim = kDim;
  spec.optimizer.name = "row_wise_adagrad";
  spec.initializer = {"zeros", 0, 0};
  return spec;
}

// One client, and rows of numbers that every step moves on by.
class Worker {
 public:
  explicit Worker(const CacheConfig& config)
      : schema_(TableSchema::Create(Spec()).value()), service_(kPartitions, 0, NoTime), store_(&service_) {
    Check(service_.CreateTable(schema_));
    client_ = std::make_unique<Client>(&store_, ClientConfig());
    Check(client_->AddTable(schema_, config));
  }

  // The rows of a step are [first, first + kRows).
  void Begin(uint64_t first) {
    const TableLayout layout = Layout(service_.id(0)).OfTable(schema_->id());
    groups_.assign(kPartitions, Group());
    for (uint64_t key = first; key < first + kRows; ++key) {
      const uint64_t hash = layout.Hash(static_cast<Key>(key));
      Group& group = groups_[layout.Of(hash)];
      group.keys.push_back(static_cast<Key>(key));
      group.hashes.push_back(hash);
    }
    for (Group& group : groups_) {
      group.rows.resize(group.keys.size());
      group.values.resize(group.keys.size());
      group.sums.assign(group.keys.size() * kDim, 0.01f);
      group.touched.assign(group.keys.size(), 1);
    }
  }
  void Read() {
    CachedRead read;
    for (uint32_t p = 0; p < kPartitions; ++p) {
      Group& g = groups_[p];
      read.parts.push_back(
          {schema_->id(), p, g.keys.size(), g.keys.data(), g.hashes.data(), g.rows.data(), g.values.data()});
    }
    Check(client_->Read(&read, ++step_));
  }
  void End() { client_->EndLookup(step_); }
  void Write() {
    CachedWrite write;
    for (uint32_t p = 0; p < kPartitions; ++p) {
      Group& g = groups_[p];
      write.parts.push_back({schema_->id(), p, g.keys.size(), g.keys.data(), g.hashes.data(), g.rows.data(),
                             g.sums.data(), g.touched.data(), 0.01f});
    }
    Check(client_->Write(&write, step_, &pool_));
  }
  void Flush() { Check(client_->Flush()); }
  // Makes rows [0, end) at the store, and leaves the cache without them.
  void MakeRows(uint64_t end) {
    for (uint64_t first = 0; first < end; first += kRows) {
      Begin(first);
      Read();
      Write();
    }
    Flush();
    client_->ForgetClean();
  }

 private:
  struct Group {
    Vector<Key> keys;
    Vector<uint64_t> hashes;
    Vector<uint32_t> rows;
    Vector<const float*> values;
    Vector<float> sums;
    Vector<uint8_t> touched;
  };
  const Schema schema_;
  LocalService service_;
  UncountedStore store_;
  std::unique_ptr<Client> client_;
  ThreadPool pool_{1};
  Vector<Group> groups_;
  uint64_t step_ = 0;
};

size_t Hit() {
  constexpr size_t kCached = 8 * kRows;
  Engine engine("instructions", 1, NoTime);
  TableOptions options;
  options.cache = CacheConfig();
  options.cache->push_bound = kUnbounded;
  Check(engine.tables().Create(Spec(), options));
  const TablePtr table = engine.tables().Find("rows").value();
  Vector<int64_t> ids(kRows);
  Vector<float> out(kRows * kDim);
  const Vector<float> gradient(kRows * kDim, 0.01f);
  const auto step = [&](size_t i) {
    for (size_t r = 0; r < kRows; ++r) ids[r] = static_cast<int64_t>((i * kRows + r) * 7919 % kCached);
    const FeatureIds feature{0, Span<const int64_t>(ids.data(), kRows), std::nullopt};
    const BatchCall call{Span<const TablePtr>(&table, 1), Span<const FeatureIds>(&feature, 1)};
    float* const outs[] = {out.data()};
    const float* const gradients[] = {gradient.data()};
    const float rate = 0.01f;
    ApplyArgs args;
    Check(engine.steps().Lookup(call, Span<float* const>(outs, 1), &args.token));
    args.gradients = Span<const float* const>(gradients, 1);
    args.learning_rates = Span<const float>(&rate, 1);
    Check(testing::KeepAndApply(&engine.steps(), call, args));
  };
  for (size_t i = 0; i < 2 * kSteps; ++i) step(i);
  Measured([&] {
    for (size_t i = 0; i < kSteps; ++i) step(i);
  });
  return kSteps * kRows;
}

size_t Miss() {
  CacheConfig config;
  config.capacity = 4 * kRows;
  Worker worker(config);
  worker.MakeRows(2 * kSteps * kRows);
  for (size_t i = 0; i < 2 * kSteps; ++i) {
    worker.Begin(i * kRows);
    const auto step = [&] {
      worker.Read();
      worker.End();
    };
    if (i < kSteps) {
      step();
    } else {
      Measured(step);
    }
  }
  return kSteps * kRows;
}

size_t Push() {
  CacheConfig config;
  config.push_bound = 1;
  Worker worker(config);
  worker.Begin(0);
  for (size_t i = 0; i < kSteps + 3; ++i) {
    worker.Read();
    if (i < 4) {
      worker.Write();
    } else {
      Measured([&] { worker.Write(); });
    }
  }
  Measured([&] { worker.Flush(); });
  return (kSteps - 1) * kRows;
}

}  // namespace
}  // namespace het

int main(int argc, char** argv) {
  const std::string path = argc == 2 ? argv[1] : "";
  het::FixRandomIds(1);
  size_t rows = 0;
  if (path == "hit") rows = het::Hit();
  if (path == "miss") rows = het::Miss();
  if (path == "push") rows = het::Push();
  if (rows == 0) {
    fprintf(stderr, "error: give hit, miss or push\n");
    return 2;
  }
  printf("%s\n%zu\n", __VERSION__, rows);
  return 0;
}
