#include "het_tf/core/row/optimizer.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "het_tf/core/row/optimizers/entry.h"
#include "het_tf/core/row/optimizers/loop.h"

namespace het {
namespace {

const std::vector<OptimizerEntry>& Entries() {
  static const auto* const entries =
      new std::vector<OptimizerEntry>{SgdEntry(),     MomentumEntry(),       RmspropEntry(), AdamEntry(),
                                      AdagradEntry(), RowWiseAdagradEntry(), FtrlEntry()};
  return *entries;
}

std::string Text(double x) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.9g", x);
  return buffer;
}

template <typename Named>
std::string ListNames(const std::vector<Named>& all) {
  std::string list;
  for (const Named& one : all) list += (list.empty() ? "" : ", ") + std::string(one.name);
  return list;
}

// Overrides the defaults by the spec's parameters.
Result<Params> Validate(const OptimizerEntry& entry, const std::map<std::string, double>& given) {
  const std::string subject = "optimizer '" + std::string(entry.name) + "'";
  Params params;
  for (const Param& param : entry.params) params[param.name] = param.standard;
  for (const auto& [name, value] : given) {
    const auto param = std::find_if(entry.params.begin(), entry.params.end(),
                                    [&name = name](const Param& p) { return name == p.name; });
    if (param == entry.params.end()) {
      return InvalidArgument(
          subject + " has no parameter '" + name + "' (given " + Text(value) + "); " +
          (entry.params.empty() ? "it takes none" : "it takes: " + ListNames(entry.params)));
    }
    const bool legal = param->flag ? value == 0 || value == 1 : value >= param->low && value <= param->high;
    if (!legal) {
      return InvalidArgument(
          subject + ": parameter '" + name + "' is " + Text(value) + "; give " +
          (param->flag ? "0 or 1" : "a value from " + Text(param->low) + " to " + Text(param->high)));
    }
    params[name] = value;
  }
  return params;
}

// By squaring, in double: p is usually small, and the result is within an ulp of std::pow in float32.
float Power(float beta, uint32_t p) {
  double result = 1.0;
  for (double square = beta; p != 0; p >>= 1, square *= square) {
    if (p & 1) result *= square;
  }
  return static_cast<float>(result);
}

void Add(const float* HET_RESTRICT a, size_t n, float* HET_RESTRICT s) {
  for (size_t i = 0; i < n; ++i) s[i] += a[i];
}

void DecayAndAdd(float decay, const float* HET_RESTRICT a, size_t n, float* HET_RESTRICT s) {
  for (size_t i = 0; i < n; ++i) s[i] = decay * s[i] + a[i];
}

void TakeIfAny(const float* HET_RESTRICT a, size_t n, float* HET_RESTRICT s) {
  for (size_t i = 0; i < n; ++i) s[i] = a[i] == 0.0f ? s[i] : a[i];
}

}  // namespace

Result<std::unique_ptr<Optimizer>> Optimizer::Create(const OptimizerSpec& spec, size_t dim) {
  if (dim == 0)
    return InvalidArgument("optimizer '" + spec.name + "': dim is 0; give the row's width, at least 1");
  for (const OptimizerEntry& entry : Entries()) {
    if (spec.name != entry.name) continue;
    HET_ASSIGN_OR_RETURN(auto params, Validate(entry, spec.params));
    return entry.make(params, dim);
  }
  return InvalidArgument("there is no optimizer '" + spec.name + "'; known are: " + ListNames(Entries()));
}

std::vector<std::string> Optimizer::Names() {
  std::vector<std::string> names;
  for (const OptimizerEntry& entry : Entries()) names.emplace_back(entry.name);
  return names;
}

std::map<std::string, double> Optimizer::AllParams(const OptimizerSpec& spec) {
  std::map<std::string, double> params = spec.params;
  for (const OptimizerEntry& entry : Entries()) {
    if (spec.name != entry.name) continue;
    for (const Param& param : entry.params) params.try_emplace(param.name, param.standard);
  }
  return params;
}

Optimizer::Optimizer(size_t dim, std::vector<SlotSpec> slots)
    : dim_(dim), slots_(std::move(slots)), row_floats_(dim) {
  for (size_t slot = 0; slot < slots_.size(); ++slot) row_floats_ += slot_floats(slot);
}

void Optimizer::InitSlots(float* row) const {
  float* s = row + dim_;
  for (size_t slot = 0; slot < slots_.size(); ++slot)
    s = std::fill_n(s, slot_floats(slot), slots_[slot].initial);
}

void Optimizer::MergeInto(const float* update, uint32_t ticks, float* row) const {
  MergeWire(update + wire_begin(), ticks, row);
}

void Optimizer::MergeWire(const float* wire, uint32_t ticks, float* row) const {
  const float* part = wire;
  float* into = row;
  if (!value_is_derived()) {
    Add(part, dim_, into);
    part += dim_;
  }
  into += dim_;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    const SlotSpec& spec = slots_[slot];
    const size_t n = slot_floats(slot);
    switch (spec.merge) {
      case Merge::kAdd:
        Add(part, n, into);
        break;
      case Merge::kEma:
        DecayAndAdd(Power(spec.beta, ticks), part, n, into);
        break;
      case Merge::kLast:
        TakeIfAny(part, n, into);
        break;
    }
    part += n;
    into += n;
  }
  if (value_is_derived()) DeriveValue(row);
}

void Optimizer::DeriveValue(float*) const {}

}  // namespace het
