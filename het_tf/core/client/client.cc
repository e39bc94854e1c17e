#include "het_tf/core/client/client.h"

#include <algorithm>
#include <utility>

namespace het {

Client::Client(Transport* transport, ClientConfig config)
    : config_(std::move(config)),
      tables_(transport->partitions(), transport->id(0).hash_seed, config_.seed),
      subscriptions_(&tables_),
      exchange_(transport, config_, &tables_, &subscriptions_, &answers_),
      pushes_(&tables_, &exchange_.sessions(), config_.max_frame_bytes),
      durability_(transport, &config_, &tables_, &exchange_.sessions(), &pushes_),
      losses_(transport, &config_, &tables_),
      waiter_(transport, &config_, &exchange_, &durability_, [this](double wait) { Progress(wait); }),
      reader_(&tables_, &exchange_, &subscriptions_, &waiter_),
      writer_(&tables_, &exchange_, &pushes_, &reader_, &waiter_, config_.trace),
      answers_({&config_, &tables_, &subscriptions_, &exchange_, &durability_, &losses_, &early_}) {}

// --- tables

Status Client::AddTable(const Schema& schema, const CacheConfig& config) {
  tables_.Add(schema, config);
  return Status();
}

void Client::RemoveTable(uint64_t table) {
  if (!HasTable(table)) return;
  ForgetTable(table);
  for (Session& session : exchange_.sessions()) session.log().RemoveTable(table);
  subscriptions_.RemoveTable(table);
  tables_.Remove(table);
}

void Client::Invalidate(uint64_t table, Span<const Key> keys) {
  early_.DropAll();
  TableCache& cache = tables_.at(table);
  if (cache.device() != nullptr) cache.device()->DropKeys(keys);
  for (Key key : keys) {
    const uint32_t line = cache.lines().Find(key);
    if (line != kNoRow) cache.Drop(line);
    cache.unsent().DropQueued([key](Key queued) { return queued == key; });
  }
}

void Client::ForgetTable(uint64_t table) {
  early_.DropAll();
  for (Session& session : exchange_.sessions()) {
    answers_.Discard(&session, &tables_.at(table), session.log().DropUnapplied(table));
    session.epochs().erase(table);
  }
}

void Client::ForgetClean() {
  early_.DropAll();
  for (const auto& [table, held] : tables_) {
    TableCache* const cache = held.get();
    if (cache->device() != nullptr) cache->device()->DropClean();
    cache->lines().ForEach([cache](uint32_t line) {
      if (!cache->unsent().Any(line)) cache->Drop(line);
    });
  }
}

void Client::Reload() {
  uint64_t discarded = 0;
  for (const auto& [table, cache] : tables_) {
    discarded -= cache->counters().discarded_ticks;
    ForgetTable(table);
    discarded += cache->counters().discarded_ticks;
  }
  for (Session& session : exchange_.sessions()) {
    session.StartOver();
    durability_.ForgetQuestion(session.partition());
  }
  if (discarded == 0 || !config_.notice) return;
  config_.notice("tables are being loaded: " + std::to_string(discarded) +
                 " updates that had not been sent were discarded. Flush before a restore to keep them");
}

// --- read

Status Client::Read(CachedRead* read, uint64_t step) {
  // Received rows need no wait and no check.
  if (early_.busy() || subscriptions_.asking()) Progress(0);
  std::unique_ptr<ReadOp> op = early_.Take(step);
  if (op != nullptr) {
    op->read = read;
  } else {
    op = BeginRead(read, step);
  }
  if (op->done() && subscriptions_.asking()) Progress(0);  // a question is answered while the step computes
  return FinishRead(op.get());
}

void Client::ReadEarly(CachedRead* read, uint64_t step) {
  early_.Add(step, BeginRead(read, step));
  Progress(0);
}

void Client::SetNextUse(uint64_t table, Key key, uint64_t hash, uint32_t planned) {
  TableCache* const cache = tables_.Find(table);
  const uint32_t line = cache == nullptr ? kNoRow : cache->lines().Find(key, hash);
  if (line != kNoRow) cache->policy().SetNextUse(line, planned);
}

// --- write

Status Client::PushPastBound() {
  pushes_.All(/*whole=*/false);
  return waiter_.UntilApplied(UINT64_MAX, "a push");
}

Status Client::Flush() {
  pushes_.All(/*whole=*/true);
  const Status status = waiter_.UntilApplied(UINT64_MAX, "a flush");
  losses_.Tell(/*now=*/true);
  return status;
}

// --- progress

void Client::Progress(double wait) {
  if (std::exchange(interrupted_, true)) {
    early_.DropAll();
    exchange_.Recover();
  }
  if (PastAge()) pushes_.PastAge(exchange_.Now());
  durability_.AskReplicas();
  exchange_.Pump();
  exchange_.Receive(wait, durability_.expects_answers());
  exchange_.Pump();
  losses_.Tell(/*now=*/false);
  interrupted_ = false;
}

double Client::Due() const {
  const double age = pushes_.age_due() - exchange_.Now();
  return std::max(std::min({exchange_.Due(), durability_.Due(), losses_.Due(), age}), 1e-3);
}

}  // namespace het
