#include "het_tf/core/client/early_reads.h"

namespace het {

std::unique_ptr<ReadOp> EarlyReads::Take(uint64_t step) {
  const auto found =
      std::find_if(reads_.begin(), reads_.end(), [step](const Early& early) { return early.step == step; });
  if (found == reads_.end()) return nullptr;
  Early early = std::move(*found);
  reads_.erase(found);
  if (early.disturbed || !early.op->error.ok()) return nullptr;
  early.op->early = false;
  return std::move(early.op);
}

}  // namespace het
