// Host side: the state on the device that survives a step: tables, and rows of calls.
#pragma once

#include <memory>
#include <string>

#include "het_tf/kernels/cuda/context.h"
#include "het_tf/kernels/cuda/layout.h"
#include "het_tf/kernels/cuda/sum_view.h"

struct HetDevTable {
  std::string name;
  uint64_t capacity = 0;  // rounded up
  het::dev::TableView view;
  het::dev::Block memory;
  uint64_t first_uses = 0;  // since frequencies were last halved
  uint64_t inserts = 0;
  uint64_t evictions = 0;
  uint32_t round = 0;  // HetDevContext::Round of the visits in slots
};

struct HetDevCall {
  het::dev::CallRows rows;  // in the blocks
  het::dev::Block memory;   // index, slots, uses and begins
  het::dev::Block floats;
  uint64_t capacity = 0;  // rows for which `memory` has room
  uint64_t floats_used = 0;
  // For the last HetDevLookup: 1 for each position whose row was left out.
  het::dev::Block left_out;
  uint64_t positions = 0;
  bool looked_up = false;
  uint32_t round = 0;  // of Slot::visit
  // The result of HetDevSum, and the number of that call in the context; 0: none.
  het::dev::SumView summed;
  uint64_t summed_at = 0;
};

namespace het::dev {

// Call before a lookup with a new number, which no old Slot::visit may equal by chance.
void ClearOldVisits(Context& context, HetDevTable* table);
void ClearOldVisits(Context& context, HetDevCall* call);

// Counts first uses of a table's rows, and halves its frequencies when due. Returns whether it has put work
// on the stream.
bool CountFirstUses(Context& context, HetDevTable* table, uint64_t n);

}  // namespace het::dev
