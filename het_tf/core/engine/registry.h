// The process-wide registry of namespaces: an engine for each.
//
// GetEngine refuses a forked child whose parent has an engine (base/after_fork.h): every call from kernels or
// Python comes through it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/base/status.h"

namespace het {

class Engine;

// Makes the engine of a new name. It may fail or take long: other names stay usable meanwhile. By default
// tables are in this process.
using EngineFactory = std::function<Result<std::shared_ptr<Engine>>(const std::string& name, size_t threads)>;
// Null: the default. Drops engines without tables. FailedPrecondition, with nothing changed, if an engine has
// tables: they would stay where they are.
Status SetEngineFactory(EngineFactory factory);
// FailedPrecondition: this process was forked from one with engines.
Result<std::shared_ptr<Engine>> GetEngine(const std::string& name);
// Returns null if this process has no engine of that name yet.
std::shared_ptr<Engine> FindEngine(const std::string& name);
// The names of the engines of this process, in order.
std::vector<std::string> EngineNames();
// Drops a namespace and all its tables.
void ResetEngine(const std::string& name);
// Sets the threads of existing and future engines.
void SetEngineThreads(size_t threads);

}  // namespace het
