// What a partition believes its clients hold, so that it can name to each of them those of its rows
// that have moved past its bound, instead of being asked about every row at every read
// (CacheConfig::checks).
//
// The belief is soft: never saved, never replicated, and it may be forgotten at any moment. What
// must hold is one sentence, and everything here serves it:
//
//   For every row that a client counts as held there is an entry whose base is no higher than the client's,
//   or the next answer to that client names the row, or it says that nothing is held (`reset`).
//
// So errors to one side are harmless: an entry for a row that the client does not hold, or a base
// below the client's, costs a name. Whoever is in doubt forgets the whole client; its next answer
// is a reset, and the client goes back to asking, row by row, as if there were no holdings.
//
//   Hold ─► entry ──push of another: g - base > bound──► moved ──Name──► named in answer n
//             ▲                                           ▲ ▲              │         │
//             │                                           │ └─ acknowledged < n      acknowledged >= n ─►
//             gone │                                           └───── acknowledged < m ──┐ └─ acknowledged >=
//             m: base = the clock ──── brought in answer m ◄─ Hold of a moved row
//
// A row that was named is no longer held: it costs nothing more until an answer brings it again.
//
// Answers carry numbers that rise within the partition and are never used twice in its life. A
// request acknowledges the newest answer that its client has taken in whole. What was named after
// that is named again, so an answer that is lost, or that the client could not use, needs no care.
// An entry that is made or confirmed by an answer which is not acknowledged yet is not removed by
// Drop or Left: the client may be about to get it. A request whose number is not above the last one's
// is a copy, or a leftover of a connection that was given up: it changes nothing.
//
// Cost: some 30 bytes a held row and client; a push looks each of its keys up once for each client
// that holds rows of the table. Not thread-safe; the partition's owner locks.
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

class Holdings {
 public:
  // Held rows of all clients together; beyond it the client that was silent for longest is
  // forgotten.
  static constexpr size_t kMostHeld = size_t{1} << 20;
  // A client to which so many answers of others went without one to itself is forgotten: it left,
  // most likely.
  static constexpr uint32_t kIdleAnswers = 1u << 16;
  // So is one that was silent for so many seconds, since others may be few.
  static constexpr uint32_t kSilentSeconds = 600;

  explicit Holdings(size_t limit = kMostHeld) : limit_(limit) {}

  // A table that a request names.
  struct Use {
    uint64_t table;
    uint64_t epoch;
    Bound bound;
    size_t incoming;  // keys that it asks to hold
  };

  class Turn;
  // The answer to a request begins. All tables of the request are in `uses`. Throws std::bad_alloc;
  // what is believed is then right all the same, as it is after any method that throws it.
  Turn Begin(ClientId client, uint32_t request, uint32_t acknowledged, const Vector<Use>& uses);

