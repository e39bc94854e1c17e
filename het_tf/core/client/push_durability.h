// How long applied pushes are kept, and what people are told when a server has lost some.
//
// kApplied: they are not (Session::Config::keep_applied).
//
// kReplicated. Redis' WAIT counts the replicas that hold the writes *of its own connection*, and
// holds up that connection's later answers until there are enough of them or its time is over. So:
//   * one WAIT for a connection at a time, at most every replica_interval, over all of its
//     partitions. One behind every push would cost each step a round trip of the replica; one in
//     0.1 s is not to be measured (docs/parameter-server.md has the figures);
//   * it waits kWaitSeconds at most, and while there are too few replicas it comes ever rarer,
//     once a second at last: a replica that hangs takes 2 % of the time;
//   * it vouches for pushes that this very connection wrote: those that were applied when they
//     were sent for the first time. After a reconnect there may be none: then an empty push is
//     sent, which is written behind all that the partition has.
// kCheckpoint. MarkDurable forgets what is applied. No step could wait for a checkpoint: so when
// keep_bytes are full the oldest frames are forgotten, counted (dropped_pushes) and told once.
//
// What a server loses all the same is LossReport's to tell.
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

  // All applied frames are durable.
  void MarkDurable();
  // Kept frames take more than they may, and only replicas can change that.
  bool MustWait() const;
  // Forgets the oldest frames until the others take no more than they may.
  void ForgetOldest();

  // Asks replicas, if it is time to.
  void AskReplicas();
  // An answer to that. Not OK: the server refuses the question.
  Status OnReplicas(Session* session, const Transport::Event& event);
  // Questions that are on their way are about another connection, incarnation or identity.
  void ForgetQuestion(uint32_t partition) { replicas_[partition].asked_on = 0; }
  bool expects_answers() const;

  // Frames are kept until replicas have them; seconds until they are asked.
  bool busy() const;
  double Due() const;
  // What is waited for where only replicas are missing: "pushes are with ...", and since when.
  bool WaitsForReplicas(const Session& session, std::string* why, double* since) const;

 private:
  // What replicas are known to have of one partition.
  struct Replicas {
    uint64_t asked = 0;     // the seq that they were asked about
    uint64_t asked_on = 0;  // the connection that this question went to; 0: it is answered
    uint32_t count = 0;     // that the last answer counted
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
  bool few_told_ = false;           // that replicas are too few
  bool dropped_ = false;            // frames were forgotten for want of room, and that was said
};

}  // namespace het
