// Decides how long applied pushes are kept, and reports too few replicas.
//
// kApplied: they are not kept (Session::Config::keep_applied).
//
// kReplicated. Redis' WAIT counts the replicas that have the writes *of its own connection*, and delays that
// connection's later answers until there are enough of them or its time is over. So:
//   * a connection has one WAIT at a time, at most every replica_interval, for all its partitions. One after
//     every push would cost each step a round trip of the replica; one in 0.1 s is not measurable
//     (docs/servers.md has the figures);
//   * it waits at most kWaitSeconds, and with too few replicas it becomes rarer, down to once a second: a
//     hanging replica costs 2 % of the time;
//   * it covers pushes that this very connection wrote: those applied on their first sending. After a
//     reconnect there may be none: then an empty push is sent, whose write follows all of the partition's.
// kCheckpoint. MarkDurable drops applied frames. A step cannot wait for a checkpoint: so when keep_bytes are
// full the oldest frames are dropped, counted (dropped_pushes) and reported once.
//
// LossReport reports losses by servers.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "het_tf/core/client/cached_tables.h"
#include "het_tf/core/client/client_config.h"
#include "het_tf/core/client/push_builder.h"
#include "het_tf/core/client/session.h"
#include "het_tf/core/wire/transport.h"

namespace het {

class PushDurability {
 public:
  PushDurability(Transport* transport, const ClientConfig* config, const CachedTables* tables,
                 std::deque<Session>* sessions, PushBuilder* pushes);

  // Marks all applied frames durable.
  void MarkDurable();
  // Whether kept frames exceed their limit, and only replicas can change that.
  bool MustWait() const;
  // Drops the oldest frames until the others are within their limit.
  void ForgetOldest();

  // Asks replicas, if it is time.
  void AskReplicas();
  // Handles the answer. Not OK: the server refuses the question.
  Status OnReplicas(Session* session, const Transport::Event& event);
  // Ignores the question in flight: it is about an earlier connection, incarnation or identity.
  void ForgetQuestion(uint32_t partition) { replicas_[partition].asked_on = 0; }
  bool expects_answers() const;

  // Whether frames are kept until replicas have them; seconds until they are asked.
  bool busy() const;
  double Due() const;
  // If only replicas are missing: the reason, "pushes are with ...", and the time since.
  bool WaitsForReplicas(const Session& session, std::string* why, double* since) const;

 private:
  // The replicas' known state of one partition.
  struct Replicas {
    uint64_t asked = 0;     // the seq that they were asked about
    uint64_t asked_on = 0;  // the connection that this question went to; 0: it is answered
    uint32_t count = 0;     // replicas in the last answer
    double few_since = 0;   // when they became too few; 0: they are enough
  };
  bool replicated() const { return config_->durability == Durability::kReplicated; }
  size_t KeptBytes() const;
  std::string With(uint32_t replicas) const;

  Transport* const transport_;
  const ClientConfig* const config_;
  const CachedTables* const tables_;
  std::deque<Session>* const sessions_;
  PushBuilder* const pushes_;
  std::vector<Replicas> replicas_;  // by partition
  double ask_at_ = 0;               // when replicas may be asked again
  double pause_ = 0;                // grows while there are too few of them
  bool few_told_ = false;           // too few replicas were reported
  bool dropped_ = false;            // dropped frames were reported
};

}  // namespace het
