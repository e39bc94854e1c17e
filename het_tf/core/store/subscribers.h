// A partition's soft record of its clients' subscriptions: a client subscribes to a row, and the partition
// notifies the client when the row has moved past its bound, so that the client need not check every row at
// every read (CacheConfig::checks).
//
// The record is never saved or replicated, and may be dropped at any moment. It serves one invariant:
//
//   For every row that a client counts as subscribed there is an entry whose base is at most the client's,
//   or the next answer to that client names the row, or that answer is a `reset`: no subscriptions.
//
// So errors to one side are harmless: a superfluous entry, or a base below the client's, costs a
// notification. On any inconsistency the partition drops all of the client's subscriptions; its next answer
// is a reset, and the client checks its rows one by one again.
//
//   entry    Subscribe has made it, or has renewed its base
//   moved    an entry whose row others have pushed past the bound: g - base > bound
//   named    a moved row that answer n names (Notify)
//
//   entry ─► moved    a push of another client
//   moved ─► named    Notify, in answer n
//   named ─► moved    the client acknowledges a number below n: the answer may be lost
//   named ─► gone     the client acknowledges n or a later answer
//   moved ─► entry    Subscribe brings the row again, in answer m, and the client acknowledges m; until
//                     then it stays moved
//
// A named row is no longer subscribed: it costs nothing until an answer brings it again.
//
// Answers carry numbers that rise within the partition and are never reused in its life. A request
// acknowledges the newest answer that its client has processed completely. Rows named after that are named
// again, so lost or unusable answers need no special care. Drop and Left keep an entry that an unacknowledged
// answer has made or confirmed: the client may be about to get it. A request whose number is not above the
// last one's is a duplicate, or a leftover of a reset connection: it changes nothing.
//
// Cost: some 30 bytes a subscription; a push looks up each key once for each client with subscriptions in the
// table. Not thread-safe; the partition's owner locks.
#pragma once

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <map>

#include "het_tf/core/base/bytes.h"
#include "het_tf/core/base/hash.h"
#include "het_tf/core/wire/bound.h"
#include "het_tf/core/wire/ids.h"

namespace het {

class Subscribers {
 public:
  // Limit on all clients' subscriptions together; beyond it the client that was silent for longest is
  // forgotten.
  static constexpr size_t kMostRows = size_t{1} << 20;
  // Forgets a client that was silent for this many seconds: it has probably left.
  static constexpr uint32_t kSilentSeconds = 600;

  explicit Subscribers(size_t limit = kMostRows) : limit_(limit) {}

  // A request's table.
  struct Use {
    uint64_t table;
    uint64_t epoch;
    Bound bound;
    size_t incoming;  // keys to subscribe to
  };

  class Turn;
  // Begins the answer to a request; `uses` has all its tables. Throws std::bad_alloc, with the invariant
  // intact, like every method that throws it.
  Turn Begin(ClientId client, uint32_t request, uint32_t acknowledged, const Vector<Use>& uses);

  // A push of `from` has brought keys[i], by ticks[i], to clock_of(i); 0: the row does not exist, and the
  // push has not made it. If there is no memory to note it, a client is forgotten.
  template <typename ClockOf>
  void Pushed(ClientId from, uint64_t table, const Vector<Key>& keys, const Vector<uint32_t>& ticks,
              ClockOf clock_of) noexcept {
    for (auto record = records_.begin(); record != records_.end();) {
      Table* held = record->second.Find(table);
      const bool own = record->first == from;
      bool noted = true;
      for (size_t i = 0; held != nullptr && noted && i < keys.size(); ++i) {
        if (ticks[i] == 0) continue;  // the clock stays; there may be no row
        const auto entry = held->rows.find(keys[i]);
        if (entry == held->rows.end()) continue;
        const Clock clock = clock_of(i);
        if (clock == 0) continue;
        noted = own ? held->Own(keys[i], &entry->second, ticks[i], clock)
                    : held->Other(keys[i], &entry->second, clock);
      }
      record = noted ? std::next(record) : Forget(record);
    }
  }
  // A push of `from`, made after all answers up to `acknowledged`, says that it has evicted these rows.
  void Left(ClientId from, uint32_t acknowledged, uint64_t table, Span<const Key> keys) noexcept;
  // `now`: seconds. Forgets clients without a request for kSilentSeconds, as far as its calls show.
  void ForgetSilent(uint32_t now);
  // The row was removed: notifies its subscribers.
  void Removed(uint64_t table, Key key) noexcept;
  // Rows of the table were changed in bulk: forgets all its subscribers.
  void Changed(uint64_t table) noexcept;
  void Clear() noexcept;

