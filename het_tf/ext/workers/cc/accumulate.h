// An update of a variable that all ranks make together (core/plan/gradient_sums.h).
#pragma once

#include <string>

#include "het_tf/core/base/span.h"
#include "het_tf/core/base/status.h"
#include "het_tf/core/engine/call_spec.h"
#include "het_tf/ext/workers/cc/mesh.h"

namespace het {

// Updates rows by the sums of all ranks' gradients, each row on one rank. All ranks must call it for the same
// variable, also with a gradient of zeros. An error of one is the error of all, and no row has changed.
// `tickets`, `rates`, `scale`: as in KeptCall.
Status Accumulate(Mesh* mesh, const std::string& label, CallSpec* spec, Span<const float> tickets,
                  Span<const float> rates, float scale);

}  // namespace het
