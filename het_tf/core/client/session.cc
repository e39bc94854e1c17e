#include "het_tf/core/client/session.h"

#include <algorithm>
#include <utility>

namespace het {
uint64_t Session::Written(uint64_t* connection) const {
  *connection = sent_.written_on;
  return sent_.written;
}

// --- out

bool Session::Next(double now, Outgoing* next) {
  if (!fatal_.ok()) return false;
  while (waits() && !waiting_.front()->wanted()) waiting_.pop_front();
  const bool push = sent_.through + 1 < log_.next_seq() || resend_;
  if (!push && !waits()) return false;
  if (backoff_.not_before() > 0 && now < backoff_.not_before()) return false;
  if (resend_) {
    if (!outstanding_.empty()) return false;
    resend_ = false;
    fresh_ = true;
    rings_.Forget();
    sent_.through = log_.applied();
  }
  next->frame = log_.After(sent_.through);
  const bool last = next->frame == nullptr || next->frame->seq + 1 == log_.next_seq();
  next->read = last && waits() ? waiting_.front() : nullptr;
  return next->frame != nullptr || next->read != nullptr;
}

void Session::FillIn(const Outgoing& sending, OutRequest* request) const {
  request->client = client_;
  request->seq = sending.frame == nullptr ? 0 : sending.frame->seq;
  // A read must see every own push that was numbered before it: the last of them goes with it, or
  // has gone.
  request->after_seq = sending.read == nullptr ? request->seq : log_.next_seq() - 1;
  request->inc = known_.incarnation;
}

void Session::Sent(const Outgoing& sent, const OutRequest& request, uint32_t frame, double now,
                   uint64_t connection) {
  const bool first = sent.frame != nullptr && !WasSent(*sent.frame);
  outstanding_.push_back({request.request_id, frame, sent.read, now, fresh_,
                          request.tables.empty() ? 0 : request.tables[0].table, first ? request.seq : 0,
                          request.newest_seq(), connection, request.inc, request.client, request.subscribes(),
                          rings_.Sent(request)});
  fresh_ = false;
  if (sent.read != nullptr) waiting_.pop_front();
  if (sent.frame == nullptr) return;
  sent_.through = sent.frame->seq;
  sent_.ever = std::max(sent_.ever, sent.frame->seq);
}

// --- in

const Session::Outstanding* Session::Find(uint32_t request_id) const {
  const auto found = std::find_if(outstanding_.begin(), outstanding_.end(), [&](const Outstanding& request) {
    return request.request_id == request_id;
  });
  return found == outstanding_.end() ? nullptr : &*found;
}

Session::Outstanding Session::Take(const Outstanding* request) {
  const auto at = std::find_if(outstanding_.begin(), outstanding_.end(),
                               [&](const Outstanding& each) { return &each == request; });
  Outstanding taken = std::move(*at);
  rings_.Taken(taken.request_id);
  outstanding_.erase(at);
  return taken;
}

// An answer of an earlier incarnation is late, unless nothing else was in flight: then the partition has
// moved to another server and back.
bool Session::Late(const Outstanding& request, uint64_t incarnation) const {
  return known_.past.count(incarnation) != 0 && !request.after_silence;
}

Verdict Session::OnReply(const Outstanding& request, const Reply& reply, double now) {
  Verdict verdict;
  verdict.answer = Verdict::kAskAgain;
  if (reply.status == FrameStatus::kElsewhere) alone_ = resend_ = true;
  if (reply.status == FrameStatus::kBusy) verdict.failure = reply.message;
  const bool of_partition = reply.status != FrameStatus::kElsewhere && reply.status != FrameStatus::kBusy;
  if (!of_partition) return verdict;
  // The answer to an unreadable frame has no incarnation.
  const uint64_t incarnation = reply.status == FrameStatus::kBadFrame ? known_.incarnation
                               : reply.same_inc                       ? request.incarnation
                                                                      : reply.inc;
  // The answer is about the frames of an identity that was given up.
  if (!(request.client == client_)) return verdict;
  if (Late(request, incarnation)) {
    resend_ = true;  // the partition is asked once more to find out
    return verdict;
  }
  if (incarnation != known_.incarnation) {
    const uint64_t before = std::exchange(known_.incarnation, incarnation);
    if (before != 0) {
      known_.past.erase(incarnation);
      known_.past.insert(before);
      OnNewIncarnation(reply.last_seq, now, &verdict);
      return verdict;
    }
  }
  switch (reply.status) {
    case FrameStatus::kOk:
      verdict.answer = OnOk(request, reply, now, &verdict);
      return verdict;
    case FrameStatus::kGap:
      if (reply.last_seq >= log_.applied() || !request.after_silence) break;
      // Nothing else was on its way, and still the partition, which has lived on, does not know what
      // it acknowledged. It has forgotten this client: after days without a push, or because rows
      // were loaded, of which the epoch tells. Or it was loaded to an earlier state of this client.
      reply.last_seq == 0 ? OnForgotten(&verdict) : OnNewIncarnation(reply.last_seq, now, &verdict);
      return verdict;
    case FrameStatus::kEpoch:
      Acknowledge(reply.last_seq, now, &verdict);  // what was applied is not discarded
      if (!OnEpochs(reply, &verdict) && request.relies && !resend_) rings_.Accepted(false);
      break;
    case FrameStatus::kOutOfMemory:
      verdict.failure = kStoreOutOfMemory;
      break;
    case FrameStatus::kNoTable:
      Acknowledge(reply.last_seq, now, &verdict);
      OnGone(reply, &verdict);
      verdict.answer = Verdict::kRefused;
      break;
    case FrameStatus::kElsewhere:
    case FrameStatus::kBusy:
    case FrameStatus::kWrongPartition:
    case FrameStatus::kBadFrame:
      fatal_ = FailedPrecondition("partition " + std::to_string(partition_) +
                                  " refuses this client: " + reply.message);
      verdict.answer = Verdict::kRefused;
      return verdict;
  }
  Acknowledge(reply.last_seq, now, &verdict);
  resend_ = true;
  return verdict;
}

Verdict::Answer Session::OnOk(const Outstanding& request, const Reply& reply, double now, Verdict* verdict) {
  backoff_.Succeeded();
  if (request.relies) rings_.Accepted(true);
  const bool late = reply.last_seq < log_.applied();
  Acknowledge(reply.last_seq, now, verdict);
  if (request.first_push != 0 && reply.last_seq >= request.first_push) {
    sent_.written = request.first_push;
    sent_.written_on = request.connection;
  }
  if (request.read == nullptr || !request.read->wanted()) return Verdict::kNothing;
  // An answer from before frames that are no longer kept cannot be brought up to date.
  if (late && reply.last_seq < log_.durable()) return Verdict::kAskAgain;
  // Older than what was taken in already: it would take rows back.
  const bool old = request.subscribes && !reply.subscription_reset && reply.notified <= known_.notified;
  return old ? Verdict::kAskAgain : Verdict::kRows;
}

void Session::Acknowledge(uint64_t last_seq, double now, Verdict* verdict) {
  if (log_.Acknowledge(last_seq)) {
    sent_.applied_at = now;
    verdict->progress = true;
  }
  sent_.through = std::max(sent_.through, log_.applied());
  if (!config_->keep_applied) log_.ForgetThrough(log_.applied());
}

void Session::OnNewIncarnation(uint64_t last_seq, double now, Verdict* verdict) {
  verdict->new_incarnation = true;
  for (Outstanding& request : outstanding_) {
    if (request.read != nullptr) verdict->unanswered.push_back(std::exchange(request.read, nullptr));
  }
  known_.notified = 0;  // every row becomes invalid, and invalid ones are not subscribed
  resend_ = true;
  sent_.written = 0;  // what another incarnation had written says nothing about this one's replicas
  if (last_seq >= log_.applied()) return Acknowledge(last_seq, now, verdict);
  if (last_seq == 0 && now - sent_.applied_at >= config_->forgotten_after) return OnForgotten(verdict);
  const uint64_t kept_after = std::max(last_seq, log_.durable());
  verdict->lost = kept_after - last_seq;
  verdict->repaired = log_.applied() - kept_after;
  if (kept_after == last_seq) {
    log_.Rewind(last_seq);
  } else {  // the partition would see a gap: what is left goes on as a new client's
    Renumber();
    verdict->new_identity = true;
  }
}

// The partition has what it acknowledged, but no longer knows from whom: sent again, kept frames
// would count twice.
void Session::OnForgotten(Verdict* verdict) {
  log_.ForgetThrough(log_.applied());
  Renumber();
  verdict->new_identity = true;
  resend_ = true;
}

bool Session::OnEpochs(const Reply& reply, Verdict* verdict) {
  bool other = false;
  for (const TableReply& t : reply.tables) {
    const uint64_t before = std::exchange(known_.epochs[t.table], t.epoch);
    other = other || before != t.epoch;
    if (before == 0 || before == t.epoch) continue;
    verdict->reloaded.push_back({t.table, log_.DropUnapplied(t.table)});
  }
  return other;
}

void Session::OnGone(const Reply& reply, Verdict* verdict) {
  verdict->pushes_refused = log_.unapplied();
  for (const TableReply& t : reply.tables) {
    verdict->gone.push_back({t.table, log_.DropUnapplied(t.table)});
    known_.epochs.erase(t.table);
  }
}

std::vector<PartitionReadPtr> Session::OnFailure(const std::string& reason, bool connection_lost, double now,
                                                 double jitter) {
  backoff_.Failed(config_->backoff, now, reason, jitter);
  resend_ = true;
  alone_ = false;
  std::vector<PartitionReadPtr> unanswered;
  if (!connection_lost) return unanswered;
  for (Outstanding& request : outstanding_) {
    if (request.read != nullptr) unanswered.push_back(std::move(request.read));
  }
  outstanding_.clear();
  return unanswered;
}

void Session::Renumber() {
  client_ = config_->new_id();
  const uint64_t unsent = log_.next_seq() - 1 - sent_.ever;
  log_.Renumber();
  sent_.ever = log_.next_seq() - 1 - std::min(unsent, log_.next_seq() - 1);
  sent_.through = 0;
  sent_.written = 0;
  sent_.written_on = 0;
  known_.notified = 0;
}

void Session::StartOver() {
  log_.Clear();
  Renumber();
}

}  // namespace het
