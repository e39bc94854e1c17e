// Keeps live files (live_format.h) up with a store: the process of `het serve follow`.
//
//   ask page ──► page ──► rows into the live files ──► ask next page ... ──► last page: keys out, position
//      ▲           └ kWhole: ask for the tables' specs first                            │
//      └──────────────────── `poll` seconds after the question before ◄────────────────┘
//
// Every partition that has rows of the live tables goes round by itself, so that one which does not answer
// does not delay the others.
//
// Age. When a scan is complete, the partition's rows are at least those that the store had when the scan's
// first request was *sent*: that time is recorded. (A request may be under way for long, so the time of its
// answer would promise too much.) The times are of this machine's CLOCK_BOOTTIME; the server's clock does not
// matter.
//
// Tables. A scan of kind kWhole (the first one, or after a restart, load, clear or drop) begins with a look
// at the tables' specs, after its start: a table that is dropped later makes the next scan kWhole again.
// While a table is missing or another one, nothing of its partitions is written, and their age grows.
//
// Errors. A question that failed, or a page that cannot be written (the disk is full), is tried again, after
// growing pauses. Rows stay as they are and their age grows.
//
// Versions: waiting_versions.h. Rows are newer than the dense weights in force by at most skew.h's bound.
//
// Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/client/backoff.h"
#include "het_tf/ext/serving/cc/follow/boot_clock.h"
#include "het_tf/ext/serving/cc/follow/change_source.h"
#include "het_tf/ext/serving/cc/follow/live_writer.h"
#include "het_tf/ext/serving/cc/follow/partition_scan.h"
#include "het_tf/ext/serving/cc/follow/skew.h"
#include "het_tf/ext/serving/cc/follow/waiting_versions.h"

namespace het::follow {

struct FollowerOptions {
  double poll = 0.1;                        // seconds between the beginnings of two scans of a partition
  size_t max_page_bytes = size_t{1} << 20;  // of one answer
  RowFormat rows = RowFormat::kFloat32;     // rows are rounded to it on their way
  // Of all partitions, before the export read its rows; ignored if another number of them.
  std::vector<Position> base;
  BackoffConfig backoff{/*first=*/0.02, /*most=*/2};
  std::function<uint64_t()> clock = BootNanoseconds;
};

class Follower {
 public:
  // Goes on from the positions of the live files. FailedPrecondition: no partition has rows of the tables.
  // The source and the writer must outlive it.
  static Result<std::unique_ptr<Follower>> Create(ChangeSource* source, LiveWriter* writer,
                                                  FollowerOptions options);

  // Asks due questions, writes what has been answered, and flips. Never waits; call it again after the
  // returned seconds, or when a descriptor of the source is ready. Throws std::bad_alloc; call it again then.
  double Step();

  // A version that is not newer than the one in force is ignored. InvalidArgument: `cut` does not have one
  // position for each partition of the store.
  Status Offer(Version version, std::vector<Position> cut);

  // Forgets the versions that wait, and goes back to the dense weights of `version`; rows go on. If it is
  // newer than the one in force, it is offered. Errors as of Offer and LiveWriter::Flip.
  Status RollBack(Version version, std::vector<Position> cut);

  // Whether every partition has completed a scan since the follower began.
  bool caught_up() const;
  // Returns one JSON object (ext/serving/capi/follow.h).
  std::string Report() const;

 private:
  enum class Waits { kNothing, kPage, kTables };

  struct Counts {
    ChangesKind kind = ChangesKind::kChanges;  // of the last complete scan
    uint64_t scans = 0;                        // complete
    uint64_t bytes = 0;                        // of chunks
  };
  // A partition on its way.
  struct Part {
    Part(uint32_t number, const Layout& layout, LiveWriter* writer)
        : partition(number), scan(number, layout, writer) {}

    uint32_t partition;
    PartitionScan scan;
    Position since;
    ChangesRequest request;  // the page to ask for
    Waits waits = Waits::kNothing;
    uint64_t due = 0;    // not before this time
    uint64_t asked = 0;  // when the question in flight was sent
    uint64_t sent = 0;   // the first request of the scan
    ChangesPage held;    // until the tables are known
    uint64_t seen = 0;   // `sent` of the last complete scan; 0: none is complete
    Backoff backoff;
    Counts counts;
  };

  Follower(ChangeSource* source, LiveWriter* writer, FollowerOptions options)
      : source_(source), writer_(writer), options_(std::move(options)) {}

  uint64_t After(uint64_t time, double seconds) const { return time + static_cast<uint64_t>(seconds * 1e9); }
  void Restart(Part* part);
  void Collect();
  void Ask(Part* part);
  void Take(Part* part, ChangeAnswer answer);
  Status TakePage(Part* part, ChangesPage page);
  Status TakeTables(Part* part, const std::vector<std::optional<TableSpec>>& specs);
  Status Write(Part* part, const ChangesPage& page);
  void Flip();
  size_t IndexOf(const Part& part) const { return static_cast<size_t>(&part - parts_.data()); }
  void TellSkew();
  // Takes position and `seen` of every partition from the live files.
  void ReadPositions();

  ChangeSource* const source_;
  LiveWriter* const writer_;
  const FollowerOptions options_;
  std::vector<Part> parts_;
  std::vector<Part*> by_partition_;  // null: has no rows of the tables
  WaitingVersions versions_;
  Skew skew_{{}};
  std::vector<ChangeAnswer> answers_;
  std::map<size_t, std::string> table_errors_;
  std::string flip_error_;
};

}  // namespace het::follow
