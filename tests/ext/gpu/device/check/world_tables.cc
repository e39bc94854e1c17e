// A world's tables, and its random inputs.
#include <algorithm>
#include <cmath>
#include <limits>

#include "het_tf/core/base/hash.h"
#include "tests/ext/gpu/device/check/world.h"

namespace het::device_check {
namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
constexpr size_t kCalls = 10;
enum Gradients { kUsual, kTiny, kHuge };  // kTiny: below the normal numbers

const char* const kPolicies[] = {"lru", "lfu"};
const char* const kOptimizers[] = {"sgd",     "momentum",         "rmsprop", "adam",
                                   "adagrad", "row_wise_adagrad", "ftrl"};

void DrawParams(het::testing::Random* random, HetDevTableConfig* config) {
  const auto between = [&](double low, double high) { return low + (high - low) * random->Unit(); };
  double* p = config->params;
  switch (config->optimizer) {
    case HET_DEV_MOMENTUM:
      p[0] = between(0, 1);
      p[1] = random->Chance(0.5);
      break;
    case HET_DEV_RMSPROP:
      p[0] = between(0, 0.999);
      p[1] = random->Chance(0.5) ? 1e-7 : 1e-3;
      break;
    case HET_DEV_ADAM:
      p[0] = random->Chance(0.3) ? 0 : between(0.01, 0.99);
      p[1] = between(0.5, 0.9999);
      p[2] = 1e-7;
      break;
    case HET_DEV_ADAGRAD:
    case HET_DEV_ROW_WISE_ADAGRAD:
      p[0] = random->Chance(0.3) ? 0 : 0.1;
      p[1] = 1e-7;
      p[2] = random->Chance(0.3) ? 1 : between(1, 100);
      break;
    case HET_DEV_FTRL:
      p[0] = random->Chance(0.5) ? 0 : between(0, 0.2);
      p[1] = random->Chance(0.5) ? 0 : between(0, 0.2);
      p[2] = random->Chance(0.5) ? 0 : between(0, 1);
      p[3] = random->Chance(0.5) ? 0 : between(0, 0.1);
      p[4] = random->Chance(0.3) ? 0 : 0.1;
      break;
  }
}

}  // namespace

World::World(const Library& tested, const Library& reference, const WorldOptions& options, Tally* tally)
    : options_(options),
      tally_(tally),
      random_(Mix64(options.seed) + options.round),
      tested_(tested, kCalls, options.seed + options.round),
      reference_(reference, kCalls, options.seed + options.round),
      slots_(kCalls) {
  // Stamps must stay below 2^32.
  stamp_ = random_.Chance(0.1) ? (uint64_t{1} << 32) - 100000 : 1 + random_.Below(100);
  most_outstanding_ = random_.Pick(std::vector<size_t>{1, 1, 2, 3, 8, kCalls});
  fail_allocations_ = random_.Chance(0.3) ? 0.4 : 0;
  wild_ = random_.Chance(0.1);
  MakeTables();
}

