#include "het_tf/core/client/exchange.h"

#include <algorithm>
#include <utility>

#include "het_tf/core/client/device_lines.h"
#include "het_tf/core/client/messages.h"
#include "het_tf/core/client/row_sink.h"
#include "het_tf/core/store/local_service.h"
#include "het_tf/core/store/partition.h"
#include "het_tf/core/wire/parts.h"

namespace het {

Exchange::Exchange(Transport* transport, const ClientConfig& config, const CachedTables* tables,
                   Subscriptions* subscriptions, Listener* listener)
    : transport_(transport),
      request_timeout_(config.request_timeout),
      trace_(config.trace),
      tables_(tables),
      subscriptions_(subscriptions),
      listener_(listener),
      base_id_{RandomId(), RandomId() << 32},
      jitter_(RandomId()) {
  session_config_.backoff = {config.first_backoff, config.max_backoff};
  session_config_.keep_applied = config.durability != Durability::kApplied;
  session_config_.most_read_bytes = config.max_read_bytes;
  session_config_.far_keys = config.far_keys;
  // Half of the time, since two machines measure it.
  session_config_.forgotten_after = kClientSeconds / 2.0;
  session_config_.new_id = [this] { return NewId(); };
  const ClientId id = NewId();
  for (uint32_t p = 0; p < transport_->partitions(); ++p) sessions_.emplace_back(p, id, &session_config_);
}

void Exchange::BeginCall() {
  call_.began = call_.moved_at = transport_->Now();
  call_.rejected = Status();
}

Status Exchange::fatal() const {
  for (const Session& session : sessions_) HET_RETURN_IF_ERROR(session.fatal());
  return Status();
}

bool Exchange::busy() const {
  return std::any_of(sessions_.begin(), sessions_.end(),
                     [](const Session& session) { return session.fatal().ok() && session.busy(); });
}

double Exchange::Due() const {
  const double now = transport_->Now();
  double due = request_timeout_;
  for (const Session& session : sessions_) {
    if (!session.fatal().ok()) continue;
    if (!session.outstanding().empty()) {
      // A time-out is looked at a few times: what it waits for may have moved.
      due = std::min(due, std::max(session.outstanding().front().sent_at + request_timeout_ - now,
                                   request_timeout_ / 8));
    } else if (session.busy()) {
      due = std::min(due, session.backoff().not_before() - now);
    }
  }
  return due;
}

void Exchange::Receive(double wait, bool expects) {
  if (events_.empty() && !transport_->Poll(0, &events_) && wait > 0) {
    double pause = wait;
    const double now = transport_->Now();
    for (const Session& session : sessions_) {
      expects = expects || !session.outstanding().empty();
      if (session.waits() || session.log().unapplied())
        pause = std::min(pause, std::max(1e-4, session.backoff().not_before() - now));
    }
    const TraceScope waiting(trace_, TraceKind::kWait);
    // Nothing is on its way: the wait is for a backoff to end.
    if (expects) {
      transport_->Poll(wait, &events_);
    } else {
      transport_->Sleep(pause);
    }
  }
  if (!events_.empty()) {
    const TraceScope handling(trace_, TraceKind::kAnswers);
    for (Transport::Event& event : events_) OnEvent(&event);
    events_.clear();
  }
  CheckTimeouts();
}

void Exchange::Recover() {
  events_.clear();
  for (Session& session : sessions_) {
    transport_->Reset(session.partition());
    Failed(&session, "out of memory", /*connection_lost=*/true);
  }
}

void Exchange::CheckTimeouts() {
  const double now = transport_->Now();
  for (Session& session : sessions_) {
    const auto& outstanding = session.outstanding();
    if (outstanding.empty() || now - outstanding.front().sent_at < request_timeout_) continue;
    // A large frame on a slow link takes its time: as long as bytes move, somebody is there.
    if (now - transport_->LastMoved(session.partition()) < request_timeout_) continue;
    // A late answer would be taken for the next request's: the connection goes with the request.
    transport_->Reset(session.partition());
    Failed(&session, "no answer, and no byte moved for " + Seconds(request_timeout_), true);
  }
}

void Exchange::Failed(Session* session, const std::string& reason, bool connection_lost) {
  call_.out_of_memory += reason == kStoreOutOfMemory;
  jitter_ = Mix64(jitter_ + 1);
  const double jitter = static_cast<double>(jitter_ >> 11) / static_cast<double>(uint64_t{1} << 53);
  for (PartitionReadPtr& read : session->OnFailure(reason, connection_lost, transport_->Now(), jitter))
    AskAgain(session, std::move(read));
}

void Exchange::AskAgain(Session* session, PartitionReadPtr read) {
  if (read == nullptr || !read->wanted()) return;
  for (TableRead& asked : read->tables) read->op->sink->Renew(&asked);
  session->Ask(std::move(read));
}

// --- events

void Exchange::OnEvent(Transport::Event* event) {
  Session* const session = &sessions_[event->partition];
  switch (event->kind) {
    case Transport::Event::kReply:
      return OnFrame(event);
    case Transport::Event::kClosed:
      return Failed(session, event->reason, true);
    case Transport::Event::kRefused:
    case Transport::Event::kRejected:
    case Transport::Event::kGone:
      return OnRefusal(session, *event);
    case Transport::Event::kReplicas:
    case Transport::Event::kUncounted:
      return listener_->OnReplicas(session, *event);
  }
}

// Requests of a partition that moves may be at two servers: the later one may be answered first.
void Exchange::OnRefusal(Session* session, const Transport::Event& event) {
  const auto& outstanding = session->outstanding();
  const Session::Outstanding* refused = session->Find(event.request_id);
  if (event.request_id == 0 && !outstanding.empty()) refused = &outstanding.front();
  if (refused != nullptr) {
    Session::Outstanding request = session->Take(refused);
    // A request from before this call may have been rejected for a reason that is gone by now: it is sent
    // again.
    if (event.kind != Transport::Event::kRefused && request.sent_at >= call_.began)
      Reject(FailedPrecondition(event.reason));
    AskAgain(session, std::move(request.read));
  }
  Failed(session, event.reason, false);
}

void Exchange::OnFrame(Transport::Event* event) {
  ReplyParts parts;
  Reply reply;
  Vector<TableBytes> tables;
  size_t bytes = 0;
  Session* const of_event = &sessions_[event->partition];
  const auto& asked = of_event->outstanding();
  const uint32_t oldest = asked.empty() ? 0 : asked.front().frame;  // answered next, mostly
  uint32_t frame = 0;  // that this answers; 0: not known yet, or none that still waits
  Status read = parts.Open(Span<const uint8_t>(event->bytes.data(), event->bytes.size()));
  while (read.ok() && !parts.done()) {
    read = parts.Next(&reply, &tables, &bytes);
    if (!read.ok() || reply.partition >= sessions_.size()) break;
    if (reply.status == FrameStatus::kBadFrame && reply.request_id == 0 && !asked.empty()) {
      // A server that cannot read a frame does not know whose it is: it was the oldest one.
      reply.partition = event->partition;
      reply.request_id = asked.front().request_id;
    }
    Session* const session = &sessions_[reply.partition];
    const Session::Outstanding* const request = session->Find(reply.request_id);
    if (request != nullptr) frame = request->frame;
    CountReply(request, reply, bytes, tables);
    if (reply.same_seq && request != nullptr) reply.last_seq = request->newest_seq;
    if (request != nullptr && !session->rings().Complete(&reply)) {
      transport_->Reset(session->partition());
      Failed(session, "a reply that does not fit its request", true);
      continue;
    }
    OnReply(session, request, reply);
  }
  if (read.ok() && parts.done()) {
    transport_->Recycle(std::move(event->bytes));
    return GiveUpFrame(frame, "a reply that does not fit its request");
  }
  const std::string reason = "a damaged reply: " + read.message();
  transport_->Reset(event->partition);
  Failed(of_event, reason, true);
  GiveUpFrame(frame != 0 ? frame : oldest, reason);
}

// Parts of a frame that were not answered with the others.
void Exchange::GiveUpFrame(uint32_t frame, const std::string& reason) {
  for (Session& session : sessions_) {
    const auto& outstanding = session.outstanding();
    if (std::any_of(outstanding.begin(), outstanding.end(),
                    [frame](const Session::Outstanding& request) { return request.frame == frame; })) {
      Failed(&session, reason, true);
    }
  }
}

void Exchange::CountReply(const Session::Outstanding* request, const Reply& reply, size_t bytes,
                          const Vector<TableBytes>& tables) const {
  size_t head = bytes;
  for (size_t i = 0; i < tables.size(); ++i) {
    head -= tables[i].all;
    TableCache* const cache = tables_->Find(reply.tables[i].table);
    if (cache == nullptr) continue;
    cache->counters().row_bytes_in += tables[i].rows;
    cache->counters().metadata_bytes_in += tables[i].all - tables[i].rows;
  }
  if (request == nullptr) return;
  TableCache* const first = tables_->Find(request->first_table);
  if (first == nullptr) return;
  first->counters().metadata_bytes_in += head;
  first->counters().head_bytes_in += head;
}

void Exchange::OnReply(Session* session, const Session::Outstanding* found, const Reply& reply) {
  if (found == nullptr) return;  // late or twice: its request was given up, or is answered
  const Session::Outstanding request = session->Take(found);
  const Verdict verdict = session->OnReply(request, reply, transport_->Now());
  Tell(session, verdict);
  Answer(session, request, reply, verdict);
  if (!verdict.failure.empty()) Failed(session, verdict.failure, false);
}

void Exchange::Tell(Session* session, const Verdict& verdict) {
  if (verdict.progress) call_.moved_at = transport_->Now();
  if (verdict.new_incarnation) listener_->OnNewIncarnation(session);
  for (const PartitionReadPtr& read : verdict.unanswered) AskAgain(session, read);
  if (verdict.lost + verdict.repaired > 0) listener_->OnLost(session, verdict.lost, verdict.repaired);
  if (verdict.new_identity) listener_->OnNewIdentity(session);
  for (const Verdict::Table& table : verdict.reloaded) listener_->OnReloaded(session, table);
  for (const Verdict::Table& table : verdict.gone) listener_->OnGone(session, table);
}

void Exchange::Answer(Session* session, const Session::Outstanding& request, const Reply& reply,
                      const Verdict& verdict) {
  ReadOp* const op = request.read == nullptr ? nullptr : request.read->op;
  switch (verdict.answer) {
    case Verdict::kNothing:
      return;
    case Verdict::kAskAgain:
      return AskAgain(session, request.read);
    case Verdict::kRows:
      if (Fits(reply, *request.read)) {
        call_.moved_at = transport_->Now();
        return listener_->OnRows(session, reply, request.read, request.subscribes);
      }
      AskAgain(session, request.read);
      transport_->Reset(session->partition());
      return Failed(session, "a reply that does not fit its request", true);
    case Verdict::kRefused: {
      const Status refused = FailedPrecondition("partition " + std::to_string(session->partition()) +
                                                " refuses this client: " + reply.message);
      // An early read is no trouble of the call that is running.
      const bool of_call = op == nullptr || !op->early || verdict.pushes_refused;
      if (session->fatal().ok() && of_call) Reject(refused);
      if (op == nullptr) return;
      op->error = refused;
      request.read->op = nullptr;
      return;
    }
  }
}

bool Exchange::Fits(const Reply& reply, const PartitionRead& read) const {
  for (const TableRead& asked : read.tables) {
    const TableSchema& schema = *asked.cache->schema();
    const TableReply* const t = reply.Of(schema.id());
    if (t == nullptr && asked.empty()) continue;
    if (t == nullptr || t->fetched_clocks.size() != asked.fetches.size()) return false;
    if (!t->rows.empty() && t->row_floats != schema.row_floats()) return false;
    const bool known = std::all_of(t->refreshed.begin(), t->refreshed.end(),
                                   [&](uint32_t position) { return position < asked.checks.size(); });
    if (!known) return false;
  }
  return true;
}

}  // namespace het
