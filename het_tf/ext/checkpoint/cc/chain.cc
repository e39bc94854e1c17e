#include "het_tf/ext/checkpoint/cc/chain.h"

#include <algorithm>

namespace het {
namespace {

constexpr size_t kSomeRows = 65536;

// Calls f(keys, count) for each run of a column of keys.
template <typename F>
Status ForKeys(const RowReader& file, const RowTable& table, RowColumn column, F f) {
  Buffer<Key> keys;
  const uint64_t all = table.tensors[column].rows;
  for (uint64_t first = 0; first < all; first += kSomeRows) {
    const auto rows = static_cast<size_t>(std::min<uint64_t>(kSomeRows, all - first));
    HET_RETURN_IF_ERROR(file.Read(table, column, first, rows, keys.Resize(rows)));
    HET_RETURN_IF_ERROR(f(keys.data(), rows));
  }
  return Status();
}

}  // namespace

Chain::Chain(const TableLayout& layout, const std::vector<uint32_t>& partitions)
    : layout_(layout), wanted_(layout.partitions()) {
  for (uint32_t p : partitions) wanted_[p] = 1;
}

Status Chain::Add(const RowReader& file, const std::string& name) {
  const auto& tables = file.tables();
  const auto table =
      std::find_if(tables.begin(), tables.end(), [&](const RowTable& t) { return t.name == name; });
  if (table == tables.end()) return Status();
  const auto is_wanted = [&](uint64_t hash) { return wanted_[layout_.Of(hash)] != 0; };
  const auto set = [&](Key key, Entry entry) {
    const uint64_t hash = Hash(key);
    if (!is_wanted(hash)) return Status();
    const uint32_t at = Find(key, hash);
    if (at != kNoRow) {
      entries_[at] = entry;
      return Status();
    }
    if (keys_.size() >= kNoRow) return InvalidArgument("more than 2^32 keys of one table in a group");
    index_.Reserve([&](uint32_t k) { return Hash(keys_[k]); });
    keys_.push_back(key);
    entries_.push_back(entry);
    index_.Insert(hash, static_cast<uint32_t>(keys_.size() - 1));
    return Status();
  };
  const auto add = [&](RowColumn column, Entry entry) {
    return ForKeys(file, *table, column, [&](const Key* keys, size_t count) {
      for (size_t i = 0; i < count; ++i) HET_RETURN_IF_ERROR(set(keys[i], entry));
      return Status();
    });
  };
  if (table->increment) HET_RETURN_IF_ERROR(add(kRemovedColumn, Entry::kGone));
  if (keys_.empty()) {
    // Reserves exactly: growing step by step would need twice the memory while it copies.
    uint64_t mine = 0;
    HET_RETURN_IF_ERROR(ForKeys(file, *table, kKeysColumn, [&](const Key* keys, size_t count) {
      for (size_t i = 0; i < count; ++i) mine += is_wanted(Hash(keys[i])) ? 1 : 0;
      return Status();
    }));
    keys_.reserve(mine);
    entries_.reserve(mine);
    index_.Reserve([](uint32_t) { return uint64_t{0}; }, mine);
  }
  return add(kKeysColumn, Entry::kRow);
}

bool Chain::Gone(uint64_t* cursor, size_t most, Vector<Key>* keys) const {
  for (; *cursor < keys_.size() && most > 0; ++*cursor) {
    if (entries_[*cursor] != Entry::kGone) continue;
    keys->push_back(keys_[*cursor]);
    --most;
  }
  return *cursor < keys_.size();
}

Chain::Counts Chain::Count() const {
  Counts counts;
  for (const Entry entry : entries_) ++(entry == Entry::kGone ? counts.gone : counts.rows);
  return counts;
}

bool Chain::Take(Key key) {
  const uint32_t at = Find(key, Hash(key));
  if (at == kNoRow || entries_[at] != Entry::kRow) return false;
  entries_[at] = Entry::kTaken;
  return true;
}

}  // namespace het
