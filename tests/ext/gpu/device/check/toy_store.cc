#include "tests/ext/gpu/device/check/toy_store.h"

#include <algorithm>

#include "het_tf/core/base/hash.h"

namespace het::device_check {

using het::testing::Random;

uint32_t RowFloats(const HetDevTableConfig& config) {
  const uint32_t dim = config.dim;
  switch (config.optimizer) {
    case HET_DEV_SGD:
      return dim;
    case HET_DEV_ROW_WISE_ADAGRAD:
      return dim + 1;
    case HET_DEV_ADAM:
      return (config.params[0] == 0 ? 2 : 3) * dim + 1;
    case HET_DEV_FTRL:
      return 3 * dim + 1;
    default:
      return 2 * dim;
  }
}

ToyStore::ToyStore(const HetDevTableConfig& config, uint64_t seed, bool whole)
    : config_(config), seed_(seed), whole_(whole) {}

float ToyStore::Draw(Random* random, int64_t most) const {
  return whole_ ? static_cast<float>(random->Between(-most, most)) : static_cast<float>(random->Unit() - 0.5);
}

// Slots are never negative.
void ToyStore::DrawSlots(int64_t key, Row* row) const {
  Random random(Mix64(static_cast<uint64_t>(key) + static_cast<uint64_t>(row->clock)) ^ seed_);
  for (uint32_t i = config_.dim; i < config_.row_floats; ++i) {
    row->floats[i] = row->clock == 0 && random.Chance(0.5) ? 0.0f : static_cast<float>(random.Unit());
  }
  if (config_.optimizer != HET_DEV_ADAM) return;
  // Steps: powers of beta are tabulated up to 65535. Covers young rows, the table's end, and far beyond.
  const int64_t begin[] = {0, 0, 65530, 1802000};
  row->floats.back() = static_cast<float>(begin[seed_ % 4] + row->clock % 1000);
}

ToyStore::Row ToyStore::Initial(int64_t key) const {
  Row row;
  row.floats.resize(config_.row_floats);
  Random random(Mix64(static_cast<uint64_t>(key)) ^ seed_);
  for (uint32_t i = 0; i < config_.dim; ++i) row.floats[i] = Draw(&random, 8);
  DrawSlots(key, &row);
  return row;
}

ToyStore::Row& ToyStore::Find(int64_t key) {
  const auto found = rows_.find(key);
  return found != rows_.end() ? found->second : rows_.emplace(key, Initial(key)).first->second;
}

void ToyStore::Push(int64_t key, const float* update, uint32_t ticks) {
  const auto entry = subscribed_.find(key);
  if (entry != subscribed_.end()) entry->second += ticks;  // the worker's base has them
  Merge(key, update, ticks);
}

void ToyStore::Merge(int64_t key, const float* update, uint32_t ticks) {
  Row& row = Find(key);
  for (uint32_t i = 0; i < config_.dim; ++i) row.floats[i] += update[i];
  row.clock += ticks;
  DrawSlots(key, &row);
}

void ToyStore::MergeOther(int64_t key, Random* random, std::vector<float>* change) {
  change->resize(config_.dim);
  for (float& x : *change) x = Draw(random, 3);
  Merge(key, change->data(), static_cast<uint32_t>(1 + random->Below(3)));
}

void ToyStore::Remove(int64_t key) {
  Row& row = Find(key);
  const int64_t clock = row.clock + (int64_t{1} << 20);
  row = Initial(key);
  row.clock = clock;
}

void ToyStore::Subscribe(int64_t key, int64_t base) {
  const auto [entry, made] = subscribed_.emplace(key, base);
  if (!made) entry->second = std::min(entry->second, base);
}

std::vector<int64_t> ToyStore::Name(int64_t bound, const std::function<bool(int64_t key)>& in) {
  std::vector<int64_t> named;
  for (const auto& [key, base] : subscribed_) {
    if (in(key) && Find(key).clock - base > bound) named.push_back(key);
  }
  for (const int64_t key : named) subscribed_.erase(key);
  return named;
}

void ToyStore::Reset(const std::function<bool(int64_t key)>& in) {
  for (auto entry = subscribed_.begin(); entry != subscribed_.end();) {
    entry = in(entry->first) ? subscribed_.erase(entry) : std::next(entry);
  }
}

}  // namespace het::device_check
