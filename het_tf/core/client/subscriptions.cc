#include "het_tf/core/client/subscriptions.h"

#include <algorithm>
#include <utility>

#include "het_tf/core/client/device_lines.h"
#include "het_tf/core/client/row_sink.h"

namespace het {

namespace {

// Of questions, whose answers have no rows.
class QuestionSink : public RowSink {
 public:
  bool subscribes() const override { return true; }
  size_t Take(const TableRead&, const TableAnswer&, ReplyRows*) override { return 0; }
};

}  // namespace

Subscriptions::Subscriptions(const CachedTables* tables) : tables_(tables), left_(tables->partitions()) {
  questions_.early = true;
  questions_.sink = std::make_unique<QuestionSink>();
}

void Subscriptions::Ask(const PartitionReadPtr& question, Session* session) {
  auto& parts = questions_.parts;
  parts.erase(std::remove_if(parts.begin(), parts.end(), [](const auto& part) { return !part->wanted(); }),
              parts.end());
  parts.push_back(question);
  question->op = &questions_;
  session->Ask(question);
}

bool Subscriptions::asking() const {
  return std::any_of(questions_.parts.begin(), questions_.parts.end(),
                     [](const auto& part) { return part->wanted(); });
}

void Subscriptions::FillIn(const Session& session, PartitionRead* read, OutRequest* request) {
  for (TableRead& asked : read->tables) {
    TableCache* const cache = asked.cache;
    asked.subscribed_in.reset();
    if (!read->op->sink->subscribes() || !cache->policy().sync().subscribes) continue;
    // A push that rows have left with says what it knew. What is acknowledged late is named once more.
    const uint32_t knew = request->notified_ack;
    request->notified_ack = knew == 0 ? session.notified() : std::min(knew, session.notified());
    asked.subscribed_in = cache->numbers().newest();
    const uint64_t table = cache->schema()->id();
    for (Key key : cache->marks().left()) left_[tables_->PartitionOf(*cache, key)][table].push_back(key);
    cache->marks().left().clear();
    OutTableRequest& t = *std::find_if(request->tables.begin(), request->tables.end(),
                                       [&](const OutTableRequest& each) { return each.table == table; });
    t.subscribe = true;
    Vector<Key>& left = left_[session.partition()][table];
    // Some have come back meanwhile.
    left.erase(std::remove_if(left.begin(), left.end(),
                              [&](Key key) {
                                const uint32_t line = cache->lines().Find(key);
                                return line != kNoRow && cache->marks().subscribed(line);
                              }),
               left.end());
    std::sort(left.begin(), left.end());
    left.erase(std::unique(left.begin(), left.end()), left.end());
    t.dropped = std::move(left);
    left.clear();
  }
}

void Subscriptions::Take(uint32_t partition, const Reply& reply) {
  if (reply.ends_subscriptions()) Reset(partition);
  // A push in the same frame may have named further tables.
  for (const TableReply& t : reply.tables) {
    TableCache* const cache = tables_->Find(t.table);
    if (cache == nullptr) continue;
    if (cache->device() != nullptr) cache->device()->Moved(t.notified_keys);
    for (Key key : t.notified_keys) {
      const uint32_t line = cache->lines().Find(key);
      if (line != kNoRow) cache->marks().Notify(line);
    }
    cache->counters().notified_rows += t.notified_keys.size();
  }
}

void Subscriptions::Reset(uint32_t partition) {
  for (const auto& [table, cache] : *tables_) {
    if (cache->policy().config().checks == Checks::kAsked) continue;
    bool any = cache->device() != nullptr && cache->device()->Unsubscribe(partition);
    tables_->ForEachLine(cache.get(), partition, [&, c = cache.get()](uint32_t line) {
      if (!c->marks().subscribed(line)) return;
      c->marks().Unsubscribe(line);
      any = true;
    });
    cache->counters().subscription_resets += any;
  }
  left_[partition].clear();
}

void Subscriptions::RemoveTable(uint64_t table) {
  for (auto& tables : left_) tables.erase(table);
  questions_.Detach();
  questions_.parts.clear();
}

}  // namespace het
