#include "het_tf/core/client/client_answers.h"

#include <utility>

#include "het_tf/core/client/row_sink.h"

namespace het {

void ClientAnswers::OnRows(Session* session, const Reply& reply, const PartitionReadPtr& read,
                           bool notifies) {
  ReadOp* const op = read->op;
  if (notifies) {
    to_.subscriptions->Take(session->partition(), reply);
    if (devices_ != nullptr) devices_->Notified(session->partition(), reply);
  }
  for (const TableRead& asked : read->tables) {
    TableCache* const cache = asked.cache;
    const TableReply nothing;
    const TableReply* const said = reply.Of(cache->schema()->id());
    const TableReply& t = said == nullptr ? nothing : *said;
    Counters& counters = cache->counters();
    ReplyRows rows(t);
    const bool subscribes = asked.subscribed_in && reply.notified != 0;
    const size_t absent =
        op->sink->Take(asked, {session->partition(), &session->log(), reply.last_seq, t, subscribes}, &rows);
    if (subscribes) cache->numbers().SetAnswered(session->partition(), *asked.subscribed_in);
    counters.update_pull += t.refreshed.size() + asked.fetches.size() - absent;
    counters.miss_pull += absent;
    for (size_t b = 0; b < t.lag_histogram.size(); ++b) counters.lag_histogram[b] += t.lag_histogram[b];
  }
  if (notifies) session->SetNotified(reply.notified);
  read->op = nullptr;
  if (op->open_parts > 0) --op->open_parts;
}

void ClientAnswers::OnNewIncarnation(Session* session) {
  if (devices_ != nullptr) devices_->AskAnew(session);
  for (const auto& [table, cache] : *to_.tables) InvalidateBases(session, cache.get());
  to_.durability->ForgetQuestion(session->partition());
}

void ClientAnswers::OnReloaded(Session* session, const Verdict::Table& table) {
  TableCache* const cache = to_.tables->Find(table.table);
  if (cache == nullptr) return;
  if (devices_ != nullptr) devices_->AskAnew(session);
  OnGone(session, table);
}

void ClientAnswers::OnGone(Session* session, const Verdict::Table& table) {
  TableCache* const cache = to_.tables->Find(table.table);
  if (cache == nullptr) return;
  to_.losses->OnDiscarded(cache->schema()->spec().name, Discard(session, cache, table.dropped_ticks));
}

void ClientAnswers::OnReplicas(Session* session, const Transport::Event& event) {
  Status refused = to_.durability->OnReplicas(session, event);
  if (!refused.ok()) to_.exchange->Reject(std::move(refused));
}

void ClientAnswers::InvalidateBases(Session* session, TableCache* cache) {
  to_.early->Disturb();
  if (cache->device() != nullptr) cache->device()->Invalidate(session->partition());
  to_.tables->ForEachLine(cache, session->partition(),
                          [cache](uint32_t line) { cache->marks().Invalidate(line); });
}

// Rows of the partition go, with their updates; `dropped_ticks` went from its log.
uint64_t ClientAnswers::Discard(Session* session, TableCache* cache, uint64_t dropped_ticks) {
  to_.early->Disturb();
  const uint32_t partition = session->partition();
  const uint64_t before = cache->counters().discarded_ticks;
  if (cache->device() != nullptr) cache->device()->Drop(partition);
  uint64_t discarded = dropped_ticks;
  to_.tables->ForEachLine(cache, partition, [&](uint32_t line) {
    cache->marks().Invalidate(line);  // the partition need not hear that it goes
    discarded += cache->Drop(line);
  });
  discarded +=
      cache->unsent().DropQueued([&](Key key) { return to_.tables->PartitionOf(*cache, key) == partition; });
  cache->counters().discarded_ticks += discarded;
  return cache->counters().discarded_ticks - before;
}

}  // namespace het
