// The conversation with one partition: chooses the next request, and judges answers. Independent of
// caches, sockets and clocks: the caller passes the time, sends Next's requests, and carries out the Verdict.
//
//   Ask(read), log().Append ──► Next(now) ──► Sent ──► outstanding ──► OnReply ──► Verdict
//                                 ▲                        │
//                                 └──────── OnFailure ◄────┘  refused, timed out, closed
//
// 1. Order. Frames are sent in the order of their numbers, and a read with the last of them, or after it: it
//    must see every own push. After a failure nothing is sent until a pause has ended and nothing is in
//    flight; then all unapplied frames are sent again.
// 2. Incarnations. A partition that restarts, moves or is promoted has a new incarnation. Base clocks from
//    the old incarnation are invalid then (Verdict::new_incarnation); acknowledged pushes that it has lost
//    are sent again from the log if they are kept. Answers of an earlier incarnation are late and dropped,
//    unless nothing else was in flight: then the partition has moved to another server and back.
// 3. Identity. The partition knows pushes by client id and number. If its numbers cannot be met (it forgot
//    this client, or lost pushes that are not kept) the remaining frames get a new id and numbers from 1.
// 4. Epochs. A table that was loaded or cleared has a new epoch: the partition refuses the request and
//    answers with the new epoch.
//
// Not thread-safe. Adding throws std::bad_alloc.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "het_tf/core/client/backoff.h"
#include "het_tf/core/client/client_rings.h"
#include "het_tf/core/client/partition_read.h"
#include "het_tf/core/client/push_log.h"
#include "het_tf/core/wire/reply.h"
#include "het_tf/core/wire/request.h"

namespace het {

// The consequences of a reply, in the order of handling.
struct Verdict {
  // Bases of all rows of the partition are invalid; ask `unanswered` reads again, since their answers would
  // be about old bases.
  bool new_incarnation = false;
  std::vector<PartitionReadPtr> unanswered;
  // Acknowledged pushes that the partition has lost: not kept here; and kept and sent again.
  uint64_t lost = 0;
  uint64_t repaired = 0;
  bool new_identity = false;
  bool progress = false;  // more pushes are applied
  // Tables that were loaded, cleared or dropped, and ticks that the log dropped with them.
  struct Table {
    uint64_t table;
    uint64_t dropped_ticks;
  };
  std::vector<Table> reloaded;
  std::vector<Table> gone;
  bool pushes_refused = false;  // `gone`: some pushes were not applied

  enum Answer {
    kNothing,   // a reply to a push only, or to an abandoned read
    kRows,      // the reply has the read's rows, or does not fit
    kAskAgain,  // the read must be asked again
    kRefused,   // the read has failed: a table is gone, or Session::fatal()
  } answer = kNothing;
  std::string failure;  // if not empty: call OnFailure
};

class Session {
 public:
  struct Config {
    BackoffConfig backoff;
    bool keep_applied = false;          // the caller says when applied frames are durable: ForgetThrough
    size_t most_read_bytes = SIZE_MAX;  // limit on the answer to one request
    double forgotten_after = 0;         // seconds without a push after which a partition may forget a client
    uint64_t far_keys = 0;              // ClientConfig's
    std::function<ClientId()> new_id;
  };
  // One request that may be sent; null: no such part.
  struct Outgoing {
    PushFrame* frame = nullptr;
    PartitionReadPtr read;
  };
  // A request in flight.
  struct Outstanding {
    uint32_t request_id = 0;
    uint32_t frame = 0;     // the request_id of the first part of its frame
    PartitionReadPtr read;  // null: only a push
    double sent_at = 0;
    bool after_silence = false;  // nothing else was in flight: the answer is the current state
    uint64_t first_table = 0;    // is charged with the bytes of the answer's head
    uint64_t first_push = 0;     // seq of a push that was never sent before; else 0
    uint64_t newest_seq = 0;     // newest push that it names
    uint64_t connection = 0;     // that it was sent over
    uint64_t incarnation = 0;    // that it named as known
    ClientId client;             // the answer's last_seq is about this id
    bool subscribes = false;     // the answer names subscribed rows that have moved
    bool relies = false;         // on rings that were there before (client_rings.h)
  };

  Session(uint32_t partition, ClientId client, const Config* config)
      : config_(config), partition_(partition), client_(client), rings_(config->far_keys) {}

