#include "het_tf/core/store/changes.h"

#include <algorithm>
#include <charconv>

#include "het_tf/core/store/chunk.h"
#include "het_tf/core/store/chunk_format.h"

namespace het {

using namespace chunk;  // NOLINT: this file writes chunks, too

namespace {

// Rows of a chunk, at most.
constexpr size_t kRowsAtOnce = 1024;

constexpr const char* kKindNames[] = {"changes", "keys", "whole"};

// Reads decimal numbers with ':' between; returns false unless the text has exactly `count`.
bool ParseNumbers(std::string_view text, uint64_t* numbers, size_t count) {
  const char* at = text.data();
  const char* const end = at + text.size();
  for (size_t i = 0; i < count; ++i) {
    if (i > 0 && (at == end || *at != ':')) return false;
    const auto [next, error] = std::from_chars(i > 0 ? at + 1 : at, end, numbers[i]);
    if (error != std::errc()) return false;
    at = next;
  }
  return at == end;
}

size_t RowBytes(const Shard& shard, const ChangesRequest& request) {
  const size_t dim = shard.schema().dim();
  return request.stored ? kRowHead + shard.rows().row_floats() * sizeof(float)
                        : sizeof(Key) + MostRowBytes(request.format, dim, dim);
}

// Whether the changes since `number` are known, of all tables or of one.
bool Knows(const Partition& partition, uint64_t number, std::optional<uint64_t> table) {
  if (!table) return partition.changes().KnowsSince(number);
  const auto shard = partition.shards().find(*table);
  return shard != partition.shards().end() && number >= shard->second->known_since();
}

// Fills one page, stage by stage.
class PageWriter {
 public:
  PageWriter(const Partition& partition, const ChangesRequest& request, ChangesPage* page)
      : partition_(partition), request_(request), page_(page), at_(request.cursor) {}

  void Write() {
    Begin();
    if (at_.stage == ChangesCursor::kRemovals) WriteRemovals();
    if (at_.stage == ChangesCursor::kAllKeys) WriteTables(&PageWriter::WriteKeys);
    if (at_.stage == ChangesCursor::kRows && !Full()) WriteTables(&PageWriter::WriteRows);
    if (at_.stage == ChangesCursor::kLate && !done_ && !Full()) WriteLate();
    page_->start = at_.start;
    page_->kind = at_.kind;
    page_->next = done_ ? ChangesCursor() : at_;
  }

 private:
  void Begin() {
    const ChangeLog& log = partition_.changes();
    const bool same = at_.start.incarnation == partition_.incarnation() && at_.start.number <= log.now();
    if (!at_.begins() && same && !(at_.kind == ChangesKind::kChanges && Lost())) return;
    at_ = ChangesCursor();
    at_.start = {partition_.incarnation(), log.now()};
    at_.kind = KindSince(partition_, request_.since, request_.table);
    at_.stage = at_.kind == ChangesKind::kWhole  ? ChangesCursor::kRows
                : at_.kind == ChangesKind::kKeys ? ChangesCursor::kAllKeys
                                                 : ChangesCursor::kRemovals;
    if (at_.kind == ChangesKind::kChanges) at_.at = log.After(request_.since.number);
  }

  // Whether a scan of kChanges cannot go on: it needs removals that the list has lost.
  bool Lost() const {
    const ChangeLog& log = partition_.changes();
    if (!Knows(partition_, at_.start.number, request_.table)) return true;  // a table was cleared or dropped
    if (at_.stage == ChangesCursor::kRows) return !log.HasRemovalsSince(at_.start.number);
    return at_.at < log.begin() ||
           (at_.stage == ChangesCursor::kRemovals && !log.HasRemovalsSince(request_.since.number));
  }

  bool Full() const { return bytes_ >= request_.max_bytes; }
  bool Wanted(uint64_t table) const { return !request_.table || *request_.table == table; }
  size_t Room(size_t row_bytes) const {
    return std::max<size_t>(1, (request_.max_bytes - std::min(bytes_, request_.max_bytes)) / row_bytes);
  }
  void NextStage(ChangesCursor::Stage stage) {
    at_.stage = stage;
    at_.table = 0;
    at_.at = 0;
  }

