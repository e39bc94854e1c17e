// Rejects uses of het_tf in a forked child whose parent has used it: the child has the parent's memory, but
// neither its threads nor a right to its connections and GPU. A child that never calls het_tf (a worker that
// loads data) is not affected, nor is one whose parent has not used het_tf.
#pragma once

#include "het_tf/core/base/status.h"

namespace het {

// From now on children of this process are refused: it holds resources that they must not use.
void RefuseInChildren();
// Whether this process is such a child.
bool InRefusedChild();
// FailedPrecondition, with the remedy, in such a child. Call it before taking any lock, whose holder may be a
// thread that the child does not have.
Status CheckNotInChild();

}  // namespace het
