// A table's spec as a part of larger JSON. Apart from schema.h, so that what runs optimizers alone needs no
// JSON library (tools/gpu_check.sh builds that with a compiler and nothing else).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "het_tf/core/row/schema.h"

namespace het {

nlohmann::json SpecAsJson(const TableSpec& spec);
nlohmann::json LimitsAsJson(const TableLimits& limits);
// A missing field has its default, an unknown one is InvalidArgument.
Result<TableSpec> SpecOfJson(const nlohmann::json& json);

}  // namespace het