  size_t limit() const { return limit_; }
  void set_limit(size_t limit) { limit_ = limit; }
  // All clients' subscriptions, and the memory of the record.
  size_t held() const { return held_; }
  size_t clients() const { return records_.size(); }
  size_t bytes() const;
  // Counts since the partition started: notifications, including repeated ones, and resets.
  uint64_t notified() const { return notified_; }
  uint64_t resets() const { return resets_; }

 private:
  struct Entry {
    Clock base;       // at most the client's, except for unacknowledged answers
    uint32_t number;  // number of the newest answer that brought or confirmed the row
    uint32_t moved;   // 1 + its index in Table::moved; 0: within the bound
  };
  struct Moved {
    Key key;
    Clock clock;      // brought by answer `number`, or kNamed
    Clock latest;     // the server's
    uint32_t number;  // the answer that names or brings it; 0: none awaits acknowledgement
  };
  using Rows = boost::unordered_flat_map<Key, Entry, KeyHash, std::equal_to<Key>,
                                         Allocator<std::pair<const Key, Entry>>>;
  struct Table {
    uint64_t table;
    uint64_t epoch;
    Bound bound;
    Rows rows;
    Vector<Moved> moved;

    // Whether a copy with this base is past the bound of its row. The only place with this rule.
    bool Stale(Clock clock, Clock base) const;
    // Returns false if there is no memory.
    bool Own(Key key, Entry* entry, uint32_t ticks, Clock clock) noexcept;
    bool Other(Key key, Entry* entry, Clock clock) noexcept;
    // Returns how many subscriptions have ended.
    size_t Acknowledge(uint32_t number);
    void Unmove(size_t at);
    // The client has evicted these rows. Returns how many were subscribed.
    size_t Drop(Span<const Key> keys, uint32_t acknowledged) noexcept;
  };
  struct Record {
    uint32_t first = 0;    // first answer since the last reset
    uint32_t last = 0;     // last answer
    uint32_t request = 0;  // the newest request
    uint32_t heard = 0;    // time of the first ForgetSilent after it
    uint32_t seen = 0;     // `last` at that time
    Vector<Table> tables;

    Table* Find(uint64_t table);
    size_t held() const;
  };
  using Records = std::map<ClientId, Record>;

  Records::iterator Forget(Records::iterator record) noexcept;
  // Forgets the client that was silent for longest, except `keep`. Returns false if there is none.
  bool ForgetOldest(ClientId keep);

  size_t limit_;
  Records records_;
  size_t held_ = 0;
  uint32_t number_ = 0;  // number of the newest answer
  uint64_t notified_ = 0;
  uint64_t resets_ = 0;
};

// The content of one answer. Valid until the next call of another kind on the subscribers.
class Subscribers::Turn {
 public:
  // For the answer: 0 means no subscriptions.
  uint32_t number() const { return number_; }
  // Whether this answer ends all earlier subscriptions.
  bool reset() const { return reset_; }

  // For each table, in this order; with number 0 all do nothing.
  // The calls below are about this table, of which the client has evicted the rows `dropped`.
  void At(uint64_t table, const Vector<Key>& dropped);
  // The answer leaves the client with this row at `clock`: fetched, refreshed, or confirmed within its bound.
  void Subscribe(Key key, Clock clock);
  // Sets *keys, in order, to the rows that have moved and that the answer does not bring.
  void Notify(Vector<Key>* keys);

 private:
  friend class Subscribers;
  Subscribers* subscribers_ = nullptr;
  Record* record_ = nullptr;
  Table* table_ = nullptr;
  uint32_t number_ = 0;
  uint32_t acknowledged_ = 0;
  bool reset_ = true;
};

}  // namespace het
