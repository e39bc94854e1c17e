// Models that follow training, for Python (ext/serving/cc/follow): a C ABI like that of management.h, with
// the same answers.
#pragma once

#include "het_tf/capi/management.h"

extern "C" {

// Text: a list of the followed models that this process has open (FollowedModel::Stats).
HET_EXPORT int HetFollowStats();

}  // extern "C"
