// How a process serves a table, as JSON: {"cache": null} or {"cache": {"capacity": ..., ...}}.
#pragma once

#include <string>

#include "het_tf/core/base/status.h"
#include "het_tf/core/plan/batch_call.h"

namespace het {

// One line, equal for equal options. What has its default is left out where most tables have it.
std::string ToJson(const TableOptions& options);
// InvalidArgument names the field, its value and what is legal. A missing field has its default.
Result<TableOptions> ParseTableOptions(const std::string& json);

}  // namespace het