  void WriteRemovals() {
    const ChangeLog& log = partition_.changes();
    Vector<Key> keys;
    uint64_t end = log.After(at_.start.number);
    while (at_.at < end && !Full()) {
      const uint64_t table = log.at(at_.at).table;
      const size_t room = Room(sizeof(Key));
      keys.clear();
      for (; at_.at < end && keys.size() < room && log.at(at_.at).table == table; ++at_.at) {
        keys.push_back(log.at(at_.at).key);
      }
      if (!Wanted(table)) continue;
      AddKeys(Kind::kRemove, table, keys);
    }
    if (at_.at >= end) NextStage(ChangesCursor::kRows);
  }

  // Calls write(shard), which writes a chunk from row at_.at on and moves on, until the page is full or the
  // stage has ended.
  void WriteTables(void (PageWriter::*write)(const Shard&)) {
    const auto& shards = partition_.shards();
    for (auto it = shards.lower_bound(at_.table); it != shards.end(); ++it) {
      if (it->first != at_.table) at_.at = 0;
      at_.table = it->first;
      if (!Wanted(it->first)) continue;
      while (at_.at < it->second->rows().end()) {
        if (Full()) return;
        (this->*write)(*it->second);
      }
    }
    done_ = at_.kind != ChangesKind::kChanges;
    if (done_) return;
    NextStage(ChangesCursor::kLate);
    at_.at = partition_.changes().After(at_.start.number);
  }

  // The keys of the next rows, and those rows that have changed.
  void WriteKeys(const Shard& shard) {
    const RowStore& rows = shard.rows();
    const uint64_t now = partition_.changes().now();
    const size_t most = bytes_ + Room(1);
    size_t size = bytes_;
    Vector<Key> keys;
    Vector<uint32_t> changed;
    for (; at_.at < rows.end() && (keys.empty() || size < most); ++at_.at) {
      const auto row = static_cast<uint32_t>(at_.at);
      if (!rows.live(row)) continue;
      keys.push_back(rows.meta(row).key);
      size += sizeof(Key);
      if (!shard.numbers().MayHaveChanged(row, request_.since.number, now)) continue;
      changed.push_back(row);
      size += RowBytes(shard, request_);
    }
    if (keys.empty()) return;
    AddKeys(Kind::kKeys, shard.schema().id(), keys);
    AddRows(shard, changed);
  }

  // The keys that were removed while the scan went on, and the rows of those that have come back.
  void WriteLate() {
    const ChangeLog& log = partition_.changes();
    while (at_.at < log.end() && !Full()) {
      const uint64_t table = log.at(at_.at).table;
      const auto it = partition_.shards().find(table);
      const Shard* const shard = it == partition_.shards().end() ? nullptr : it->second.get();
      const size_t room = Room(shard == nullptr ? sizeof(Key) : RowBytes(*shard, request_));
      Vector<Key> gone;
      Vector<uint32_t> back;
      for (; at_.at < log.end() && gone.size() + back.size() < room && log.at(at_.at).table == table;
           ++at_.at) {
        const Key key = log.at(at_.at).key;
        const uint32_t row = shard == nullptr ? kNoRow : shard->rows().Find(key);
        row == kNoRow ? gone.push_back(key) : back.push_back(row);
      }
      if (!Wanted(table)) continue;
      if (!gone.empty()) AddKeys(Kind::kRemove, table, gone);
      if (shard != nullptr) AddRows(*shard, back);
    }
    done_ = at_.at >= log.end();
  }

  void AddKeys(Kind kind, uint64_t table, const Vector<Key>& keys) {
    EncodeKeys(kind, table, keys, &page_->chunks.emplace_back());
    bytes_ += page_->chunks.back().size();
  }

  // Those of the rows that are live.
  void AddRows(const Shard& shard, const Vector<uint32_t>& picked) {
    Bytes* const chunk = &page_->chunks.emplace_back();
    const size_t live = request_.stored ? EncodeStored(shard, picked, chunk)
                                        : EncodeValues(shard, request_.format, picked, chunk);
    if (live > 0) {
      bytes_ += chunk->size();
    } else {
      page_->chunks.pop_back();
    }
  }

