#include "het_tf/core/client/push_durability.h"

#include <algorithm>

#include "het_tf/core/client/messages.h"

namespace het {
namespace {

constexpr double kWaitSeconds = 0.02;
constexpr double kLongestPause = 1;

}  // namespace

PushDurability::PushDurability(Transport* transport, const ClientConfig* config, const CachedTables* tables,
                               std::deque<Session>* sessions, PushBuilder* pushes)
    : transport_(transport),
      config_(config),
      tables_(tables),
      sessions_(sessions),
      pushes_(pushes),
      replicas_(sessions->size()) {}

void PushDurability::MarkDurable() {
  for (Session& session : *sessions_) session.log().ForgetThrough(session.log().applied());
  dropped_ = false;
}

// --- room

size_t PushDurability::KeptBytes() const {
  size_t sum = 0;
  for (const Session& session : *sessions_) sum += session.log().kept_bytes();
  return sum;
}

bool PushDurability::MustWait() const { return replicated() && KeptBytes() > config_->keep_bytes; }

void PushDurability::ForgetOldest() {
  if (config_->durability != Durability::kCheckpoint || KeptBytes() <= config_->keep_bytes) return;
  uint64_t dropped = 0;
  for (size_t kept = KeptBytes(); kept > config_->keep_bytes; kept = KeptBytes()) {
    PushLog* oldest = nullptr;
    for (Session& session : *sessions_) {
      PushLog& log = session.log();
      if (log.keeps() && (oldest == nullptr || log.frames().front().number < oldest->frames().front().number))
        oldest = &log;
    }
    oldest->ForgetThrough(oldest->frames().front().seq);
    ++dropped;
  }
  if (!tables_->empty()) tables_->begin()->second->counters().dropped_pushes += dropped;
  if (!dropped_ && config_->notice) {
    config_->notice(
        "pushes since the last checkpoint take more than " + std::to_string(config_->keep_bytes / 1000000) +
        " MB: the oldest are forgotten from here on, and cannot be sent again should a server lose "
        "them. Save more often, or raise het_tf.Store(keep_bytes=...)");
  }
  dropped_ = true;
}

// --- replicas

void PushDurability::AskReplicas() {
  const double now = transport_->Now();
  if (!replicated() || now < ask_at_) return;
  std::vector<Transport::Mark> marks;
  for (Session& session : *sessions_) {
    if (!session.log().keeps() || !session.fatal().ok()) continue;
    Replicas& replicas = replicas_[session.partition()];
    ask_at_ = now + std::max(config_->replica_interval, pause_);
    const uint64_t connection = transport_->Connection(session.partition());
    if (replicas.asked_on != 0 && replicas.asked_on == connection) continue;  // no answer yet
    replicas.asked_on = 0;
    uint64_t written_on = 0;
    const uint64_t written = session.Written(&written_on);
    if (written > session.log().durable() && written_on == connection && connection != 0) {
      marks.push_back({session.partition(), written});
      replicas.asked = written;
      replicas.asked_on = connection;
    } else if (!session.log().unapplied()) {
      pushes_->NewFrame(session.partition());
    }
  }
  if (!marks.empty()) transport_->AskReplicas(marks, config_->min_replicas, kWaitSeconds);
}

std::string PushDurability::With(uint32_t replicas) const {
  return "pushes are with " + std::to_string(replicas) + " of " + std::to_string(config_->min_replicas) +
         " replicas";
}

Status PushDurability::OnReplicas(Session* session, const Transport::Event& event) {
  Replicas& replicas = replicas_[session->partition()];
  if (event.kind == Transport::Event::kUncounted) {
    replicas.asked_on = 0;
    pause_ = kLongestPause;
    return FailedPrecondition(event.reason +
                              "; durability='replicated' asks servers for replicas with WAIT: grant it");
  }
  // About another connection, or another incarnation of the partition; 0 on both sides is no
  // connection.
  if (replicas.asked_on == 0 || replicas.asked != event.seq ||
      replicas.asked_on != transport_->Connection(session->partition()))
    return Status();
  replicas.asked_on = 0;
  replicas.count = event.replicas;
  const double now = transport_->Now();
  if (event.replicas >= config_->min_replicas) {
    session->log().ForgetThrough(event.seq);
    replicas.few_since = 0;
    if (std::any_of(replicas_.begin(), replicas_.end(),
                    [](const Replicas& each) { return each.few_since > 0; }))
      return Status();
    pause_ = 0;
    few_told_ = false;
    return Status();
  }
  pause_ = std::min(kLongestPause, 2 * std::max({pause_, config_->replica_interval, kWaitSeconds}));
  if (replicas.few_since == 0) replicas.few_since = now;
  if (few_told_ || now < replicas.few_since + kNoticeSeconds || !config_->notice) return Status();
  few_told_ = true;
  config_->notice("partition " + std::to_string(session->partition()) + " at " +
                  transport_->Where(session->partition()) + ": " + With(event.replicas) + ", since " +
                  Seconds(now - replicas.few_since) + "; they are kept here, up to " +
                  std::to_string(config_->keep_bytes / 1000000) + " MB. Check the replicas");
  return Status();
}

bool PushDurability::expects_answers() const {
  return std::any_of(replicas_.begin(), replicas_.end(),
                     [](const Replicas& each) { return each.asked_on != 0; });
}

bool PushDurability::WaitsForReplicas(const Session& session, std::string* why, double* since) const {
  if (!replicated() || !session.log().keeps()) return false;
  const Replicas& replicas = replicas_[session.partition()];
  *why = With(replicas.count);
  *since = replicas.few_since > 0 ? replicas.few_since : transport_->Now();
  return true;
}

bool PushDurability::busy() const {
  return replicated() && std::any_of(sessions_->begin(), sessions_->end(), [](const Session& session) {
           return session.fatal().ok() && session.log().keeps();
         });
}

double PushDurability::Due() const {
  const double most = config_->request_timeout;
  return busy() ? std::min(most, ask_at_ - transport_->Now()) : most;
}

}  // namespace het
