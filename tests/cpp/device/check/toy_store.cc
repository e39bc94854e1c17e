#include "tests/cpp/device/check/toy_store.h"

#include <cmath>

namespace het::device_check {
namespace {

constexpr int64_t kClockFloor = int64_t{1} << 20;

}  // namespace

uint32_t RowFloats(int optimizer, uint32_t dim) {
  switch (optimizer) {
    case HET_DEV_SGD:
      return dim;
    case HET_DEV_ROW_WISE_ADAGRAD:
      return dim + 1;
    case HET_DEV_ADAM:
    case HET_DEV_FTRL:
      return 3 * dim + 1;
    default:
      return 2 * dim;
  }
}

ToyStore::ToyStore(const HetDevTableConfig& config, uint64_t seed, bool whole)
    : config_(config), seed_(seed), whole_(whole) {
  const uint32_t d = config.dim;
  const double* p = config.params;
  const auto f = [](double x) { return static_cast<float>(x); };
  switch (config.optimizer) {
    case HET_DEV_SGD:
      break;
    case HET_DEV_MOMENTUM:
    case HET_DEV_RMSPROP:
      slots_ = {{d, d, Rule::kEma, f(p[0]), 0}};
      break;
    case HET_DEV_ADAM: {
      // Powers of beta are in a table up to step 65535: rows that are young, near its end, and far beyond.
      const float steps[] = {0, 0, 65530, 1802000};
      slots_ = {{d, d, Rule::kEma, f(p[0]), 0},
                {2 * d, d, Rule::kEma, f(p[1]), 0},
                {3 * d, 1, Rule::kAdd, 0, steps[seed % 4]}};
      break;
    }
    case HET_DEV_ADAGRAD:
      slots_ = {{d, d, Rule::kAdd, 0, f(p[0])}};
      break;
    case HET_DEV_ROW_WISE_ADAGRAD:
      slots_ = {{d, 1, Rule::kAdd, 0, f(p[0])}};
      break;
    case HET_DEV_FTRL:
      slots_ = {{d, d, Rule::kAdd, 0, 0}, {2 * d, d, Rule::kAdd, 0, f(p[4])}, {3 * d, 1, Rule::kLast, 0, 0}};
      break;
  }
}

ToyStore::Row ToyStore::Initial(int64_t key) const {
  Row row;
  row.floats.resize(config_.row_floats);
  het::testing::Random random(Mix64(static_cast<uint64_t>(key)) ^ seed_);
  for (uint32_t i = 0; i < config_.dim; ++i) {
    row.floats[i] =
        whole_ ? static_cast<float>(random.Between(-8, 8)) : static_cast<float>(random.Unit() - 0.5);
  }
  for (const Part& slot : slots_) {
    for (uint32_t i = 0; i < slot.n; ++i) row.floats[slot.begin + i] = slot.initial;
  }
  return row;
}

ToyStore::Row& ToyStore::Find(int64_t key) {
  const auto found = rows_.find(key);
  if (found != rows_.end()) return found->second;
  return rows_.emplace(key, Initial(key)).first->second;
}

void ToyStore::DeriveValue(Row* row) const {
  if (config_.optimizer != HET_DEV_FTRL) return;
  const uint32_t d = config_.dim;
  const double lr = row->floats[3 * d];
  if (lr == 0) return;
  const double l1 = config_.params[0], l2 = config_.params[1], beta = config_.params[2];
  for (uint32_t i = 0; i < d; ++i) {
    const double z = row->floats[d + i], n = row->floats[2 * d + i];
    const double below = (beta + std::sqrt(n)) / lr + 2 * l2;
    const double clipped = z < -l1 ? -l1 : (z > l1 ? l1 : z);
    if (below != 0) row->floats[i] = static_cast<float>((clipped - z) / below);
  }
}

void ToyStore::Merge(int64_t key, const float* update, uint32_t ticks) {
  Row& row = Find(key);
  if (config_.optimizer != HET_DEV_FTRL) {
    for (uint32_t i = 0; i < config_.dim; ++i) row.floats[i] += update[i];
  }
  for (const Part& slot : slots_) {
    const auto decay = static_cast<float>(std::pow(static_cast<double>(slot.beta), ticks));
    for (uint32_t i = slot.begin; i < slot.begin + slot.n; ++i) {
      float& s = row.floats[i];
      if (slot.rule == Rule::kAdd) s += update[i];
      if (slot.rule == Rule::kEma) s = decay * s + update[i];
      if (slot.rule == Rule::kLast && update[i] != 0) s = update[i];
    }
  }
  DeriveValue(&row);
  row.clock += ticks;
}

void ToyStore::MergeOther(int64_t key, het::testing::Random* random, std::vector<float>* change) {
  std::vector<float> update(config_.row_floats, 0.0f);
  for (uint32_t i = 0; i < config_.dim; ++i) {
    update[i] =
        whole_ ? static_cast<float>(random->Between(-3, 3)) : static_cast<float>(random->Unit() - 0.5);
  }
  // What is accumulated grows; an average of squares is no less than 0.
  for (const Part& slot : slots_) {
    for (uint32_t i = slot.begin; i < slot.begin + slot.n; ++i)
      update[i] = static_cast<float>(random->Unit());
  }
  if (change != nullptr) change->assign(update.begin(), update.begin() + config_.dim);
  Merge(key, update.data(), static_cast<uint32_t>(1 + random->Below(3)));
}

void ToyStore::Remove(int64_t key) {
  Row& row = Find(key);
  const int64_t clock = row.clock + kClockFloor;
  row = Initial(key);
  row.clock = clock;
}

}  // namespace het::device_check
