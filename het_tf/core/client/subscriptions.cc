#include "het_tf/core/client/subscriptions.h"

#include <algorithm>
#include <utility>

#include "het_tf/core/client/row_sink.h"

namespace het {

void Subscriptions::Recheck(PartitionRead* read) {
  for (TableRead& asked : read->tables) {
    TableCache* const cache = asked.cache;
    size_t kept = 0;
    for (size_t i = 0; i < asked.trusted.size(); ++i) {
      const uint32_t line = asked.trusted[i];
      if (!asked.IsThere(i)) {
        asked.fetches.push_back(asked.trusted_keys[i]);
      } else if (cache->subscribed(line) && cache->config().sync().subscribes) {
        asked.MoveTrusted(i, kept++);
      } else if (cache->invalid(line)) {
        asked.fetches.push_back(cache->lines().meta(line).key);
      } else {
        asked.checks.push_back(cache->lines().meta(line).key);
        asked.clocks.push_back(cache->base(line));
      }
    }
    asked.KeepTrusted(kept);
  }
}

void Subscriptions::FillIn(const Session& session, PartitionRead* read, Request* request) {
  for (TableRead& asked : read->tables) asked.subscribe = false;
  if (!read->subscribes()) return;
  request->tell = true;
  request->told_ack = session.notified();
  for (TableRead& asked : read->tables) {
    TableCache* const cache = asked.cache;
    if (!cache->config().sync().subscribes) continue;
    const uint64_t table = cache->schema().id();
    for (Key key : cache->left_subscribed()) left_[tables_->PartitionOf(*cache, key)][table].push_back(key);
    cache->left_subscribed().clear();
    TableRequest& t = *std::find_if(request->tables.begin(), request->tables.end(),
                                    [&](const TableRequest& each) { return each.table == table; });
    t.hold = asked.subscribe = read->op->training();
    Vector<Key>& left = left_[session.partition()][table];
    // Some have come back meanwhile.
    left.erase(std::remove_if(left.begin(), left.end(),
                              [&](Key key) {
                                const uint32_t line = cache->lines().Find(key);
                                return line != kNoRow && cache->subscribed(line);
                              }),
               left.end());
    std::sort(left.begin(), left.end());
    left.erase(std::unique(left.begin(), left.end()), left.end());
    t.dropped = std::move(left);
    left.clear();
  }
}

void Subscriptions::Reset(uint32_t partition) {
  for (const auto& [table, cache] : *tables_) {
    if (cache->config().checks != "told") continue;
    bool any = false;
    tables_->ForEachLine(cache.get(), partition, [&, c = cache.get()](uint32_t line) {
      if (!c->subscribed(line)) return;
      c->SetSubscribed(line, false);
      any = true;
    });
    cache->counters().told_resets += any;
  }
  left_[partition].clear();
}

void Subscriptions::Take(Session* session, const Reply& reply, const TableReply& answer, TableCache* cache,
                         ReplyRows* rows) {
  for (size_t i = 0; i < answer.told_keys.size(); ++i) {
    const Key key = answer.told_keys[i];
    const Clock clock = answer.told_clocks[i];
    const float* const row = rows->Next(clock);
    const uint32_t line = cache->lines().Find(key);
    if (line == kNoRow) {
      cache->left_subscribed().push_back(key);
      continue;
    }
    FillLine(cache, line, clock, row, &session->log(), reply.last_seq);
    cache->SetTight(line, TableReply::IsTight(answer.told_tight, i));
    if (reply.told != 0) cache->SetSubscribed(line, true);
    ++cache->counters().told_rows;
    ++cache->counters().update_pull;
  }
}

PartitionReadPtr Subscriptions::Unsubscribed(const PartitionRead& read) {
  PartitionReadPtr again;
  for (const TableRead& asked : read.tables) {
    TableRead doubtful{asked.cache};
    doubtful.fresh_until = asked.fresh_until;
    for (size_t i = 0; i < asked.trusted.size(); ++i) {
      const uint32_t line = asked.trusted[i];
      if (asked.IsThere(i) && !asked.cache->subscribed(line)) doubtful.Trust(line, read.op->ahead);
    }
    if (doubtful.trusted.empty()) continue;
    if (again == nullptr) again = std::make_shared<PartitionRead>();
    again->tables.push_back(std::move(doubtful));
  }
  return again;
}

void Subscriptions::RemoveTable(uint64_t table) {
  for (auto& tables : left_) tables.erase(table);
}

}  // namespace het
