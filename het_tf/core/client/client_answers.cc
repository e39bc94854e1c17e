// What answers tell a client, and what follows for its caches.
#include <algorithm>
#include <utility>

#include "het_tf/core/client/client.h"

namespace het {

void Client::OnRows(Session* session, const Reply& reply, const PartitionReadPtr& read, bool notifies) {
  ReadOp* const op = read->op;
  if (notifies) subscriptions_.Take(session->partition(), reply);
  for (const TableRead& asked : read->tables) {
    TableCache* const cache = asked.cache;
    const TableReply nothing;
    const TableReply* const said = reply.Of(cache->schema().id());
    const TableReply& t = said == nullptr ? nothing : *said;
    Counters& counters = cache->counters();
    ReplyRows rows(t);
    const bool subscribes = asked.subscribed_in && reply.told != 0;
    const size_t absent =
        op->sink->Take(asked, {session->partition(), &session->log(), reply.last_seq, t, subscribes}, &rows);
    if (subscribes) cache->SetAnswered(session->partition(), *asked.subscribed_in);
    counters.update_pull += t.refreshed.size() + asked.fetches.size() - absent;
    counters.miss_pull += absent;
    for (size_t b = 0; b < t.lag_histogram.size(); ++b) counters.lag_histogram[b] += t.lag_histogram[b];
  }
  if (notifies) session->SetNotified(reply.told);
  read->op = nullptr;
  if (op->open_parts > 0) --op->open_parts;
}

void Client::OnNewIncarnation(Session* session) {
  device_reads_.AskAnew(session);
  for (const auto& [table, cache] : tables_) InvalidateBases(session, cache.get());
  durability_.ForgetQuestion(session->partition());
}

void Client::OnReloaded(Session* session, const Verdict::Table& table) {
  TableCache* const cache = tables_.Find(table.table);
  if (cache == nullptr) return;
  device_reads_.AskAnew(session);
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
  early_.Disturb();
  if (cache->device() != nullptr) cache->device()->Invalidate(session->partition());
  tables_.ForEachLine(cache, session->partition(), [cache](uint32_t line) { cache->SetInvalid(line, true); });
}

// Rows of the partition go, with their updates; `dropped_ticks` went from its log.
uint64_t Client::Discard(Session* session, TableCache* cache, uint64_t dropped_ticks) {
  early_.Disturb();
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
