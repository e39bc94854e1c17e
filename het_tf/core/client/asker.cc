#include "het_tf/core/client/asker.h"

#include <algorithm>

#include "het_tf/core/client/row_sink.h"

namespace het {

TableRead* Asker::Table(TableCache* cache, uint32_t partition) {
  if (last_ != nullptr && last_->cache == cache && last_partition_ == partition) return last_;
  PartitionReadPtr& part = by_partition_[partition];
  if (part == nullptr) part = std::make_shared<PartitionRead>();
  // Keys come table by table.
  if (part->tables.empty() || part->tables.back().cache != cache) part->tables.push_back({cache});
  last_partition_ = partition;
  sync_ = cache->config().sync();
  return last_ = &part->tables.back();
}

void Asker::AskAbout(TableCache* cache, uint32_t partition, uint32_t line) {
  TableRead* const asked = Table(cache, partition);
  const het::Key key = cache->lines().meta(line).key;
  switch (sync_.OnRead(cache->invalid(line), cache->subscribed(line))) {
    case SyncPolicy::Pull::kNothing:
      return;
    case SyncPolicy::Pull::kFetch:
      asked->fetches.push_back(key);
      return;
    case SyncPolicy::Pull::kNotified:
      asked->trusted.push_back(line);
      return;
    case SyncPolicy::Pull::kCheck:
      asked->checks.push_back(key);
      asked->clocks.push_back(cache->base(line));
      return;
  }
}

void Asker::Key(TableCache* cache, uint32_t partition, het::Key key, uint32_t line, Cached which) {
  if (line == kNoRow) return Absent(cache, partition, key);
  op_->pins.Add(cache, line);
  op_->sink->Hit(cache, line);
  const bool asks = which == Cached::kAll || (which == Cached::kInvalid && cache->invalid(line));
  if (asks) AskAbout(cache, partition, line);
}

void Asker::Absent(TableCache* cache, uint32_t partition, het::Key key) {
  if (waits_ && on_way_->Waits(op_, cache, partition, key)) {
    if (!op_->ahead) ++cache->counters().prefetch_late;
    return;
  }
  Table(cache, partition)->fetches.push_back(key);
}

void Asker::ForDevice(TableCache* cache, DeviceRead::Part* rows, bool training) {
  if (rows->n == 0) return;
  TableRead* const asked = Table(cache, rows->partition);
  asked->device = rows;
  const auto fetches = static_cast<size_t>(std::count(rows->bases, rows->bases + rows->n, kNoBase));
  asked->fetches.reserve(fetches);
  asked->fetch_at.reserve(fetches);
  asked->checks.reserve(rows->n - fetches);
  asked->clocks.reserve(rows->n - fetches);
  asked->check_at.reserve(rows->n - fetches);
  const bool filter = training && cache->config().admit_after > 1;
  for (uint32_t i = 0; i < rows->n; ++i) {
    rows->came[i] = 0;
    rows->admit[i] = training;
    if (rows->bases[i] != kNoBase) {
      asked->checks.push_back(rows->keys[i]);
      asked->clocks.push_back(rows->bases[i]);
      asked->check_at.push_back(i);
    } else {
      // Counted here, since a key may be asked for more than once until its row is there.
      if (filter) rows->admit[i] = cache->Admit(cache->lines().Hash(rows->keys[i]));
      asked->fetches.push_back(rows->keys[i]);
      asked->fetch_at.push_back(i);
    }
  }
}

void Asker::Ask(std::deque<Session>* sessions) {
  for (auto& [partition, part] : by_partition_) {
    auto& tables = part->tables;
    tables.erase(std::remove_if(tables.begin(), tables.end(), [](const TableRead& t) { return t.empty(); }),
                 tables.end());
    if (tables.empty()) continue;
    if (op_->ahead) {
      for (const TableRead& asked : tables) {
        for (het::Key key : asked.fetches) on_way_->Add(asked.cache, key, part);
      }
    }
    op_->parts.push_back(part);
    part->op = op_;
    ++op_->open_parts;
    (*sessions)[partition].Ask(part);
  }
  by_partition_.clear();
  last_ = nullptr;
}

}  // namespace het
