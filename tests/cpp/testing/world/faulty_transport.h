// A network with a bad temper, for tests: between a client and a LocalService it delays, cuts, duplicates,
// refuses and falls silent, by chance or on command, on a clock of its own.
//
// A connection to a partition has two queues, and a test can hold either:
//
//   client ──Send──► requests ──Serve──► partition ──► replies ──Poll──► client
//
// With shards() fewer than partitions, several partitions share a connection, and frames have several parts:
// what befalls the connection is told to all of them, and a part may be refused by itself.
//
// Within a connection everything is FIFO. Bytes of a connection that the client gave up (Reset) may still
// reach the partition later; their replies reach nobody.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "het_tf/core/store/local_service.h"
#include "het_tf/core/wire/parts.h"
#include "het_tf/core/wire/transport.h"
#include "tests/cpp/testing/random.h"

namespace het::testing {

// Probabilities, each for one request.
struct Faults {
  double delay = 0;              // stays where it is for this Poll, in either queue
  double cut = 0;                // the connection closes; the request and those behind it are applied or not
  double lose_reply = 0;         // it closes after the request was applied
  double duplicate_request = 0;  // the partition sees it twice
  double duplicate_reply = 0;    // the client sees the answer twice
  double refuse = 0;             // the server answers something else than a frame
  double silence = 0;            // nothing comes any more until the client gives the connection up
  double out_of_memory = 0;      // the partition finds little memory
  double part = 0;               // each part of several: its partition is elsewhere, or busy

  static Faults None() { return Faults(); }
  static Faults Some(double each) { return {0.3, each, each, each, each, each, each / 4, each, each}; }
};

class FaultyTransport : public Transport {
 public:
  // `shards`: connections that the partitions share; 0: each has its own.
  FaultyTransport(LocalService* service, uint64_t seed, uint32_t shards = 0);
  ~FaultyTransport() override { SetAllocLimit(SIZE_MAX); }

  Faults faults;

  // --- on command
  void HoldRequests(uint32_t p, bool hold) { LineOf(p).hold_requests = hold; }
  void HoldReplies(uint32_t p, bool hold) { LineOf(p).hold_replies = hold; }
  void HoldRepliesFor(uint32_t p, double seconds) { LineOf(p).replies_held_until = now_ + seconds; }
  size_t requests(uint32_t p) const { return LineOf(p).requests.size(); }
  size_t replies(uint32_t p) const { return LineOf(p).replies.size(); }
  uint64_t served() const { return served_; }
  // The partition sees the oldest request that waits; its answer waits for Poll.
  void Serve(uint32_t p) { ServeFront(p, /*by_chance=*/false); }
  // The next request of p that is served is answered by something else than a frame.
  void RefuseNext(uint32_t p) { LineOf(p).refuse_next = true; }
  // The next request of p that is served is never answered, and nothing after it, until the client gives up.
  void SilenceOnce(uint32_t p) { LineOf(p).silence_next = true; }
  // One of the next requests of p finds `room` bytes of memory; calls queue up.
  void LimitNext(uint32_t p, size_t room) { LineOf(p).limits.push_back(room); }
  // Frames that were refused for want of memory and left a trace all the same.
  size_t half_applied() const { return half_applied_; }
  // The next answer of several parts says nothing about this partition, whose part was not done.
  std::optional<uint32_t> omit;
  // Frames of several parts that were sent, and parts of such that were refused by themselves.
  size_t many_parts() const { return many_parts_; }
  size_t parts_refused() const { return parts_refused_; }
  // The connection closes. Of the requests on their way the first `applied` still reach the partition; no
  // reply does.
  void Cut(uint32_t p, size_t applied = 0);
  // The partition came to life again elsewhere: nothing of before reaches it.
  void PartitionMoved(uint32_t p);
  // The bytes that Reset left behind arrive now.
  void ServeGhosts();
  // Brings the replica of a partition up to date; false: it stands still.
  std::function<bool(uint32_t)> replicate;
  // When bytes moved on connections, as the test has it.
  double moved_at = 0;
  // Replies come one at a time, so long after one another.
  double seconds_a_reply = 0;
  // Every frame that was handed over, oldest first, once this is on.
  bool record = false;
  std::vector<OutFrame> recorded;

  // --- Transport
  uint32_t partitions() const override { return service_->partitions(); }
  uint32_t ShardOf(uint32_t p) override { return Shard(p); }
  PartitionId id(uint32_t partition) const override { return service_->id(partition); }
  void Send(OutFrame frame) override;
  bool Poll(double seconds, std::vector<Event>* events) override;
  void Reset(uint32_t p) override;
  uint64_t Connection(uint32_t p) override { return LineOf(p).number; }
  // As Redis has it: a connection that wrote nothing hears that every replica has all of it.
  void AskReplicas(const std::vector<Mark>& marks, uint32_t replicas, double) override;
  double LastMoved(uint32_t) override { return moved_at; }
  void Sleep(double seconds) override { now_ += seconds; }
  double Now() override { return now_; }

 private:
  struct Line {
    std::deque<OutFrame> requests;
    std::deque<Event> replies;
    uint64_t number = 0;      // of the connection that is open
    bool wrote = false;       // something was applied over it
    std::set<uint32_t> used;  // by these partitions
    bool dead = false;        // closed, and the client does not know yet
    bool silent = false;      // nothing moves until Reset
    bool hold_requests = false;
    bool hold_replies = false;
    bool refuse_next = false;
    bool silence_next = false;
    std::deque<size_t> limits;
    double replies_held_until = 0;
  };

  static Event Closed(uint32_t p);
  Bytes Answer(uint32_t p, const OutFrame& frame);
  // With `room` bytes of memory left.
  void AnswerWithin(size_t room, const OutFrame& frame, Event* event);
  // Each part is told.
  void Refuse(const OutFrame& frame, Event event);
  void ServeGhost();
  void ServeFront(uint32_t p, bool by_chance);

  // Neighbours together, as at Redis.
  uint32_t Shard(uint32_t p) const { return p * shards_ / service_->partitions(); }
  Line& LineOf(uint32_t p) { return connections_[Shard(p)]; }
  const Line& LineOf(uint32_t p) const { return connections_[Shard(p)]; }

  LocalService* const service_;
  Random random_;
  const uint32_t shards_;
  std::vector<Line> connections_;
  std::deque<std::pair<uint32_t, std::deque<OutFrame>>> ghosts_;
  double now_ = 0;
  uint64_t served_ = 0;
  size_t half_applied_ = 0;
  size_t many_parts_ = 0;
  size_t parts_refused_ = 0;
  uint64_t last_number_ = 0;
  ClientId sender_;
};

}  // namespace het::testing
