#include "het_tf/core/cache/cache_policy.h"

namespace het {

CachePolicy::CachePolicy(Schema schema, const CacheConfig& config)
    : schema_(std::move(schema)),
      config_(config),
      eviction_(EvictionPolicy::Create(config.policy, config.capacity)) {
  config_.Follow(schema_->optimizer());
}

RowFormat CachePolicy::row_format() const {
  if (schema_->dim() == 1) return RowFormat::kFloat32;
  return config_.wire == RowFormat::kInt4 ? RowFormat::kInt5 : config_.wire;
}

RowFormat CachePolicy::push_format() const {
  if (schema_->dim() == 1) return RowFormat::kFloat32;
  const bool integers = config_.wire == RowFormat::kInt8 || config_.wire == RowFormat::kInt4;
  return integers && schema_->optimizer().value_is_derived() ? RowFormat::kFloat16 : config_.wire;
}

void CachePolicy::SetNextUse(uint32_t line, uint32_t number) {
  if (number <= planned_) return;
  if (line >= next_use_.size()) next_use_.resize(line + line / 2 + 16);
  if (!planned(line) || number < next_use_[line]) next_use_[line] = number;
}

void CachePolicy::Victims(size_t count, const Lines& lines, const LineMarks& marks,
                          Vector<uint32_t>* victims) const {
  eviction_->Victims(
      count, [&](uint32_t line) { return !marks.held(line) && !planned(line); }, victims);
  if (victims->size() >= count || next_use_.empty()) return;
  Vector<uint32_t> later;
  lines.ForEach([&](uint32_t line) {
    if (planned(line) && !marks.transient(line) && !marks.held(line)) later.push_back(line);
  });
  const auto end = later.begin() + static_cast<ptrdiff_t>(std::min(count - victims->size(), later.size()));
  std::nth_element(later.begin(), end, later.end(),
                   [this](uint32_t a, uint32_t b) { return next_use_[a] > next_use_[b]; });
  victims->insert(victims->end(), later.begin(), end);
}

}  // namespace het
