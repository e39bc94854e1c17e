// What answers tell a client, and what follows for its caches.
#include <algorithm>
#include <utility>

#include "het_tf/core/client/client.h"

namespace het {

void Client::OnRows(Session* session, const Reply& reply, const PartitionReadPtr& read, bool notifies) {
  ReadOp* const op = read->op;
  if (notifies && (reply.told_reset || reply.told == 0)) subscriptions_.Reset(session->partition());
  for (const TableRead& asked : read->tables) {
    TableCache* const cache = asked.cache;
    const TableReply& t =
        *std::find_if(reply.tables.begin(), reply.tables.end(),
                      [&](const TableReply& each) { return each.table == cache->schema().id(); });
    ReplyRows rows(t);
    op->sink->Take(asked, {&session->log(), reply.last_seq, t, asked.subscribe && reply.told != 0}, &rows);
    if (cache->device() == nullptr) subscriptions_.Take(session, reply, t, cache, &rows);
    Counters& counters = cache->counters();
    counters.update_pull += t.refreshed.size();
    counters.miss_pull += asked.fetches.size();
    if (op->ahead) counters.prefetched += asked.fetches.size();
    for (size_t b = 0; b < t.lag_histogram.size(); ++b) counters.lag_histogram[b] += t.lag_histogram[b];
    for (size_t b = 0; b < t.hot_lags.size(); ++b) {
      counters.lag_histogram[b] += t.hot_lags[b];
      counters.hot_lags[b] += t.hot_lags[b];
    }
  }
  if (notifies) TakeNotifications(session, reply, read);
  for (const TableRead& asked : read->tables) LookAhead::SetFresh(asked);
  if (!read->wanted()) return;
  read->op = nullptr;
  --op->open_parts;
}

void Client::TakeNotifications(Session* session, const Reply& reply, const PartitionReadPtr& read) {
  // A push in the same frame may have named further tables.
  for (const TableReply& t : reply.tables) {
    TableCache* const cache = tables_.Find(t.table);
    const bool taken = std::any_of(read->tables.begin(), read->tables.end(),
                                   [&](const TableRead& asked) { return asked.cache == cache; });
    if (t.told_keys.empty() || taken || cache == nullptr) continue;
    ReplyRows rows(t);
    subscriptions_.Take(session, reply, t, cache, &rows);
  }
  session->SetNotified(reply.told);
  // Rows that were assumed to be subscribed and that the partition no longer tracks are checked
  // after all.
  PartitionReadPtr again = Subscriptions::Unsubscribed(*read);
  if (again == nullptr) return;
  ReadOp* const op = std::exchange(read->op, nullptr);
  again->op = op;
  std::replace(op->parts.begin(), op->parts.end(), read, again);
  if (op->ahead) ahead_.rows_on_way()->Remove(*read);  // what it fetched is here
  session->Ask(std::move(again));
}

void Client::OnNewIncarnation(Session* session) {
  device_reads_.AskAnew(session, /*answered_alone=*/false);
  for (const auto& [table, cache] : tables_) InvalidateBases(session, cache.get());
  durability_.ForgetQuestion(session->partition());
}

void Client::OnReloaded(Session* session, const Verdict::Table& table) {
  TableCache* const cache = tables_.Find(table.table);
  if (cache == nullptr) return;
  device_reads_.AskAnew(session, /*answered_alone=*/false);
  if (config_.on_reload == ClientConfig::kDiscard) {
    losses_.OnDiscarded(cache->schema().spec().name, Discard(session, cache, table.dropped_ticks));
  } else {
    InvalidateBases(session, cache);
  }
}

void Client::OnGone(Session* session, const Verdict::Table& table) {
  TableCache* const cache = tables_.Find(table.table);
  if (cache == nullptr) return;
  losses_.OnDiscarded(cache->schema().spec().name, Discard(session, cache, table.dropped_ticks));
}

void Client::OnReplicas(Session* session, const Transport::Event& event) {
  Status refused = durability_.OnReplicas(session, event);
  if (!refused.ok()) exchange_.Reject(std::move(refused));
}

void Client::InvalidateBases(Session* session, TableCache* cache) {
  if (cache->device() != nullptr) cache->device()->Invalidate(session->partition());
  tables_.ForEachLine(cache, session->partition(), [cache](uint32_t line) { cache->SetInvalid(line, true); });
}

// Rows of the partition go, with their updates; `dropped_ticks` went from its log.
uint64_t Client::Discard(Session* session, TableCache* cache, uint64_t dropped_ticks) {
  const uint32_t partition = session->partition();
  const uint64_t before = cache->counters().discarded_ticks;
  if (cache->device() != nullptr) cache->device()->Drop(partition);
  uint64_t discarded = dropped_ticks;
  tables_.ForEachLine(cache, partition, [&](uint32_t line) {
    cache->SetInvalid(line, true);  // the partition need not hear that it goes
    discarded += cache->Drop(line);
  });
  discarded += cache->DropQueued([&](Key key) { return tables_.PartitionOf(*cache, key) == partition; });
  cache->counters().discarded_ticks += discarded;
  return cache->counters().discarded_ticks - before;
}

}  // namespace het
