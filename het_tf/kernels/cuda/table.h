// Host side: the state on the device that survives a step: tables, and rows of calls.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "het_tf/kernels/cuda/context.h"
#include "het_tf/kernels/cuda/layout.h"
#include "het_tf/kernels/cuda/sum_view.h"

struct HetDevTable {
  std::string name;
  uint64_t number = 0;    // in its context
  uint64_t capacity = 0;  // rounded up
  het::dev::TableView view;
  het::dev::Block memory;
  uint64_t first_uses = 0;  // since frequencies were last halved
  uint64_t inserts = 0;
  uint64_t evictions = 0;
  uint32_t round = 0;  // HetDevContext::Round of the visits in slots
  // What has moved rows: the highest pinned_from of a HetDevInstall, below which it could evict; and the
  // number of calls of HetDevForget and HetDevForgetKeys.
  uint64_t evicted_below = 0;
  uint64_t forgets = 0;
};

namespace het::dev {

// Whether the rows of a training lookup are still where it found them, so that its HetDevSum need not look
// again: it has stamped them, and no install could evict rows with that stamp, nor was any row forgotten.
// Host rules, no comparison of keys.
class KeptRows {
 public:
  // Call when the lookup has run. `all_found`: no row was absent or invalid.
  void Keep(const HetDevBatch& batch, bool all_found);
  // HetDevGather has found the others. `all_pinned`: they are valid and have this lookup's stamp.
  void Gathered(bool all_pinned) {
    whole_ = all_pinned;
    if (!all_pinned) Drop();
  }
  void Drop() { *this = KeptRows(); }
  // Whether the rows that were found are still there, for a batch of the same shape.
  bool Holds(const HetDevBatch& batch) const;
  // Whether that is so of all rows of the batch.
  bool HoldsAll(const HetDevBatch& batch) const { return whole_ && Holds(batch); }

 private:
  struct OfUse {
    uint64_t table;
    uint64_t stamp;
    uint64_t forgets;
  };
  std::vector<OfUse> uses_;
  std::vector<std::pair<uint32_t, uint64_t>> features_;  // use, number of ids
  bool kept_ = false;
  bool whole_ = false;
};

}  // namespace het::dev

struct HetDevCall {
  het::dev::CallRows rows;  // in the blocks
  het::dev::Block memory;   // index, slots, uses and begins
  het::dev::Block floats;
  uint64_t capacity = 0;  // rows for which `memory` has room
  uint64_t floats_used = 0;
  // For the last HetDevLookup: the row of each position as Find returns it, perhaps with kLeftOut; kNowhere:
  // it was absent or invalid; kPadding.
  het::dev::Block found;
  het::dev::KeptRows kept;
  het::dev::Event read;  // behind what copies the rows that the lookup has found
  bool looked_up = false;
  // The ids of all positions, since the last HetDevLookup, or since a HetDevSum without one.
  het::dev::Block ids;
  uint64_t positions = 0;
  bool has_ids = false;
  uint32_t round = 0;  // of Slot::visit
  // The result of HetDevSum, and the number of that call in the context; 0: none.
  het::dev::SumView summed;
  uint64_t summed_at = 0;

  // Makes room for `found` and `ids` of n positions.
  void Reserve(HetDevContext& context, uint64_t n);
};

namespace het::dev {

// Call before a lookup with a new number, which no old Slot::visit may equal by chance.
void ClearOldVisits(Context& context, HetDevTable* table);
void ClearOldVisits(Context& context, HetDevCall* call);

// Counts first uses of a table's rows, and halves its frequencies when due. Returns whether it has put work
// on the stream.
bool CountFirstUses(Context& context, HetDevTable* table, uint64_t n);

}  // namespace het::dev
