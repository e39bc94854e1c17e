#include "het_tf/core/store/changes.h"

#include <algorithm>
#include <charconv>

#include "het_tf/core/store/chunk.h"
#include "het_tf/core/store/chunk_format.h"

namespace het {

using namespace chunk;  // NOLINT: this file writes chunks, too

namespace {

constexpr const char* kKindNames[] = {"changes", "keys", "whole"};

// Reads decimal numbers with ':' between; returns false unless the text has exactly `count`.
bool ParseNumbers(std::string_view text, uint64_t* numbers, size_t count) {
  const char* at = text.data();
  const char* const end = at + text.size();
  for (size_t i = 0; i < count; ++i) {
    if (i > 0 && (at == end || *at++ != ':')) return false;
    const auto [next, error] = std::from_chars(at, end, numbers[i]);
    if (error != std::errc() || next == at) return false;
    at = next;
  }
  return at == end;
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
    const Position& since = request_.since;
    if (since.incarnation != partition_.incarnation() || !log.KnowsSince(since.number)) {
      at_.kind = ChangesKind::kWhole;
      at_.stage = ChangesCursor::kRows;
    } else if (!log.HasRemovalsSince(since.number)) {
      at_.kind = ChangesKind::kKeys;
      at_.stage = ChangesCursor::kAllKeys;
    } else {
      at_.at = log.After(since.number);
    }
  }

  // Whether a scan of kChanges cannot go on: it needs removals that the list has lost.
  bool Lost() const {
    const ChangeLog& log = partition_.changes();
    if (!log.KnowsSince(at_.start.number)) return true;  // a table was cleared or dropped
    if (at_.stage == ChangesCursor::kRows) return !log.HasRemovalsSince(at_.start.number);
    return at_.at < log.begin() ||
           (at_.stage == ChangesCursor::kRemovals && !log.HasRemovalsSince(request_.since.number));
  }

  bool Full() const { return bytes_ >= request_.max_bytes; }
  bool Wanted(uint64_t table) const { return !request_.table || *request_.table == table; }
  size_t Room(size_t row_bytes) const {
    return std::max<size_t>(1, (request_.max_bytes - std::min(bytes_, request_.max_bytes)) / row_bytes);
  }
  void Add(Bytes chunk) {
    bytes_ += chunk.size();
    page_->chunks.push_back(std::move(chunk));
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
      Bytes chunk;
      EncodeKeys(Kind::kRemove, table, {keys.data(), keys.size()}, &chunk);
      Add(std::move(chunk));
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
      if (shard.numbers().NextChanged(row, row + 1, request_.since.number, now) != row) continue;
      changed.push_back(row);
      size += RowBytes(shard);
    }
    if (keys.empty()) return;
    Bytes chunk;
    EncodeKeys(Kind::kKeys, shard.schema().id(), {keys.data(), keys.size()}, &chunk);
    Add(std::move(chunk));
    AddRows(shard, changed);
  }

  // The keys that were removed while the scan went on, and the rows of those that have come back.
  void WriteLate() {
    const ChangeLog& log = partition_.changes();
    while (at_.at < log.end() && !Full()) {
      const uint64_t table = log.at(at_.at).table;
      const auto it = partition_.shards().find(table);
      const Shard* const shard = it == partition_.shards().end() ? nullptr : it->second.get();
      const size_t room = Room(shard == nullptr ? sizeof(Key) : RowBytes(*shard));
      Vector<Key> gone;
      Vector<uint32_t> back;
      for (; at_.at < log.end() && gone.size() + back.size() < room && log.at(at_.at).table == table;
           ++at_.at) {
        const Key key = log.at(at_.at).key;
        const uint32_t row = shard == nullptr ? kNoRow : shard->rows().Find(key);
        row == kNoRow ? gone.push_back(key) : back.push_back(row);
      }
      if (!Wanted(table)) continue;
      if (!gone.empty()) {
        Bytes chunk;
        EncodeKeys(Kind::kRemove, table, {gone.data(), gone.size()}, &chunk);
        Add(std::move(chunk));
      }
      if (shard != nullptr) AddRows(*shard, back);
    }
    done_ = at_.at >= log.end();
  }

  size_t RowBytes(const Shard& shard) const {
    return request_.stored ? kRowHead + shard.rows().row_floats() * sizeof(float)
                           : sizeof(Key) + shard.schema().dim() * sizeof(float);
  }
  void AddRows(const Shard& shard, const Vector<uint32_t>& picked) {
    if (picked.empty()) return;
    Bytes chunk;
    if (request_.stored) {
      EncodeStored(shard, {picked.data(), picked.size()}, &chunk);
    } else {
      EncodeValues(shard, {picked.data(), picked.size()}, &chunk);
    }
    Add(std::move(chunk));
  }

  void WriteRows(const Shard& shard) {
    const RowStore& rows = shard.rows();
    const bool whole = at_.kind == ChangesKind::kWhole;
    const size_t room = Room(RowBytes(shard));
    Vector<uint32_t> picked;
    uint32_t row = static_cast<uint32_t>(at_.at);
    for (; row < rows.end() && picked.size() < room; ++row) {
      if (!whole) {
        row = shard.numbers().NextChanged(row, rows.end(), request_.since.number, partition_.changes().now());
        if (row == rows.end()) break;
      }
      if (rows.live(row)) picked.push_back(row);
    }
    at_.at = row;
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
  for (size_t i = 0; i < std::size(kKindNames); ++i) {
    if (text != kKindNames[i]) continue;
    *kind = static_cast<ChangesKind>(i);
    return true;
  }
  return false;
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

void ReadChanges(const Partition& partition, const ChangesRequest& request, ChangesPage* page) {
  page->chunks.clear();
  PageWriter(partition, request, page).Write();
}

Status DecodeChanges(Span<const uint8_t> bytes, ChangedRows* rows) {
  const auto broken = [](const char* what) { return InvalidArgument(std::string("damaged chunk: ") + what); };
  Reader r(bytes);
  Kind kind{};
  HET_RETURN_IF_ERROR(ReadKind(&r, &kind));
  if (kind != Kind::kRemove && kind != Kind::kKeys && kind != Kind::kValues) {
    return broken("of a kind that is not part of changes");
  }
  rows->table = r.Fixed<uint64_t>();
  rows->dim = 0;
  size_t count = r.left() / sizeof(Key);
  if (kind == Kind::kValues) {
    rows->dim = r.Fixed<uint32_t>();
    count = r.Fixed<uint32_t>();
    if (rows->dim == 0 || rows->dim > TableSchema::kMaxDim) return broken("its rows have no valid width");
  }
  if (!r.ok() || r.left() != count * (sizeof(Key) + rows->dim * sizeof(float))) {
    return broken("it does not have its stated number of rows");
  }
  rows->what = kind == Kind::kRemove ? ChangedRows::kRemoved
               : kind == Kind::kKeys ? ChangedRows::kKeys
                                     : ChangedRows::kValues;
  rows->keys.resize(count);
  rows->values.resize(count * rows->dim);
  if (count == 0) return Status();
  std::memcpy(rows->keys.data(), r.Raw(count * sizeof(Key)), count * sizeof(Key));
  const size_t floats = rows->values.size() * sizeof(float);
  if (floats > 0) std::memcpy(rows->values.data(), r.Raw(floats), floats);
  return Status();
}

}  // namespace het
