// What the module does for a replica, in process: hands on what Partition::Handle says a copy needs.
#ifndef HET_TF_TESTS_CPP_TESTING_COPIES_H_
#define HET_TF_TESTS_CPP_TESTING_COPIES_H_

#include <vector>

#include "het_tf/core/store/chunk.h"
#include "het_tf/core/store/partition.h"

namespace het::testing {

// `done` is what handling `frame` came to, with `push` and `removals`. False when the copy refuses any of it.
inline bool CopyHandles(Span<const uint8_t> frame, const Handled& done, const Bytes& push,
                        const std::vector<Bytes>& removals, Partition* copy) {
  bool taken = true;
  if (done.applied) {
    Handling how;
    Bytes reply;
    if (done.whole) how.applied_at = done.time;
    taken =
        copy->Handle(done.whole ? frame : Span<const uint8_t>(push.data(), push.size()), &reply, how).applied;
  }
  for (const Bytes& chunk : removals) taken = LoadChunk({chunk.data(), chunk.size()}, copy).ok() && taken;
  return taken;
}

}  // namespace het::testing

#endif  // HET_TF_TESTS_CPP_TESTING_COPIES_H_
