// The process-wide registry of namespaces: an engine for each.
//
// A child of fork whose parent has an engine is refused here (base/after_fork.h): every call of a
// kernel or of Python comes through GetEngine.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "het_tf/core/base/status.h"

namespace het {

class Engine;

// The engine of a new name is made by the factory, which may fail, and may take long: other names
// stay usable meanwhile. By default tables live in this process.
using EngineFactory = std::function<Result<std::shared_ptr<Engine>>(const std::string& name, size_t threads)>;
// Null: the default. Engines without tables are forgotten; FailedPrecondition, and nothing changes,
// when one has some: they would stay where they are.
Status SetEngineFactory(EngineFactory factory);
// FailedPrecondition: this process was forked from one that has engines.
Result<std::shared_ptr<Engine>> GetEngine(const std::string& name);
// Null: there is none of that name in this process yet.
std::shared_ptr<Engine> FindEngine(const std::string& name);
// Forgets a namespace and all its tables.
void ResetEngine(const std::string& name);
// Threads of engines, those that exist and those to come.
void SetEngineThreads(size_t threads);

}  // namespace het
