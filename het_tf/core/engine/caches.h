// All caches of an engine: their unsent updates, and their bounds on staleness.
//
//   tick ─► unsent in a cache, up to the table's push bound ─► Flush ─► applied at the store
//
// Thread-safe. Calls wait for a remote store within the deadline, and return the store's errors.
#pragma once

#include <cstdint>
#include <string>

#include "het_tf/core/engine/engine_parts.h"

namespace het {

class Caches {
 public:
  explicit Caches(EngineParts* parts) : parts_(parts) {}

  // Sends unsent updates and waits until they are applied.
  Status Flush();
  // Call when all workers have flushed, and none goes on before all have: rows that travelled on demand may
  // be read by anyone (window.h).
  void Settle();
  // Flushes, then drops all clean cached rows: reads then give the store's rows. Rows that are trained
  // meanwhile stay; they differ from the store's in the last bit, since they were rounded in another order.
  Status Refresh();
  // A checkpoint has all applied updates: they need not be kept for servers that lose them.
  void MarkDurable();

 private:
  EngineParts* const parts_;
};

}  // namespace het