  void WriteRows(const Shard& shard) {
    const uint32_t end = shard.rows().end();
    const size_t room = std::min(kRowsAtOnce, Room(RowBytes(shard, request_)));
    Vector<uint32_t> picked;
    if (at_.kind == ChangesKind::kWhole) {
      for (; at_.at < end && picked.size() < room; ++at_.at) picked.push_back(static_cast<uint32_t>(at_.at));
    } else {
      at_.at = shard.numbers().Pick(static_cast<uint32_t>(at_.at), end, request_.since.number,
                                    partition_.changes().now(), room, &picked);
    }
    AddRows(shard, picked);
  }

  const Partition& partition_;
  const ChangesRequest& request_;
  ChangesPage* const page_;
  ChangesCursor at_;
  size_t bytes_ = 0;
  bool done_ = false;
};

}  // namespace

const char* NameOf(ChangesKind kind) { return kKindNames[static_cast<size_t>(kind)]; }

bool ParseChangesKind(std::string_view text, ChangesKind* kind) {
  const auto* const found = std::find(std::begin(kKindNames), std::end(kKindNames), text);
  if (found == std::end(kKindNames)) return false;
  *kind = static_cast<ChangesKind>(found - kKindNames);
  return true;
}

std::string ToString(const Position& position) {
  return std::to_string(position.incarnation) + ":" + std::to_string(position.number);
}

bool ParsePosition(std::string_view text, Position* position) {
  uint64_t numbers[2];
  if (!ParseNumbers(text, numbers, 2)) return false;
  *position = {numbers[0], numbers[1]};
  return true;
}

std::string ToString(const ChangesCursor& c) {
  if (c.begins()) return "0";
  return ToString(c.start) + ":" + std::to_string(static_cast<int>(c.kind)) + ":" +
         std::to_string(static_cast<int>(c.stage)) + ":" + std::to_string(c.table) + ":" +
         std::to_string(c.at);
}

bool ParseCursor(std::string_view text, ChangesCursor* cursor) {
  *cursor = ChangesCursor();
  if (text == "0") return true;
  uint64_t numbers[6];
  if (!ParseNumbers(text, numbers, 6)) return false;
  const auto [incarnation, number, kind, stage, table, at] = numbers;
  if (incarnation == 0 || kind > static_cast<uint64_t>(ChangesKind::kWhole) || stage > ChangesCursor::kLate) {
    return false;
  }
  *cursor = {{incarnation, number},
             static_cast<ChangesKind>(kind),
             static_cast<ChangesCursor::Stage>(stage),
             table,
             at};
  if (stage != ChangesCursor::kRemovals && stage != ChangesCursor::kLate) return at <= UINT32_MAX;
  return cursor->kind == ChangesKind::kChanges;
}

ChangesCount& ChangesCount::operator+=(const ChangesCount& other) {
  kind = std::max(kind, other.kind);
  rows += other.rows;
  removed += other.removed;
  return *this;
}

ChangesKind KindSince(const Partition& partition, const Position& since, std::optional<uint64_t> table) {
  const ChangeLog& log = partition.changes();
  if (since.incarnation != partition.incarnation() || since.number > log.now()) return ChangesKind::kWhole;
  if (!Knows(partition, since.number, table)) return ChangesKind::kWhole;
  return log.HasRemovalsSince(since.number) ? ChangesKind::kChanges : ChangesKind::kKeys;
}

ChangesCount CountChanges(const Partition& partition, const Position& since, uint64_t table) {
  ChangesCount count;
  count.kind = KindSince(partition, since, table);
  if (count.kind != ChangesKind::kChanges) return count;
  const Shard& shard = *partition.shards().at(table);
  const ChangeLog& log = partition.changes();
  count.rows = shard.numbers().CountChanged(shard.rows().end(), since.number, log.now());
  for (uint64_t at = log.After(since.number); at < log.end(); ++at) {
    count.removed += log.at(at).table == table ? 1 : 0;
  }
  return count;
}

void ReadChanges(const Partition& partition, const ChangesRequest& request, ChangesPage* page) {
  page->chunks.clear();
  PageWriter(partition, request, page).Write();
}

}  // namespace het
