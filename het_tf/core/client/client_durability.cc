// How long applied frames are kept, and what is told when a server has lost some.
//
// kReplicated. Redis' WAIT counts the replicas that hold the writes *of its own connection*, and holds up
// that connection's later answers until there are enough of them or its time is over. So:
//   * one WAIT for a connection at a time, at most every replica_interval, over all of its partitions. One
//     behind every push would cost each step a round trip of the replica; one in 0.1 s is not to be measured
//     (docs/parameter-server.md has the figures);
//   * it waits kWaitSeconds at most, and while there are too few replicas it comes ever rarer, once a second
//   at
//     last: a replica that hangs takes 2 % of the time;
//   * it vouches for pushes that this very connection wrote: those that were applied when they were sent for
//     the first time. After a reconnect there may be none: then an empty push is sent, which is written
//     behind all that the partition has.
// kCheckpoint. MarkDurable forgets what is applied. Nobody would call it while a step waits for it: so when
// keep_bytes are full the oldest frames are forgotten, counted (dropped_pushes) and told once.
#include <algorithm>

#include "het_tf/core/client/client.h"

namespace het {
namespace {

constexpr double kWaitSeconds = 0.02;
constexpr double kLongestPause = 1;

}  // namespace

void Client::MarkDurable() {
  for (Link& link : links_) link.log.ForgetThrough(link.log.applied());
  dropped_ = false;
}

void Client::AskReplicas() {
  const double now = transport_->Now();
  if (now < ask_at_) return;
  std::vector<Transport::Mark> marks;
  for (Link& link : links_) {
    if (!link.log.keeps() || !link.fatal.ok()) continue;
    ask_at_ = now + std::max(config_.replica_interval, ask_pause_);
    const uint64_t connection = transport_->Connection(link.partition);
    if (link.asked_on != 0 && link.asked_on == connection) continue;  // no answer yet
    link.asked_on = 0;
    if (link.written > link.log.durable() && link.written_on == connection && connection != 0) {
      marks.push_back({link.partition, link.written});
      link.asked = link.written;
      link.asked_on = connection;
    } else if (!link.log.unapplied()) {
      NewFrame(&link);
    }
  }
  if (!marks.empty()) transport_->AskReplicas(marks, config_.min_replicas, kWaitSeconds);
}

void Client::HandleReplicas(Link* link, const Transport::Event& event) {
  if (event.kind == Transport::Event::kUncounted) {
    link->asked_on = 0;
    ask_pause_ = kLongestPause;
    rejected_ = FailedPrecondition(event.reason +
                                   "; durability='replicated' asks servers for replicas with WAIT: grant it");
    return;
  }
  // About another connection, or another life of the partition; 0 on both sides is no connection.
  if (link->asked_on == 0 || link->asked != event.seq ||
      link->asked_on != transport_->Connection(link->partition))
    return;
  link->asked_on = 0;
  link->replicas = event.replicas;
  const double now = transport_->Now();
  if (event.replicas >= config_.min_replicas) {
    link->log.ForgetThrough(event.seq);
    link->few_since = 0;
    if (std::any_of(links_.begin(), links_.end(), [](const Link& l) { return l.few_since > 0; })) return;
    ask_pause_ = 0;
    few_told_ = false;
    return;
  }
  ask_pause_ = std::min(kLongestPause, 2 * std::max({ask_pause_, config_.replica_interval, kWaitSeconds}));
  if (link->few_since == 0) link->few_since = now;
  if (few_told_ || now < link->few_since + kNoticeSeconds || !config_.notice) return;
  few_told_ = true;
  config_.notice("partition " + std::to_string(link->partition) + " at " +
                 transport_->Where(link->partition) + ": pushes are with " + std::to_string(event.replicas) +
                 " of " + std::to_string(config_.min_replicas) + " replicas, since " +
                 Seconds(now - link->few_since) + "; they are kept here, up to " +
                 std::to_string(config_.keep_bytes >> 20) + " MB. Check the replicas");
}

size_t Client::KeptBytes() const {
  size_t sum = 0;
  for (const Link& link : links_) sum += link.log.kept_bytes();
  return sum;
}

Status Client::MakeRoomForKept() {
  if (config_.durability == Durability::kApplied || KeptBytes() <= config_.keep_bytes) return Status();
  if (config_.durability == Durability::kReplicated) {
    return Wait([this] { return KeptBytes() <= config_.keep_bytes; }, "replicas",
                "Bring the replicas back, or raise het_tf.init(keep_bytes=...)");
  }
  uint64_t dropped = 0;
  for (size_t kept = KeptBytes(); kept > config_.keep_bytes; kept = KeptBytes()) {
    Link* oldest = nullptr;
    for (Link& link : links_) {
      if (link.log.keeps() &&
          (oldest == nullptr || link.log.frames().front().number < oldest->log.frames().front().number))
        oldest = &link;
    }
    oldest->log.ForgetThrough(oldest->log.frames().front().seq);
    ++dropped;
  }
  if (!caches_.empty()) caches_.begin()->second->counters().dropped_pushes += dropped;
  if (!dropped_ && config_.notice) {
    config_.notice(
        "pushes since the last checkpoint take more than " + std::to_string(config_.keep_bytes >> 20) +
        " MB: the oldest are forgotten from here on, and cannot be sent again should a server lose "
        "them. Save more often, or raise het_tf.init(keep_bytes=...)");
  }
  dropped_ = true;
  return Status();
}

void Client::Lost(Link* link, uint64_t lost, uint64_t repaired) {
  if (!caches_.empty()) {
    Counters& counters = caches_.begin()->second->counters();
    counters.lost_pushes += lost;
    counters.repaired += repaired;
  }
  if (loss_.partitions.empty()) loss_.since = transport_->Now();
  loss_.lost += lost;
  loss_.repaired += repaired;
  loss_.partitions.push_back(link->partition);
}

void Client::ReportLoss() {
  const Loss loss = std::move(loss_);
  loss_ = Loss();
  if (!config_.notice) return;
  std::string text = PartitionNames(loss.partitions);
  const std::string where = transport_->Where(loss.partitions[0]);
  if (!where.empty()) text += " at " + where;
  text += " came to life again without " + std::to_string(loss.lost + loss.repaired) +
          " pushes of this worker that had been acknowledged: ";
  if (loss.repaired > 0) text += std::to_string(loss.repaired) + " were kept and are sent again";
  if (loss.lost > 0) {
    text += (loss.repaired > 0 ? ", " : "") + std::to_string(loss.lost) +
            " are lost. A replica that was behind took over, or a server restarted from an older state; "
            "het_tf.init(durability='replicated') keeps pushes until replicas hold them";
  }
  config_.notice(text);
}

bool Client::Busy() const {
  return std::any_of(links_.begin(), links_.end(), [this](const Link& link) {
    return link.fatal.ok() && (link.log.unapplied() || !link.outstanding.empty() || !link.waiting.empty() ||
                               (config_.durability == Durability::kReplicated && link.log.keeps()));
  });
}

double Client::Due() {
  const double now = transport_->Now();
  double due = config_.request_timeout;
  for (const Link& link : links_) {
    if (!link.fatal.ok()) continue;
    if (config_.durability == Durability::kReplicated && link.log.keeps()) due = std::min(due, ask_at_ - now);
    if (!link.outstanding.empty()) {
      // A time-out is looked at a few times: what it waits for may have moved.
      due = std::min(due, std::max(link.outstanding.front().sent_at + config_.request_timeout - now,
                                   config_.request_timeout / 8));
    } else if (link.log.unapplied() || !link.waiting.empty()) {
      due = std::min(due, link.not_before - now);
    }
  }
  if (!loss_.partitions.empty()) due = std::min(due, loss_.since + 1 - now);
  return std::max(due, 1e-3);
}

}  // namespace het
