// An unreliable network for tests: between a client and a LocalService it delays, cuts, duplicates, refuses
// and falls silent, at random or on command, with its own clock.
//
// A connection to a partition has two queues, and a test can hold either:
//
//   client ──Send──► requests ──Serve──► partition ──► replies ──Poll──► client
//
// With shards() fewer than partitions, several partitions share a connection, and frames have several parts:
// a connection's fault produces an event for each partition, and a part may be refused by itself.
//
// A connection is FIFO. Bytes that were in it at a Reset may still reach the partition later; replies are
// dropped.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "het_tf/core/store/local_service.h"
#include "het_tf/core/wire/parts.h"
#include "het_tf/core/wire/transport.h"
#include "tests/testing/random.h"

namespace het::testing {

// Probabilities, each for one request.
struct Faults {
  double delay = 0;              // stays in its queue, either one, for this Poll
  double cut = 0;                // the connection closes; this and later requests may or may not be applied
  double lose_reply = 0;         // it closes after the request was applied
  double duplicate_request = 0;  // the partition sees it twice
  double duplicate_reply = 0;    // the client sees the answer twice
  double refuse = 0;             // the server answers with an error
  double silence = 0;            // no more replies until the client resets the connection
  double out_of_memory = 0;      // the partition finds little memory
  double part = 0;               // each of several parts: its partition is elsewhere, or busy

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
  uint64_t served() const { return served_; }
  // Lets the partition handle the oldest waiting request; its answer waits for Poll.
  void Serve(uint32_t p) { ServeFront(p, /*by_chance=*/false); }
  // The next answer with several parts omits this partition's part, which is not handled.
  std::optional<uint32_t> omit;
  // Counts sent frames with several parts.
  size_t many_parts() const { return many_parts_; }
  // Closes the connection. The first `applied` requests in flight still reach the partition; replies are
  // lost.
  void Cut(uint32_t p, size_t applied = 0);
  // The partition restarted elsewhere: no earlier request reaches it.
  void PartitionMoved(uint32_t p);
  // Brings a partition's replica up to date; returns false if the replica has stopped.
  std::function<bool(uint32_t)> replicate;
  // Lets the store handle a frame with a push; by default that is all.
  std::function<void(const std::function<void()>& handle)> pushes = [](const auto& handle) { handle(); };
  // The test's value for the time at which bytes moved.
  double moved_at = 0;
  // Seconds between replies, which come one at a time.
  double seconds_a_reply = 0;
  // What was sent of a table, as a worker counts it (Counters).
  struct Sent {
    uint64_t requests = 0;
    uint64_t checks = 0;
    uint64_t resends = 0;
    uint64_t pushed = 0;  // rows, each once
  };
  std::map<uint64_t, Sent> sent;  // by table
  // Records every sent frame, oldest first.
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
  // As with Redis: on a connection without writes every replica acknowledges.
  void AskReplicas(const std::vector<Mark>& marks, uint32_t replicas, double) override;
  double LastMoved(uint32_t) override { return moved_at; }
  void Sleep(double seconds) override { now_ += seconds; }
  double Now() override { return now_; }

 private:
  struct Line {
    std::deque<OutFrame> requests;
    std::deque<Event> replies;
    uint64_t number = 0;      // of the open connection
    bool wrote = false;       // it has carried an applied request
    std::set<uint32_t> used;  // by these partitions
    bool dead = false;        // closed, but the client has no event yet
    bool silent = false;      // no bytes move until Reset
    bool hold_requests = false;
    bool hold_replies = false;
    double replies_held_until = 0;
  };

  static Event Closed(uint32_t p);
  void Count(const OutFrame& frame);
  Bytes Answer(uint32_t p, const OutFrame& frame);
  void Handle(uint32_t p, const OutFrame& frame, Bytes* reply);
  void LetHandle(const OutFrame& frame, const std::function<void()>& handle);
  // With `room` bytes of memory left.
  void AnswerWithin(size_t room, const OutFrame& frame, Event* event);
  // Produces an event for each part.
  void Refuse(const OutFrame& frame, Event event);
  void ServeGhost();
  void ServeFront(uint32_t p, bool by_chance);

  // Neighbouring partitions share a connection, as at Redis.
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
  size_t many_parts_ = 0;
  uint64_t last_number_ = 0;
  ClientId sender_;
  std::map<std::pair<uint32_t, ClientId>, uint64_t> sent_seq_;  // the last push that was sent
};

}  // namespace het::testing
