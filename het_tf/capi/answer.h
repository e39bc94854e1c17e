// Connects the management functions to the engine of a namespace.
#pragma once

#include "het_tf/core/base/answer.h"
#include "het_tf/core/base/interrupt.h"
#include "het_tf/core/engine/engine.h"

namespace het {

// Runs body(engine) -> Status for the namespace's engine.
template <typename Body>
int WithEngine(const char* name_space, const Body& body) {
  const Interrupts interrupts(Interrupts::By::kFunction);
  return Answer([&]() -> Status {
    HET_ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine, GetEngine(name_space));
    return body(*engine);
  });
}

}  // namespace het
