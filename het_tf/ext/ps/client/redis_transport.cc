#include "het_tf/ext/ps/client/redis_transport.h"

#include <algorithm>
#include <map>

#include "het_tf/core/wire/reply.h"

namespace het {
namespace {

using Answer = RedisPipeline::Answer;

bool IsPermanent(const std::string& error) {
  return StartsWithAny(error, {"NOPERM", "WRONGTYPE", "HETERR", "ERR unknown command"});
}

}  // namespace

// The session judges silence, and calls Reset.
RedisTransport::RedisTransport(RedisCluster cluster, std::vector<std::string> keys, uint64_t hash_seed)
    : hash_seed_(hash_seed), pipeline_(std::move(cluster), std::move(keys), /*silence=*/0) {}

void RedisTransport::Send(OutFrame frame) {
  pipeline_.Ask(std::move(frame), [this](Answer answer) { Take(std::move(answer)); });
  pipeline_.Write();
}

void RedisTransport::Take(Answer answer) {
  Event event;
  if (answer.kind == Answer::kReply && answer.reply.kind == RedisReply::kString) {
    event.partition = answer.parts[0].partition;
    event.bytes = std::move(answer.reply.bytes);
    events_.push_back(std::move(event));
  } else if (answer.kind == Answer::kLost) {
    event.kind = Event::kClosed;
    event.reason = answer.error;
    for (const PartRef& part : answer.parts) {
      event.partition = part.partition;
      const bool known = std::any_of(events_.begin(), events_.end(), [&](const Event& other) {
        return other.kind == Event::kClosed && other.partition == part.partition;
      });
      if (!known) events_.push_back(event);
    }
  } else {
    if (answer.kind == Answer::kReply) answer.error = "an answer that is not a frame";
    Refused(answer);
  }
}

void RedisTransport::Refused(const Answer& answer) {
  Event event;
  event.kind = Event::kRefused;
  event.reason = answer.node.ToString() + ": " + answer.error;
  if (StartsWith(answer.error, "OOM")) {
    event.reason = kStoreOutOfMemory;
  } else if (StartsWith(answer.error, "HETNOPART")) {
    // A server that the partition is not on its way to should have it, or it would have redirected.
    if (!answer.moving) event.kind = Event::kGone;
    event.reason +=
        " (the server has lost the tables: it restarted without persistence, or was flushed. Restore it, or "
        "call "
        "het_tf.reset() and build the model again)";
  } else if (IsPermanent(answer.error)) {
    event.kind = Event::kRejected;
    event.reason += "; updates that were made are kept and will be sent";
  }
  for (const PartRef& part : answer.parts) {
    event.partition = part.partition;
    event.request_id = part.request_id;
    events_.push_back(event);
  }
}

void RedisTransport::Counted(const std::vector<Mark>& marks, const Answer& answer) {
  if (answer.kind == Answer::kLost) return;
  const RedisReply& reply = answer.reply;
  for (const Mark& mark : marks) {
    Event event;
    event.partition = mark.partition;
    if (reply.kind == RedisReply::kError && IsPermanent(reply.text())) {
      event.kind = Event::kUncounted;
      event.reason = answer.node.ToString() + ": " + reply.text();
    } else {  // an error is transient (it loads, it became a replica), and acknowledges nothing
      event.kind = Event::kReplicas;
      event.seq = mark.seq;
      event.replicas = reply.kind == RedisReply::kInteger
                           ? static_cast<uint32_t>(std::clamp<int64_t>(reply.integer, 0, UINT32_MAX))
                           : 0;
    }
    events_.push_back(std::move(event));
  }
}

void RedisTransport::AskReplicas(const std::vector<Mark>& marks, uint32_t replicas, double seconds) {
  std::map<uint64_t, std::vector<Mark>> by_connection;
  for (const Mark& mark : marks) by_connection[Connection(mark.partition)].push_back(mark);
  by_connection.erase(0);
  const std::vector<std::string> wait = {"WAIT", std::to_string(replicas),
                                         std::to_string(std::max(1, static_cast<int>(seconds * 1000)))};
  for (const auto& [connection, of_server] : by_connection) {
    pipeline_.AskServer(of_server[0].partition, wait,
                        [this, marks = of_server](const Answer& answer) { Counted(marks, answer); });
  }
  pipeline_.Write();
}

bool RedisTransport::Poll(double seconds, std::vector<Event>* events) {
  if (!pipeline_.Poll(events_.empty() ? seconds : 0) && events_.empty()) Sleep(seconds);
  const bool any = !events_.empty();
  for (Event& event : events_) events->push_back(std::move(event));
  events_.clear();
  return any;
}

void RedisTransport::Reset(uint32_t partition) {
  pipeline_.Reset(partition);
  // Other partitions on these connections get an event; this partition's client knows. Keep answers: they may
  // have parts of others, and the client ignores late ones.
  const auto known = [partition](const Event& event) {
    return event.kind == Event::kClosed && event.partition == partition;
  };
  events_.erase(std::remove_if(events_.begin(), events_.end(), known), events_.end());
}

}  // namespace het
