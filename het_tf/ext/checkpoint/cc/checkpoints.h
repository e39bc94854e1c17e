// Saves an engine's tables to row files and loads them (checkpoint/).
//
// Saving does not block steps: it asks the store for some thousand rows at a time. Unsent updates of caches
// are not in the file: call Caches::Flush first. Rows are loaded between Loads::Begin and Commit.
//
// Thread-safe; several calls may run at once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "het_tf/core/engine/engine.h"
#include "het_tf/ext/checkpoint/cc/requests.h"

namespace het {

Result<StoreInfo> StoreInfoOf(Engine* engine);
// For each table: what scans of the changes since these positions would be.
Result<std::map<std::string, ChangesCount>> CountChanges(
    Engine* engine, const std::map<std::string, std::vector<Position>>& since);
// Writes one row file.
Result<RowFileSummary> SaveRows(Engine* engine, const std::string& path, const SaveRequest& request);
Result<std::map<std::string, LoadedRows>> LoadRows(Engine* engine, const std::string& path,
                                                   const LoadRequest& request);

}  // namespace het
