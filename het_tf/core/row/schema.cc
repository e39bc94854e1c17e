#include "het_tf/core/row/schema.h"

#include <cmath>
#include <string>
#include <utility>

namespace het {
namespace {

Status CheckLimits(const TableLimits& limits) {
  if (limits.min_count_ttl == 0) return InvalidArgument("min_count_ttl is 0; it must be at least 1 second");
  if (limits.min_count > 0 && limits.ttl > 0 && limits.min_count_ttl >= limits.ttl) {
    return InvalidArgument("min_count_ttl is " + std::to_string(limits.min_count_ttl) + " and ttl " +
                           std::to_string(limits.ttl) +
                           ": every row would go by its ttl first; give min_count_ttl < ttl");
  }
  return Status();
}

}  // namespace

Result<Schema> TableSchema::Create(TableSpec spec) {
  auto bad = [&](const std::string& what) { return InvalidArgument("table '" + spec.name + "': " + what); };
  if (spec.name.empty()) return InvalidArgument("table name is empty; give every table a name");
  if (spec.dim == 0 || spec.dim > kMaxDim) {
    return bad("dim is " + std::to_string(spec.dim) + "; it must be from 1 to " + std::to_string(kMaxDim));
  }
  if (!(spec.l2 >= 0) || !std::isfinite(spec.l2)) {
    return bad("l2 is " + std::to_string(spec.l2) + "; it must be finite and >= 0");
  }
  if (!(spec.max_norm >= 0) || !std::isfinite(spec.max_norm)) {
    return bad("max_norm is " + std::to_string(spec.max_norm) + "; it must be finite and >= 0 (0: no limit)");
  }
  if (spec.limits) {
    const Status limits = CheckLimits(*spec.limits);
    if (!limits.ok()) return bad(limits.message());
  }
  auto optimizer = Optimizer::Create(spec.optimizer, spec.dim);
  if (!optimizer.ok()) return bad(optimizer.status().message());
  spec.optimizer.params = Optimizer::AllParams(spec.optimizer);
  static_assert(kMaxDim <= StoredFormat::kMostDim);
  const Status stored = StoredFormat::Check(spec.stored, *optimizer.value());
  if (!stored.ok()) return bad(stored.message());
  if (spec.max_norm > 0 && optimizer.value()->value_is_derived()) {
    return bad("max_norm does not go with optimizer '" + spec.optimizer.name +
               "', whose value is a function of its slots; use l2 instead");
  }
  const uint64_t drawn_as = HashName(spec.drawn_as.empty() ? spec.name : spec.drawn_as);
  auto initializer = Initializer::Create(spec.initializer, spec.seed, drawn_as, spec.dim);
  if (!initializer.ok()) return bad(initializer.status().message());
  return Schema(new TableSchema(std::move(spec), std::move(optimizer.value()), initializer.value()));
}

TableSchema::TableSchema(TableSpec spec, std::unique_ptr<Optimizer> optimizer, Initializer initializer)
    : spec_(std::move(spec)),
      id_(HashName(spec_.name)),
      plain_(spec_.l2 == 0 && spec_.max_norm == 0),
      optimizer_(std::move(optimizer)),
      stored_(spec_.stored, *optimizer_),
      initializer_(initializer) {}

void TableSchema::TickWithLimits(float learning_rate, const float* g, float scale, float* scratch,
                                 Clock clock, float* row, float* update) const {
  const size_t dim = spec_.dim;
  if (scale != 1 || spec_.l2 > 0) {
    const float slope = static_cast<float>(2 * spec_.l2);
    for (size_t i = 0; i < dim; ++i) scratch[i] = g[i] * scale + slope * row[i];
    g = scratch;
  }
  optimizer_->Apply(learning_rate, g, static_cast<float>(AgeOf(clock)), row, update);
  if (spec_.max_norm > 0) {
    double squares = 0;
    for (size_t i = 0; i < dim; ++i) squares += static_cast<double>(row[i]) * row[i];
    if (squares <= spec_.max_norm * spec_.max_norm) return;
    const float scale = static_cast<float>(spec_.max_norm / std::sqrt(squares));
    for (size_t i = 0; i < dim; ++i) {
      const float limited = row[i] * scale;
      if (update != nullptr) update[i] += limited - row[i];
      row[i] = limited;
    }
  }
}

bool SameValues(const TableSpec& a, const TableSpec& b) {
  const auto drawn_as = [](const TableSpec& spec) {
    return spec.drawn_as.empty() ? spec.name : spec.drawn_as;
  };
  return a.dim == b.dim && a.stored == b.stored && a.seed == b.seed && drawn_as(a) == drawn_as(b) &&
         a.initializer.name == b.initializer.name && a.initializer.a == b.initializer.a &&
         a.initializer.b == b.initializer.b;
}

}  // namespace het
