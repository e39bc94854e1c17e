// What a client tells caches in the memory of a device: an extension keeps them, and reads and pushes for
// them (Client::parts).
#pragma once

#include <cstdint>

#include "het_tf/core/base/span.h"
#include "het_tf/core/wire/reply.h"

namespace het {

class Session;

// A cache on a device, as the client sees it. The client calls it within any call, under the
// engine's lock; it must not call the client. Its work may wait until that call has returned, but
// must precede the installation of the call's rows.
//
// Ticks that go with rows are the cache's to count, in Counters::discarded_ticks; where it can,
// before Drop returns: Client::Reload tells people how many there were.
class DeviceLines {
 public:
  virtual ~DeviceLines() = default;
  // Bases of rows of this partition are not to be trusted any more; unsent updates stay.
  virtual void Invalidate(uint32_t partition) = 0;
  // Rows of this partition go, with their unsent updates.
  virtual void Drop(uint32_t partition) = 0;
  virtual void DropKeys(Span<const Key> keys) = 0;
  // Rows without unsent updates go.
  virtual void DropClean() = 0;
  // The store has named these rows: those that are subscribed have moved (cache/line_marks.h).
  virtual void Moved(Span<const Key> keys) = 0;
  // No row of this partition is subscribed any more. Returns whether some may have been.
  virtual bool Unsubscribe(uint32_t partition) = 0;
};

// The reads under way for such caches. No line remembers what has happened to their rows.
class DeviceReads {
 public:
  virtual ~DeviceReads() = default;
  // Bases or rows that reads have of the partition have become invalid: all that they want is fetched,
  // whatever was answered already.
  virtual void AskAnew(Session* session) = 0;
  // An answer of the partition has named rows, or ended all subscriptions: reads that wait for further
  // answers are not subscribed to these rows. Called before the answer's own rows are taken.
  virtual void Notified(uint32_t partition, const Reply& reply) = 0;
};

}  // namespace het
