// What a child of fork may do with het_tf: nothing, where its parent has used it. The child has the
// parent's memory, and neither its threads nor the right to its connections and to its GPU. One
// that never calls het_tf (a worker that loads data) goes on as it likes, and so does one whose
// parent has not used het_tf.
#pragma once

#include "het_tf/core/base/status.h"

namespace het {

// From now on children of this process are refused: it has something that they must not use.
void RefuseInChildren();
// Whether this process is such a child.
bool InRefusedChild();
// FailedPrecondition names the remedy, in such a child. To be asked before any lock is taken: its
// holder may be a thread that the child does not have.
Status CheckNotInChild();

}  // namespace het