  uint32_t partition() const { return partition_; }
  const ClientId& client() const { return client_; }
  uint64_t incarnation() const { return known_.incarnation; }
  PushLog& log() { return log_; }
  const PushLog& log() const { return log_; }
  const Backoff& backoff() const { return backoff_; }
  // Not OK: the partition refuses this client's configuration; nothing more is sent.
  const Status& fatal() const { return fatal_; }
  // Requests are sent in frames of their own: a server did not find the partition behind another's part.
  bool goes_alone() const { return alone_ || backoff_.failing(); }
  // Returns the newest seq that the connection *connection has certainly written; 0: none.
  uint64_t Written(uint64_t* connection) const;
  // The number of the newest answer whose notifications are all handled; 0: none.
  uint32_t notified() const { return known_.notified; }
  void SetNotified(uint32_t notified) { known_.notified = notified; }

  const std::deque<Outstanding>& outstanding() const { return outstanding_; }
  bool waits() const { return !waiting_.empty(); }
  // Something is on its way, or could go out.
  bool busy() const { return log_.unapplied() || !outstanding_.empty() || waits(); }

  // --- out

  size_t most_read_bytes() const { return config_->most_read_bytes; }
  void Ask(PartitionReadPtr read) { waiting_.push_back(std::move(read)); }
  // The next request, if one may go out now. Nothing changes by asking, until it is sent.
  bool Next(double now, Outgoing* next);
  ClientRings& rings() { return rings_; }
  // Sets the request's client, seq, after_seq and incarnation.
  void FillIn(const Outgoing& sending, OutRequest* request) const;
  // The epochs of tables, as the partition has reported them; 0: not known yet.
  std::map<uint64_t, uint64_t>& epochs() { return known_.epochs; }
  // The frame was sent before.
  bool WasSent(const PushFrame& frame) const { return frame.seq <= sent_.ever; }
  void Sent(const Outgoing& sent, const OutRequest& request, uint32_t frame, double now, uint64_t connection);

  // --- in

  // Null: the request was given up, or is answered already.
  const Outstanding* Find(uint32_t request_id) const;
  // Removes and returns a request that Find returned: it was answered or refused.
  Outstanding Take(const Outstanding* request);
  Verdict OnReply(const Outstanding& request, const Reply& reply, double now);
  // Returns the reads that must be asked again: those in flight, if the connection is lost.
  std::vector<PartitionReadPtr> OnFailure(const std::string& reason, bool connection_lost, double now,
                                          double jitter);
  // Begins anew with an empty log, as another client.
  void StartOver();

 private:
  // The partition's state, as it has reported it.
  struct Known {
    uint64_t incarnation = 0;             // 0: nothing heard yet
    std::set<uint64_t> past;              // earlier incarnations
    std::map<uint64_t, uint64_t> epochs;  // by table
    uint32_t notified = 0;
  };
  // The newest pushes that were sent.
  struct Progress {
    uint64_t through = 0;  // newest seq since the last failure
    uint64_t ever = 0;     // newest seq
    uint64_t written = 0;  // newest seq that `written_on` has certainly carried
    uint64_t written_on = 0;
    double applied_at = 0;  // when the partition last said that a push was applied
  };

  bool Late(const Outstanding& request, uint64_t incarnation) const;
  void Acknowledge(uint64_t last_seq, double now, Verdict* verdict);
  void OnNewIncarnation(uint64_t last_seq, double now, Verdict* verdict);
  void OnForgotten(Verdict* verdict);
  // Returns whether an epoch is another.
  bool OnEpochs(const Reply& reply, Verdict* verdict);
  void OnGone(const Reply& reply, Verdict* verdict);
  Verdict::Answer OnOk(const Outstanding& request, const Reply& reply, double now, Verdict* verdict);
  void Renumber();

  const Config* const config_;
  const uint32_t partition_;
  ClientId client_;
  Known known_;
  PushLog log_;
  Progress sent_;
  std::deque<Outstanding> outstanding_;
  std::deque<PartitionReadPtr> waiting_;
  ClientRings rings_;
  Backoff backoff_;
  Status fatal_;
  bool resend_ = false;  // all unapplied frames must be sent again, once nothing is in flight
  bool fresh_ = false;   // the next request is the first with nothing else in flight
  bool alone_ = false;   // until a refusal tells where the partition is
};

}  // namespace het
