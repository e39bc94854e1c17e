#include "het_tf/core/client/asker.h"

#include "het_tf/core/client/row_sink.h"

namespace het {

void Asker::Begin(TableCache* cache, uint32_t partition) {
  cache_ = cache;
  partition_ = partition;
  asked_ = nullptr;
  sync_ = cache->policy().sync();
  trusts_ = op_->sink->subscribes() && cache->numbers().answered(partition);
}

TableRead* Asker::Add() {
  PartitionReadPtr& part = by_partition_[partition_];
  if (part == nullptr) {
    part = std::make_shared<PartitionRead>();
    part->partition = partition_;
  }
  if (part->tables.empty() || part->tables.back().cache != cache_) part->tables.push_back({cache_});
  return &part->tables.back();
}

SyncPolicy::Pull Asker::PullOf(uint32_t line) const {
  if (line == kNoRow || cache_->marks().invalid(line)) return SyncPolicy::Pull::kFetch;
  if (cache_->marks().followed(line)) return SyncPolicy::Pull::kNothing;
  return sync_.OnRead(cache_->marks().moved(line), trusts_ && cache_->marks().subscribed(line));
}

void Asker::Key(het::Key key, uint32_t line, uint32_t at) {
  switch (PullOf(line)) {
    case SyncPolicy::Pull::kNothing:
      return;
    case SyncPolicy::Pull::kFetch:
      return asked()->Fetch(key, at);
    case SyncPolicy::Pull::kNotified:
      asked();
      ++cache_->counters().trusted;
      return;
    case SyncPolicy::Pull::kCheck:
      return asked()->Check(key, cache_->lines().base(line), at);
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
    Session* const session = &(*sessions)[partition];
    if (part->question()) {
      subscriptions_->Ask(part, session);
      continue;
    }
    while (PartitionReadPtr piece = part->TakePiece(session->most_read_bytes())) Hand(piece, session);
    Hand(part, session);
  }
  by_partition_.clear();
  asked_ = nullptr;
}

}  // namespace het
