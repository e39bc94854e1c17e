// The counters of `INFO het` since the server started, including commands replayed from a primary or a log.
//
// Commands run only on the server's main thread, so plain integers suffice.
#pragma once

#include <array>
#include <cstdint>

#include "het_tf/core/store/shard.h"
#include "het_tf/core/wire/reply.h"

namespace het::module {

struct Stats {
  uint64_t frames = 0;            // in HET.STEP and HET.READ
  uint64_t pushes_applied = 0;    // frames whose push part was applied
  uint64_t pulls = 0;             // answered frames that asked for rows
  uint64_t rows_pulled = 0;       // rows in replies
  uint64_t bytes_in = 0;          // of request frames
  uint64_t bytes_out = 0;         // of reply frames
  double busy_seconds = 0;        // the main thread's own time in HET.STEP and HET.READ
  uint64_t refused_loading = 0;   // frames that came during a load
  Swept swept;                    // by this server's sweeps, not by its primary's
  uint64_t rows_removed = 0;      // by HET.LOAD, from a user or from the primary
  uint64_t changes_pages = 0;     // answers of HET.CHANGES
  uint64_t changes_bytes = 0;     // of their chunks
  uint64_t sweeps = 0;            // steps of the timer that looked at rows
  uint64_t sweep_longest_us = 0;  // the main thread's own time in the longest sweep
  // Parts of frames by their answer.
  std::array<uint64_t, kFrameStatuses> by_status{};
};

extern Stats stats;

}  // namespace het::module
