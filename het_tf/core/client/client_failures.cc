// What a client does when a partition refuses, forgets, or comes to life again.
#include <algorithm>
#include <utility>

#include "het_tf/core/client/client.h"
#include "het_tf/core/store/partition.h"

namespace het {
namespace {

// A partition that does not know a client which was silent for so long has forgotten it. Half of the time,
// since two machines measure it.
constexpr double kForgottenSeconds = kClientSeconds / 2;

}  // namespace

void Client::Acknowledge(Link* link, uint64_t last_seq) {
  if (link->log.Acknowledge(last_seq)) progress_at_ = link->applied_at = transport_->Now();
  link->sent_through = std::max(link->sent_through, link->log.applied());
  if (config_.durability == Durability::kApplied) link->log.ForgetThrough(link->log.applied());
}

void Client::Reborn(Link* link, uint64_t last_seq) {
  AskAnew(link, /*answered_alone=*/false);
  link->told = 0;  // every line becomes invalid, and invalid ones are not held
  for (auto& [table, cache] : caches_) {
    if (DeviceLines* lines = LinesOf(*cache)) lines->Invalidate(link->partition);
    cache->ForEachLine([&, c = cache.get()](uint32_t line) {
      if (LinkOf(*c, c->lines().meta(line).key) == link) c->SetInvalid(line, true);
    });
  }
  // Answers that are still owed are about the old bases.
  for (Link::Outstanding& request : link->outstanding) Requeue(link, std::exchange(request.part, nullptr));
  link->resend = true;
  link->written = link->asked_on = 0;  // what the old life had written says nothing about this one's replicas
  if (last_seq >= link->log.applied()) return Acknowledge(link, last_seq);
  if (last_seq == 0 && transport_->Now() - link->applied_at >= kForgottenSeconds) return Forgotten(link);
  const uint64_t kept_after = std::max(last_seq, link->log.durable());
  Lost(link, kept_after - last_seq, link->log.applied() - kept_after);
  if (kept_after == last_seq) {
    link->log.Rewind(last_seq);
  } else {  // the partition would see a gap: what is left goes on as a new client's
    link->Renumber(NewId());
  }
}

// The partition has what it acknowledged, but no longer knows from whom: sent again, kept frames would count
// twice.
void Client::Forgotten(Link* link) {
  link->log.ForgetThrough(link->log.applied());
  link->Renumber(NewId());
  link->resend = true;
}

void Client::DropTablePart(Link* link, TableCache* cache) {
  if (DeviceLines* lines = LinesOf(*cache)) lines->Drop(link->partition);
  uint64_t discarded = 0;
  auto of_link = [&](Key key) { return LinkOf(*cache, key) == link; };
  cache->ForEachLine([&](uint32_t line) {
    if (!of_link(cache->lines().meta(line).key)) return;
    cache->SetInvalid(line, true);  // the partition need not hear that it goes
    discarded += cache->Drop(line);
  });
  discarded += cache->DropQueued(of_link);
  discarded += link->log.DropUnapplied(cache->schema().id());
  cache->counters().discarded_ticks += discarded;
}

void Client::NewEpoch(Link* link, TableCache* cache, uint64_t epoch) {
  const auto known = link->epochs.find(cache->schema().id());
  if (known == link->epochs.end()) {
    link->epochs[cache->schema().id()] = epoch;
    return;
  }
  if (known->second == epoch) return;
  known->second = epoch;
  AskAnew(link, /*answered_alone=*/false);
  if (config_.on_reload == ClientConfig::kDiscard) return DropTablePart(link, cache);
  if (DeviceLines* lines = LinesOf(*cache)) lines->Invalidate(link->partition);
  cache->ForEachLine([&](uint32_t line) {
    if (LinkOf(*cache, cache->lines().meta(line).key) == link) cache->SetInvalid(line, true);
  });
}

void Client::Failed(Link* link, const std::string& reason, bool connection_lost) {
  const double now = transport_->Now();
  out_of_memory_ += reason == kStoreOutOfMemory;
  if (link->failures == 0) link->failing_since = now;
  const double backoff =
      std::min(config_.max_backoff,
               config_.first_backoff * static_cast<double>(1u << std::min<size_t>(link->failures, 10)));
  ++link->failures;
  // Between half and all of it, so that clients that failed together do not come back together.
  jitter_ = Mix64(jitter_ + 1);
  link->not_before =
      now + backoff * (0.5 + static_cast<double>(jitter_ >> 12) / static_cast<double>(uint64_t{1} << 53));
  link->last_failure = reason;
  link->resend = true;
  link->alone = false;
  if (!connection_lost) return;
  std::deque<Link::Outstanding> lost;
  lost.swap(link->outstanding);
  for (Link::Outstanding& request : lost) Requeue(link, std::move(request.part));
}

// The part is asked again; what was to be checked and has become invalid meanwhile is fetched.
void Client::Requeue(Link* link, ReadPartPtr part) {
  if (part == nullptr || part->op == nullptr) return;
  for (ReadPart::Section& section : part->sections) {
    if (section.device != nullptr) continue;  // AskAnew sees to them
    size_t kept = 0;
    for (size_t i = 0; i < section.checks.size(); ++i) {
      const uint32_t line = section.cache->lines().Find(section.checks[i]);
      if (line == kNoRow || section.cache->invalid(line)) {
        section.fetches.push_back(section.checks[i]);
        continue;
      }
      section.checks[kept] = section.checks[i];
      section.clocks[kept++] = section.cache->base(line);
    }
    section.checks.resize(kept);
    section.clocks.resize(kept);
  }
  link->waiting.push_back(std::move(part));
}

void Client::Fail(ReadPart* part, Status status) {
  if (part->op == nullptr) return;
  part->op->error = std::move(status);
  part->op = nullptr;
}

}  // namespace het
