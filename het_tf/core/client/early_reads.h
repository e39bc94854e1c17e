// Lookups that began before their time: while one step computes, the rows of the next one are asked for.
//
//   Begin ─► the read is on its way ─► Take: its lookup has come, and waits for the answers that are missing
//                                  └─► Drop: nobody will take it, or its rows may not be trusted any more
//
// An early read is an ordinary training read (cache_reader.h): its rows are checked, fetched, counted and
// held like those of any lookup, and I2 counts from its beginning. Its step may then be one lookup staler
// than without (docs/protocol.md, I3).
//
// What changes rows behind the caches (a new incarnation, a load, an Assign) makes it worthless: its lookup
// then reads as if nothing had begun. So does trouble, which the lookup meets again and tells.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "het_tf/core/client/partition_read.h"

namespace het {

class EarlyReads {
 public:
  void Add(uint64_t step, std::unique_ptr<ReadOp> op) {
    op->early = true;
    op->read = nullptr;  // whose rows they are is known when its lookup comes
    reads_.push_back({step, std::move(op), false});
  }
  // Answers are on their way.
  bool busy() const {
    return std::any_of(reads_.begin(), reads_.end(), [](const Early& early) { return !early.op->done(); });
  }
  // The read of a step, for its lookup. Null: there is none, or its rows are not to be used.
  std::unique_ptr<ReadOp> Take(uint64_t step) {
    const auto found =
        std::find_if(reads_.begin(), reads_.end(), [step](const Early& early) { return early.step == step; });
    if (found == reads_.end()) return nullptr;
    Early early = std::move(*found);
    reads_.erase(found);
    if (early.disturbed || !early.op->error.ok()) return nullptr;
    early.op->early = false;
    return std::move(early.op);
  }
  void Drop(uint64_t step) { Take(step); }
  void DropAll() { reads_.clear(); }
  // Rows have changed: none is to be used. For the middle of an answer, which reads may still be part of.
  void Disturb() {
    for (Early& early : reads_) early.disturbed = true;
  }

 private:
  struct Early {
    uint64_t step;
    std::unique_ptr<ReadOp> op;
    bool disturbed;
  };
  std::vector<Early> reads_;  // of a few layers
};

}  // namespace het