  // A push of `from` has brought keys[i], by ticks[i], to clock_of(i); 0: there is no such row, and
  // the push has not made it. Where there is no memory to note it, a client is forgotten.
  template <typename ClockOf>
  void Pushed(ClientId from, uint64_t table, const Vector<Key>& keys, const Vector<uint32_t>& ticks,
              ClockOf clock_of) noexcept {
    for (auto record = records_.begin(); record != records_.end();) {
      Table* held = record->second.Find(table);
      const bool own = record->first == from;
      bool noted = true;
      for (size_t i = 0; held != nullptr && noted && i < keys.size(); ++i) {
        if (ticks[i] == 0) continue;  // the clock stands; there may be no row
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
  // A push of `from`, which had all answers up to `acknowledged` when it was made, says that its client let
  // these rows go.
  void Left(ClientId from, uint32_t acknowledged, uint64_t table, Span<const Key> keys) noexcept;
  // `now`: seconds. Clients that have asked nothing for kSilentSeconds, as far as it was called, are
  // forgotten.
  void ForgetSilent(uint32_t now);
  // The row is gone: it is named to whoever holds it.
  void Removed(uint64_t table, Key key) noexcept;
  // Rows of the table were changed in a way that is not noted one by one: who holds any is
  // forgotten.
  void Changed(uint64_t table) noexcept;
  void Clear() noexcept;

  size_t limit() const { return limit_; }
  void set_limit(size_t limit) { limit_ = limit; }
  // Rows that clients hold, together; and what it all takes.
  size_t held() const { return held_; }
  size_t clients() const { return records_.size(); }
  size_t bytes() const;
  // Since the partition came to life: names in answers, repeated ones included, and answers that
  // said that nothing is held.
  uint64_t told() const { return told_; }
  uint64_t resets() const { return resets_; }

 private:
  struct Entry {
    Clock base;       // the client's is no lower, but for answers that it has not acknowledged
    uint32_t number;  // the newest answer that brought or confirmed the row
    uint32_t moved;   // 1 + its place in Table::moved; 0: within the bound
  };
  struct Moved {
    Key key;
    Clock clock;      // that answer `number` has brought, or kNamed
    Clock latest;     // the server's
    uint32_t number;  // the answer that names or brings it; 0: none that may still be acknowledged
  };
  using Rows = boost::unordered_flat_map<Key, Entry, KeyHash, std::equal_to<Key>,
                                         Allocator<std::pair<const Key, Entry>>>;
  struct Table {
    uint64_t table;
    uint64_t epoch;
    Bound bound;
    Rows rows;
    Vector<Moved> moved;

    // Whether a copy with this base is past the bound of its row. The one place that says so.
    bool Stale(Clock clock, Clock base) const;
    // False: there is no memory.
    bool Own(Key key, Entry* entry, uint32_t ticks, Clock clock) noexcept;
    bool Other(Key key, Entry* entry, Clock clock) noexcept;
    // Returns how many rows are held no longer.
    size_t Acknowledge(uint32_t number);
    void Unmove(size_t at);
    // The client let these rows go. Returns how many it held.
    size_t Drop(Span<const Key> keys, uint32_t acknowledged) noexcept;
  };
  struct Record {
    uint32_t first = 0;    // answers since the last reset: from this one
    uint32_t last = 0;     // to this one
    uint32_t request = 0;  // the newest request
    uint32_t heard = 0;    // the first ForgetSilent after it
    uint32_t seen = 0;     // `last` at that time
    Vector<Table> tables;

    Table* Find(uint64_t table);
    size_t held() const;
  };
  using Records = std::map<ClientId, Record>;

  Records::iterator Forget(Records::iterator record) noexcept;
  // Forgets the client that was silent for longest, other than `keep`; false: there is none.
  bool ForgetOldest(ClientId keep);
  void ForgetIdle();

  size_t limit_;
  Records records_;
  size_t held_ = 0;
  uint32_t number_ = 0;  // of the newest answer
  uint64_t told_ = 0;
  uint64_t resets_ = 0;
};

// What one answer says. Good until the next call of another kind on the holdings.
class Holdings::Turn {
 public:
  // For the answer: 0 says that nothing is held.
  uint32_t number() const { return number_; }
  // Nothing is held of what was before this answer.
  bool reset() const { return reset_; }

  // For each table, in this order; with number 0 all of them do nothing.
  // The client let these rows go.
  void Drop(uint64_t table, const Vector<Key>& keys);
  // The answer leaves the client with this row at `clock`: fetched, refreshed, or found within its
  // bound.
  void Hold(uint64_t table, Key key, Clock clock);
  // Appends the rows of the table that have moved and that the answer does not bring, in order.
  void Name(uint64_t table, Vector<Key>* keys);

 private:
  friend class Holdings;
  Holdings* holdings_ = nullptr;
  Record* record_ = nullptr;
  ClientId client_;
  uint32_t number_ = 0;
  uint32_t acknowledged_ = 0;
  bool reset_ = true;
};

}  // namespace het
