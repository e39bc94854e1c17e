// A table's spec as a part of larger JSON. Separate from schema.h, so that code that only runs optimizers
// needs no JSON library (tools/gpu_check.sh builds that with just a compiler).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "het_tf/core/row/schema.h"

namespace het {

nlohmann::json SpecAsJson(const TableSpec& spec);
nlohmann::json LimitsAsJson(const TableLimits& limits);
// A missing field gets its default; an unknown one is InvalidArgument. Throws nlohmann's exception for a
// field of another type.
Result<TableSpec> SpecOfJson(const nlohmann::json& json);

}  // namespace het
