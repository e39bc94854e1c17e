// Tables for tests.
#pragma once

#include <optional>
#include <string>

#include "het_tf/core/row/schema.h"

namespace het::testing {

inline TableSpec NewSpec(const std::string& name, uint32_t dim, const OptimizerSpec& optimizer,
                         const InitializerSpec& initializer = {}) {
  TableSpec spec;
  spec.name = name;
  spec.dim = dim;
  spec.optimizer = optimizer;
  spec.initializer = initializer;
  return spec;
}

inline TableSpec NewSpec(const std::string& name, uint32_t dim, const std::string& optimizer = "sgd",
                         const InitializerSpec& initializer = {}) {
  return NewSpec(name, dim, OptimizerSpec{optimizer, {}}, initializer);
}

inline Schema NewSchema(const std::string& name, uint32_t dim, const std::string& optimizer = "sgd",
                        const InitializerSpec& initializer = {},
                        const std::optional<TableLimits>& limits = {}) {
  TableSpec spec = NewSpec(name, dim, optimizer, initializer);
  spec.limits = limits;
  return TableSchema::Create(spec).value();
}

}  // namespace het::testing