void World::MakeTables() {
  if (random_.Chance(0.1)) RefuseBadTables();
  tables_.resize(1 + random_.Below(4));
  const bool same_ids = random_.Chance(0.3);  // the same keys in all tables
  for (size_t t = 0; t < tables_.size(); ++t) {
    Table& table = tables_[t];
    HetDevTableConfig& config = table.config;
    const std::vector<uint32_t> dims = {1, 2, 3, 4, 7, 8, 16, 17, 31, 32, 33, 48, 64, 65, 128, 200};
    table.exact = random_.Chance(0.35);
    config.optimizer = table.exact ? HET_DEV_SGD : static_cast<int>(random_.Below(7));
    config.dim = random_.Pick(dims);
    config.policy = static_cast<int>(random_.Below(3));
    config.capacity = random_.Chance(0.3) ? 1 + random_.Below(32)
                                          : 1 + random_.Below(1 + static_cast<uint64_t>(800 * options_.size));
    DrawParams(&random_, &config);
    config.row_floats = RowFloats(config);
    if (!table.exact && random_.Chance(0.25)) config.l2 = random_.Unit() * 0.1;
    if (!table.exact && config.optimizer != HET_DEV_FTRL && random_.Chance(0.25)) {
      config.max_norm = 0.5 + random_.Unit();
    }
    config.keep_updates = random_.Chance(0.75);
    config.table = random_.Next();
    config.hash_seed = random_.Chance(0.3) ? 0 : random_.Next();
    config.partitions = random_.Pick(std::vector<uint32_t>{1, 3, 64, 65536});
    const std::vector<int64_t> bounds = {0, 1, 3, 10, kHighest, kHighest};
    table.pull_bound = random_.Pick(bounds);
    table.push_bound = config.keep_updates ? random_.Pick(bounds) : 0;
    table.push_every = random_.Pick(kPushEvery);
    table.shared = random_.Chance(0.6);
    table.subscribes = table.pull_bound > 0 && table.pull_bound != kHighest && random_.Chance(0.7);
    table.answered.assign(config.partitions, 0);
    table.learning_rate = table.exact            ? 1.0f
                          : random_.Chance(0.05) ? 0.0f
                                                 : static_cast<float>(random_.Unit());
    table.pool = same_ids && t > 0 ? tables_[0].pool : DrawPool();
    const double exponent = random_.Chance(0.4) ? 0 : 0.5 + random_.Unit();
    double sum = 0;
    for (size_t i = 0; i < table.pool.size(); ++i) {
      table.popularity.push_back(sum += std::pow(static_cast<double>(i + 1), -exponent));
    }
    table.store = std::make_unique<ToyStore>(config, random_.Next(), table.exact);
    table.ledger = std::make_unique<Ledger>(config.dim);
    table.name = "table " + std::to_string(t);
    config.name = table.name.c_str();
    Reply tested, reference;
    Both(
        "CreateTable", [&](Side* side) { return side->CreateTable(config); }, &tested, &reference);
    Expect(tested.code == HET_DEV_OK,
           "CreateTable answers " + std::to_string(tested.code) + ": " + tested.error);
    Note(table.name + ": " + kOptimizers[config.optimizer] + " dim " + std::to_string(config.dim) +
         " capacity " + std::to_string(config.capacity) + " " + kPolicies[config.policy] + " pull " +
         std::to_string(table.pull_bound) + " push " + std::to_string(table.push_bound) + " every " +
         std::to_string(table.push_every) + " keep_updates" + std::to_string(config.keep_updates) + " l2 " +
         std::to_string(config.l2) + " max_norm " + std::to_string(config.max_norm) + " ids " +
         std::to_string(table.pool.size()) + (table.exact ? " whole numbers" : "") +
         (table.shared ? " shared" : "") + (table.subscribes ? " subscribes" : ""));
  }
}

void World::RefuseBadTables() {
  HetDevTableConfig good = {};
  good.name = "bad";
  good.capacity = 100;
  good.dim = good.row_floats = 4;
  good.partitions = 64;
  const std::vector<void (*)(HetDevTableConfig*)> faults = {
      [](HetDevTableConfig* c) { c->capacity = 0; },      [](HetDevTableConfig* c) { c->dim = 0; },
      [](HetDevTableConfig* c) { c->row_floats = 5; },    [](HetDevTableConfig* c) { c->policy = 3; },
      [](HetDevTableConfig* c) { c->policy = -1; },       [](HetDevTableConfig* c) { c->optimizer = 7; },
      [](HetDevTableConfig* c) { c->partitions = 0; },    [](HetDevTableConfig* c) { c->partitions = 65537; },
      [](HetDevTableConfig* c) { c->l2 = -1; },           [](HetDevTableConfig* c) { c->max_norm = -1; },
      [](HetDevTableConfig* c) { c->l2 = std::nan(""); },
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    HetDevTableConfig bad = good;
    faults[i](&bad);
    Reply tested, reference;
    const std::string what = "CreateTable with fault " + std::to_string(i);
    Both(
        what, [&](Side* side) { return side->CreateTable(bad); }, &tested, &reference);
    Expect(tested.code == HET_DEV_INVALID, what + " answers " + std::to_string(tested.code));
    ++tally_->refused;
  }
}

std::vector<int64_t> World::DrawPool() {
  const size_t n = 1 + random_.Below(1 + static_cast<uint64_t>(800 * options_.size));
  std::vector<int64_t> pool = {0, -1, 1, kLowest, kHighest, kLowest + 1, kHighest - 1, int64_t{1} << 32};
  const bool dense = random_.Chance(0.5);
  const int64_t first = random_.Between(-100, 100);
  while (pool.size() < n) {
    pool.push_back(dense ? first + static_cast<int64_t>(pool.size()) : static_cast<int64_t>(random_.Next()));
  }
  std::sort(pool.begin(), pool.end());
  pool.erase(std::unique(pool.begin(), pool.end()), pool.end());
  for (size_t i = pool.size(); i > 1; --i) std::swap(pool[i - 1], pool[random_.Below(i)]);
  if (pool.size() > n) pool.resize(n);
  return pool;
}

