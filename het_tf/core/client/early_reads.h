// Early lookups: while one step computes, the rows of the next one are requested.
//
//   Begin ─► the read is in flight ─► Take: its lookup has come, and waits for the missing answers
//                                  └─► Drop: its lookup will not come, or its rows may be invalid
//
// An early read is an ordinary training read (cache_reader.h): its rows are checked, fetched, counted and
// held like those of any lookup, and I2 counts from its begin. Its step may be one lookup staler
// (docs/protocol.md, I3).
//
// Changes of rows by others (a new incarnation, a load, an Assign) invalidate it: its lookup then reads as if
// nothing had begun. So do errors, which the lookup meets again and reports.
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
    op->read = nullptr;  // set when its lookup comes
    reads_.push_back({step, std::move(op), false});
  }
  // Whether answers are in flight.
  bool busy() const {
    return std::any_of(reads_.begin(), reads_.end(), [](const Early& early) { return !early.op->done(); });
  }
  // Returns the read of a step, for its lookup. Null: there is none, or its rows are invalid.
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
  // Rows have changed: invalidates all reads. Callable within an answer, which reads may still be part of.
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
