#include "het_tf/core/checkpoint/chain.h"

#include <algorithm>

namespace het {
namespace {

constexpr size_t kSomeRows = 65536;

// Calls f(keys, first, rows) for each run of a column of keys.
template <typename F>
Status ForKeys(const RowReader& file, const RowTable& table, RowColumn column, F f) {
  Buffer<Key> keys;
  const uint64_t all = table.tensors[column].rows;
  for (uint64_t first = 0; first < all; first += kSomeRows) {
    const auto rows = static_cast<size_t>(std::min<uint64_t>(kSomeRows, all - first));
    HET_RETURN_IF_ERROR(file.Read(table, column, first, rows, keys.Resize(rows)));
    HET_RETURN_IF_ERROR(f(keys.data(), first, rows));
  }
  return Status();
}

}  // namespace

Chain::Chain(const TableLayout& layout, const std::vector<uint32_t>& partitions)
    : layout_(layout), wanted_(layout.partitions()) {
  for (uint32_t p : partitions) wanted_[p] = 1;
}

Result<uint64_t> Chain::MostRows(const std::vector<std::string>& files, const std::string& table) {
  uint64_t rows = 0;
  for (const std::string& path : files) {
    HET_ASSIGN_OR_RETURN(const auto file, RowReader::Open(path));
    for (const RowTable& of : file->tables()) rows += of.name == table ? of.rows : 0;
  }
  return rows;
}

Status Chain::Add(const RowReader& file, const std::string& name) {
  const auto& tables = file.tables();
  const auto table =
      std::find_if(tables.begin(), tables.end(), [&](const RowTable& t) { return t.name == name; });
  if (table == tables.end()) return Status();
  const auto is_wanted = [&](uint64_t hash) { return wanted_[layout_.Of(hash)] != 0; };
  const auto set = [&](Key key, Clock clock) {
    const uint64_t hash = Hash(key);
    if (!is_wanted(hash)) return Status();
    const uint32_t row = Find(key, hash);
    if (row != kNoRow) {
      rows_[row].clock = clock;
      return Status();
    }
    if (rows_.size() >= kNoRow) return InvalidArgument("more than 2^32 rows of one table in a group");
    index_.Reserve([&](uint32_t r) { return Hash(rows_[r].key); });
    rows_.push_back({key, clock});
    index_.Insert(hash, static_cast<uint32_t>(rows_.size() - 1));
    return Status();
  };
  if (table->increment) {
    HET_RETURN_IF_ERROR(ForKeys(file, *table, kRemovedColumn, [&](const Key* keys, uint64_t, size_t rows) {
      for (size_t i = 0; i < rows; ++i) HET_RETURN_IF_ERROR(set(keys[i], kGone));
      return Status();
    }));
  }
  uint64_t mine = 0;
  HET_RETURN_IF_ERROR(ForKeys(file, *table, kKeysColumn, [&](const Key* keys, uint64_t, size_t rows) {
    for (size_t i = 0; i < rows; ++i) mine += is_wanted(Hash(keys[i])) ? 1 : 0;
    return Status();
  }));
  // Reserves exactly: growing step by step would need twice the memory while it copies.
  if (rows_.empty()) {
    rows_.reserve(mine);
    index_.Reserve([](uint32_t) { return uint64_t{0}; }, mine);
  }
  Buffer<Clock> clocks;
  return ForKeys(file, *table, kKeysColumn, [&](const Key* keys, uint64_t first, size_t rows) -> Status {
    HET_RETURN_IF_ERROR(file.Read(*table, kClocksColumn, first, rows, clocks.Resize(rows)));
    for (size_t i = 0; i < rows; ++i) HET_RETURN_IF_ERROR(set(keys[i], clocks[i]));
    return Status();
  });
}

bool Chain::Changed(Key key, Clock clock) {
  const uint32_t row = Find(key, Hash(key));
  if (row == kNoRow) return true;
  const Clock before = rows_[row].clock;
  rows_[row].clock = kSeen;
  return before != clock;
}

template <typename Wanted>
bool Chain::Collect(uint64_t* cursor, size_t most, Vector<Key>* keys, Wanted wanted) const {
  for (; *cursor < rows_.size() && most > 0; ++*cursor) {
    const Row& row = rows_[*cursor];
    if (!wanted(row.clock)) continue;
    keys->push_back(row.key);
    --most;
  }
  return *cursor < rows_.size();
}

bool Chain::Removed(uint64_t* cursor, size_t most, Vector<Key>* keys) const {
  return Collect(cursor, most, keys, [](Clock clock) { return clock != kSeen && clock != kGone; });
}

bool Chain::Gone(uint64_t* cursor, size_t most, Vector<Key>* keys) const {
  return Collect(cursor, most, keys, [](Clock clock) { return clock == kGone; });
}

Chain::Counts Chain::Count() const {
  Counts counts;
  for (const Row& row : rows_) ++(row.clock == kGone ? counts.gone : counts.rows);
  return counts;
}

bool Chain::Take(Key key) {
  const uint32_t row = Find(key, Hash(key));
  if (row == kNoRow || rows_[row].clock == kGone || rows_[row].clock == kSeen) return false;
  rows_[row].clock = kSeen;
  return true;
}

}  // namespace het
