// The scans of a partition's large changes (core/store/large_changes.h), where its ordinary scans are rare.
//
//   ordinary   page ──────────── page ──────────── page       every `defer_small` seconds
//   large           page page         page page         page  every `poll` seconds, also between these pages
//
// Rows that moved far come at once, the others with the next ordinary scan. Only that one removes keys and
// tells how new all rows are. If questions of both kinds are due they take turns, so that a long scan of one
// kind does not hold up the other.
//
// A row may be made behind the cursor of an ordinary scan, which does not meet it. If it comes by a large
// scan, the ordinary one notes its key (PartitionScan::Add), and does not remove it as one that the store
// lacks.
//
// Position. It begins with an ordinary scan's start, so that the tables are those that the follower has
// looked at, and it is not behind the last complete one. If the store does not know it (a restart, a clear),
// it ends until an ordinary scan has begun.
#pragma once

#include <algorithm>
#include <cstdint>

#include "het_tf/core/client/backoff.h"
#include "het_tf/core/follow/change_source.h"
#include "het_tf/core/follow/partition_scan.h"

namespace het::follow {

class LargeScan {
 public:
  // `poll`: seconds between the beginnings of two scans. 0: there are none.
  LargeScan(double poll, BackoffConfig backoff) : poll_(poll), backoff_config_(backoff) {}

  // A page of an ordinary scan was written.
  void Follow(const ChangesPage& page, uint64_t now);
  // Forgets the position.
  void Stop();
  // Does not ask before this time.
  void Wait(uint64_t until) { due_ = std::max(due_, until); }
  // Begins the scan under way anew, `poll` after it began.
  void Restart();

  // Whether the next page, or the one that was asked for, is the first of a scan.
  bool begins() const { return cursor_.begins(); }
  // When that one was asked for.
  uint64_t began() const { return began_; }
  // When to ask; UINT64_MAX: not before Follow.
  uint64_t due() const { return due_; }
  // Whether it is this scan's turn to ask. `other`: an ordinary scan would ask, too.
  bool TakesTurn(uint64_t now, bool other) {
    asked_last_ = due_ <= now && !(other && asked_last_);
    return asked_last_;
  }
  // Returns the request for the next page, with the size and format of `like`.
  ChangesRequest Ask(const ChangesRequest& like, uint64_t now);
  // Writes the answer's rows. Returns false if an ordinary scan must begin now: the position is not known, or
  // the one under way has not noted all keys of these rows. After an error it waits for a while.
  bool Take(const ChangeAnswer& answer, PartitionScan* scan, uint64_t now);

  uint64_t scans() const { return scans_; }
  uint64_t rows() const { return rows_; }
  uint64_t bytes() const { return bytes_; }
  const Backoff& backoff() const { return backoff_; }

 private:
  const double poll_;
  const BackoffConfig backoff_config_;
  Position since_;  // incarnation 0: not known
  ChangesCursor cursor_;
  uint64_t due_ = UINT64_MAX;
  uint64_t began_ = 0;
  bool asked_last_ = false;
  Backoff backoff_;
  uint64_t scans_ = 0;
  uint64_t rows_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace het::follow
