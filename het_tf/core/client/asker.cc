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
  sync_ = cache->sync();
  trusts_ = op_->training() && cache->numbers().answered(partition);
  return last_ = &part->tables.back();
}

SyncPolicy::Pull Asker::PullOf(TableCache* cache, uint32_t line) const {
  if (cache->invalid(line)) return SyncPolicy::Pull::kFetch;
  return sync_.OnRead(cache->moved(line), trusts_ && cache->subscribed(line));
}

void Asker::Key(TableCache* cache, uint32_t partition, het::Key key, uint32_t line) {
  TableRead* const asked = Table(cache, partition);
  if (line == kNoRow) return asked->fetches.push_back(key);
  op_->sink->Hit(cache, line);
  switch (PullOf(cache, line)) {
    case SyncPolicy::Pull::kNothing:
      return;
    case SyncPolicy::Pull::kFetch:
      asked->fetches.push_back(key);
      return;
    case SyncPolicy::Pull::kNotified:
      asked->trusts = true;
      ++cache->counters().trusted;
      return;
    case SyncPolicy::Pull::kCheck:
      asked->checks.push_back(key);
      asked->clocks.push_back(cache->base(line));
      return;
  }
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

void Asker::Hand(const PartitionReadPtr& part, Session* session) {
  op_->parts.push_back(part);
  part->op = op_;
  ++op_->open_parts;
  session->Ask(part);
}

void Asker::Ask(std::deque<Session>* sessions) {
  for (auto& [partition, part] : by_partition_) {
    auto& tables = part->tables;
    tables.erase(std::remove_if(tables.begin(), tables.end(),
                                [](const TableRead& t) { return t.empty() && !t.trusts; }),
                 tables.end());
    if (tables.empty()) continue;
    Session* const session = &(*sessions)[partition];
    if (part->question()) {
      subscriptions_->Ask(part, session);
      continue;
    }
    while (PartitionReadPtr piece = part->TakePiece(session->most_read_bytes())) Hand(piece, session);
    Hand(part, session);
  }
  by_partition_.clear();
  last_ = nullptr;
}

}  // namespace het