int64_t World::DrawKey(const Table& table) {
  const double x = random_.Unit() * table.popularity.back();
  const auto at = std::upper_bound(table.popularity.begin(), table.popularity.end(), x);
  return table
      .pool[std::min<size_t>(static_cast<size_t>(at - table.popularity.begin()), table.pool.size() - 1)];
}

Step World::DrawStep() {
  Step step;
  step.unaligned = random_.Chance(0.1);
  std::vector<uint32_t> numbers(tables_.size());
  for (uint32_t t = 0; t < numbers.size(); ++t) numbers[t] = t;
  for (size_t i = numbers.size(); i > 1; --i) std::swap(numbers[i - 1], numbers[random_.Below(i)]);
  numbers.resize(1 + random_.Below(numbers.size()));
  for (const uint32_t t : numbers) {
    const Table& table = tables_[t];
    const bool check = table.pull_bound != kHighest && random_.Chance(0.8);
    step.uses.push_back({t, check, 0, 0, table.push_bound, table.push_every, table.learning_rate});
  }
  // More than a kernel's parameters hold, at times.
  const bool many = random_.Chance(0.03);
  const size_t features = random_.Chance(0.02) ? 0 : many ? 60 + random_.Below(10) : 1 + random_.Below(6);
  for (size_t f = 0; f < features; ++f) {
    Feature feature = {};
    feature.use = static_cast<uint32_t>(random_.Below(step.uses.size()));
    const Table& table = tables_[step.uses[feature.use].table];
    feature.wants_rows = random_.Chance(0.95);
    feature.has_padding = random_.Chance(0.3);
    feature.padding_id = random_.Chance(0.7) ? random_.Pick(table.pool) : random_.Between(-2, 2);
    size_t n = random_.Chance(0.1) ? 0 : 1 + random_.Below(1 + static_cast<uint64_t>(60 * options_.size));
    if (many) n = std::min<size_t>(n, 20);
    if (!many && random_.Chance(0.05)) n *= 20;
    const bool one = random_.Chance(0.03);  // the same id everywhere
    const int64_t same = DrawKey(table);
    for (size_t i = 0; i < n; ++i) feature.ids.push_back(one ? same : DrawKey(table));
    step.features.push_back(std::move(feature));
  }
  return step;
}

float World::DrawGradient(const Table& table, int kind) {
  if (table.exact) return static_cast<float>(random_.Between(-2, 2));
  const double x = random_.Unit() - 0.5;
  if (kind == kTiny) return static_cast<float>(x * 1e-40);
  if (kind == kHuge) return static_cast<float>(x * 1e30);
  return static_cast<float>(x);
}

void World::DrawGradients(Step* step, bool* broken) {
  *broken = false;
  for (Feature& feature : step->features) {
    const Table& table = tables_[step->uses[feature.use].table];
    const size_t n = feature.ids.size() * table.config.dim;
    feature.gradients.resize(n);
    int kind = kUsual;
    if (wild_) kind = static_cast<int>(random_.Below(3));
    const bool zero = random_.Chance(0.1);
    const bool of_padding = zero && feature.has_padding && random_.Chance(0.3);
    const bool signs = !table.exact && random_.Chance(0.5);  // -0 is a zero too
    for (float& g : feature.gradients) {
      g = !zero ? DrawGradient(table, kind) : signs && random_.Chance(0.5) ? -0.0f : 0.0f;
    }
    for (size_t i = 0; of_padding && i < feature.ids.size(); ++i) {
      if (feature.ids[i] == feature.padding_id) feature.gradients[i * table.config.dim] = 1;
    }
    if (n > 0 && random_.Chance(0.01)) {
      const size_t at = random_.Below(n);
      feature.gradients[at] = random_.Chance(0.5) ? std::nanf("") : INFINITY;
      // The gradient of padding is ignored.
      *broken |= !feature.has_padding || feature.ids[at / table.config.dim] != feature.padding_id;
    }
  }
}

}  // namespace het::device_check
