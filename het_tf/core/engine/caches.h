// All caches of an engine: what they hold back, and how far they may lag behind the store.
//
//   tick ─► held back in a cache, up to the table's push bound ─► Flush ─► applied at the store
//
// Thread-safe. Calls wait for a remote store as long as the deadline allows, and their errors are the
// store's.
#pragma once

#include <cstdint>
#include <string>

#include "het_tf/core/engine/engine_parts.h"

namespace het {

class Caches {
 public:
  explicit Caches(EngineParts* parts) : parts_(parts) {}

  // Sends what caches hold back and waits until it is applied.
  Status Flush();
  // Flushes and empties caches, except rows that were trained meanwhile: reads give the store's rows. A
  // copy that its worker went on training differs from them in the last bit: it was rounded in another
  // order.
  Status Refresh();
  // A checkpoint has what was applied so far: no server needs to get it again after it has lost it.
  void MarkDurable();
  // The number of workers that train a table from the next call on. Where its bounds follow that number,
  // this flushes, so that no row holds back more than the new bound; an error leaves the bounds as they were.
  Status SetWorkers(const std::string& table, uint32_t workers);

 private:
  EngineParts* const parts_;
};

}  // namespace het
