// Question: what do lookups of a batch of keys cost in our index, beside boost::unordered_flat_map?
//
// Both map int64 keys to rows of 16 floats and copy the rows of 4,096 keys a batch, drawn evenly from the
// table. Ours prefetches buckets and rows ahead; boost's map does not offer the address of a bucket, so only
// the rows can be. `bytes_a_key` is what the index alone takes.
#include <benchmark/benchmark.h>

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstring>
#include <random>

#include "het_tf/core/cache/table_cache.h"
#include "het_tf/core/row/row_store.h"

namespace het {
namespace {

constexpr size_t kBatch = 4096;
constexpr size_t kFloats = 16;

std::vector<Key> Keys(size_t n) {
  std::vector<Key> keys(n);
  std::mt19937_64 random(7);
  for (Key& key : keys) key = static_cast<Key>(random());
  return keys;
}

template <typename Body>
void Run(benchmark::State& state, const std::vector<Key>& keys, Body body) {
  std::mt19937_64 random(8);
  std::vector<Key> batch(kBatch * 64);
  for (Key& key : batch) key = keys[random() % keys.size()];
  std::vector<float> out(kBatch * kFloats);
  size_t at = 0;
  for (auto _ : state) {
    body(&batch[at], out.data());
    benchmark::DoNotOptimize(out.data());
    at = (at + kBatch) % batch.size();
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * kBatch));
}

void Ours(benchmark::State& state) {
  const std::vector<Key> keys = Keys(static_cast<size_t>(state.range(0)));
  RowStore store(kFloats, 0);
  KeyIndex index;  // the same keys once more, for the size
  for (Key key : keys) {
    std::fill_n(store.data(store.Insert(key, store.Hash(key))), kFloats, 1.0f);
    index.Reserve([&](uint32_t row) { return store.Hash(keys[row]); });
    index.Insert(store.Hash(key), static_cast<uint32_t>(index.size()));
  }
  std::vector<uint64_t> hashes(kBatch);
  std::vector<uint32_t> rows(kBatch);
  Run(state, keys, [&](const Key* batch, float* out) {
    for (size_t i = 0; i < kBatch; ++i) hashes[i] = store.Hash(batch[i]);
    store.FindBatch(batch, hashes.data(), kBatch, rows.data());
    for (size_t i = 0; i < kBatch; ++i)
      std::memcpy(out + i * kFloats, store.data(rows[i]), kFloats * sizeof(float));
  });
  state.counters["bytes_a_key"] = static_cast<double>(index.bytes()) / static_cast<double>(keys.size());
}

void BoostFlatMap(benchmark::State& state) {
  const std::vector<Key> keys = Keys(static_cast<size_t>(state.range(0)));
  boost::unordered_flat_map<Key, uint32_t, KeyHash, std::equal_to<Key>,
                            Allocator<std::pair<const Key, uint32_t>>>
      map;
  const size_t before = AllocatedBytes();
  for (size_t i = 0; i < keys.size(); ++i) map[keys[i]] = static_cast<uint32_t>(i);
  const size_t bytes = AllocatedBytes() - before;
  std::vector<float> table(keys.size() * kFloats, 1.0f);
  std::vector<uint32_t> rows(kBatch);
  Run(state, keys, [&](const Key* batch, float* out) {
    for (size_t i = 0; i < kBatch; ++i) {
      rows[i] = map.find(batch[i])->second;
      __builtin_prefetch(&table[rows[i] * kFloats]);
    }
    for (size_t i = 0; i < kBatch; ++i)
      std::memcpy(out + i * kFloats, &table[rows[i] * kFloats], kFloats * sizeof(float));
  });
  state.counters["bytes_a_key"] = static_cast<double>(bytes) / static_cast<double>(keys.size());
}

BENCHMARK(Ours)->Arg(100000)->Arg(1000000)->Arg(10000000)->Unit(benchmark::kMicrosecond);
BENCHMARK(BoostFlatMap)->Arg(100000)->Arg(1000000)->Arg(10000000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace het

BENCHMARK_MAIN();
