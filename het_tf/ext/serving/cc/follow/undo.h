// The way back of live files to an earlier version, rows included.
//
//   version 7 in force ──► journal 7 ──► version 8 in force ──► journal 8 ──► ...
//
// From the moment when a version comes into force until the next one does, the version's journal gets each
// row that changes, as it was before its first change. So journals that are applied from the newest to
// version v's, which is the last, bring the rows back to v's moment.
//
//   Flip, Flip, ...     versions come into force
//   RollBack(v)         the dense weights of v; positions and `seen` of its moment
//   Restore()           the rows, some time later
//   Resume()            rows may change again
//
// Readers. The dense weights go back first, and rows may then be newer than v's cut, as at any time: so the
// contract holds for every request that begins after RollBack. A request that has read newer dense weights
// before RollBack must have read its rows before Restore; so Restore waits (Follower::kGrace). A request that
// takes longer may combine newer dense weights with rows of v's moment. During Restore, rows go back one by
// one.
//
// Crash of the process. A file, rolled_back, is there from the beginning of RollBack to the end of Resume.
// Open finds it and repeats RollBack; the caller repeats Restore. To apply journals twice does no harm.
//
// Limits. Journals of the last `versions` versions and of the present one are kept, in at most `bytes`. When
// they need more, the oldest go; when the present one's need more, all go, and `error` says it until the next
// Flip. The same is done when the disk or the memory is full: serving goes on. Memory: about 16 bytes a row
// of the present journal. Not thread-safe.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "het_tf/core/row/key_index.h"
#include "het_tf/ext/serving/cc/follow/live_writer.h"
#include "het_tf/ext/serving/cc/follow/undo_journal.h"

namespace het::follow {

struct UndoLimits {
  size_t versions = 10;  // to which one can go back; 0: no journals
  uint64_t bytes = uint64_t{1} << 30;
};

class Undo {
 public:
  struct RolledBack {
    uint64_t version = 0;
    bool rows = false;     // whether rows go back, too, and stay; else they go on
    uint64_t journal = 0;  // its number, if `rows`
  };

  // Goes on with the journals of the writer's directory. Call it after SetPartitions. The writer must outlive
  // it, and must not change rows before it or without it. kFile, InvalidArgument: a rollback cannot go on.
  static Result<std::unique_ptr<Undo>> Open(LiveWriter* writer, UndoLimits limits);
  ~Undo();

  // LiveWriter::Flip, and a new journal.
  Status Flip(const Version& version);
  // The versions that have a journal, oldest first.
  std::vector<Version> Targets() const;
  const std::string& error() const { return error_; }

  const std::optional<RolledBack>& rolled_back() const { return rolled_back_; }
  // FailedPrecondition: the rows of the version are not kept, or rows are at an earlier version already.
  // kFile: the system refuses; nothing has changed.
  Status RollBack(uint64_t version);
  // Only the dense weights go back. FailedPrecondition: rows have gone back.
  Status RollBackDense(const Version& version);
  // kFile, DataLoss: some rows are those of later versions; call it again.
  Status Restore();
  // Call it after Restore.
  Status Resume();

 private:
  // The keys of one table that are in the present journal.
  class Noted {
   public:
    bool Add(Key key);  // false: it is there
   private:
    KeyIndex index_;
    Vector<Key> keys_;
  };
  using Journals = std::deque<std::unique_ptr<UndoJournal>>;

  Undo(LiveWriter* writer, UndoLimits limits);
  Status ReadJournals();
  Status ReadRolledBack();
  Status WriteRolledBack(const RolledBack& to);
  Status NoteKeys();
  // What LiveWriter calls before rows change.
  void Note(size_t table, Span<const Key> keys);
  Status Append(size_t table, Span<const Key> keys);
  bool MakeRoom(uint64_t bytes);
  void Begin(const VersionRecord& version);
  void DropAll(const std::string& why);
  void DropOldest();
  Journals::const_iterator Find(uint64_t version) const;
  // The dense weights, positions and `seen` of a journal's moment.
  Status Apply(const UndoJournal& journal);

  LiveWriter* const writer_;
  const UndoLimits limits_;
  std::vector<uint32_t> row_bytes_;  // by table
  Journals journals_;                // oldest first
  uint64_t next_number_ = 1;
  std::vector<Noted> noted_;  // by table
  std::optional<RolledBack> rolled_back_;
  std::string error_;
};

}  // namespace het::follow
