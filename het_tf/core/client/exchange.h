// The sessions with all partitions of one store. It gathers their requests into frames, and passes each part
// of a reply to its session.
//
//   Session::Next ─► parts of one shard gathered into a frame ─► Transport
//                        Listener ◄─ Verdict ◄─ Session::OnReply ◄─ reply ◄┘
//
// 1. Frames. In every round each session gives at most one request, so that a frame has no two
//    parts of one partition, and these stay in order. A frame has about kFrameRowBytes of rows; a
//    request with more, one whose partition fails, or one that has to find its server goes alone.
// 2. Giving up. A request that has no answer for request_timeout, while no byte moves, loses its
//    connection, and all requests on it are asked again. So are parts of a frame that its reply
//    does not answer.
// 3. Replies. The session judges a reply. The listener then changes caches and reads.
//
// Not thread-safe. Throws std::bad_alloc; then Recover is to be called before anything else.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "het_tf/core/client/cached_tables.h"
#include "het_tf/core/client/client_config.h"
#include "het_tf/core/client/session.h"
#include "het_tf/core/client/subscriptions.h"
#include "het_tf/core/wire/transport.h"

namespace het {

class Exchange {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // The reply has the rows that the read asked for. `notifies`: it also has notifications.
    virtual void OnRows(Session* session, const Reply& reply, const PartitionReadPtr& read,
                        bool notifies) = 0;
    // Bases of the partition's rows are invalid. Reads are asked again after this.
    virtual void OnNewIncarnation(Session* session) = 0;
    // Pushes are numbered anew, for another client id.
    virtual void OnNewIdentity(Session* session) = 0;
    // The table has another epoch, or was dropped, and the log has dropped its ticks (Verdict::Table).
    virtual void OnReloaded(Session* session, const Verdict::Table& table) = 0;
    virtual void OnGone(Session* session, const Verdict::Table& table) = 0;
    // The partition has lost acknowledged pushes; `repaired` of them were kept and are sent again.
    virtual void OnLost(Session* session, uint64_t lost, uint64_t repaired) = 0;
    virtual void OnReplicas(Session* session, const Transport::Event& event) = 0;
  };
  // The state of the call that is running.
  struct Call {
    double began = 0;
    double moved_at = 0;         // when a frame was applied or a read answered last
    Status rejected;             // an error that no retry can cure
    uint64_t out_of_memory = 0;  // answers that said so, of all calls
  };

  Exchange(Transport* transport, const ClientConfig& config, const CachedTables* tables,
           Subscriptions* subscriptions, Listener* listener);

  std::deque<Session>& sessions() { return sessions_; }
  const std::deque<Session>& sessions() const { return sessions_; }
  Session* session(uint32_t partition) { return &sessions_[partition]; }
  double Now() const { return transport_->Now(); }
  const Call& call() const { return call_; }
  void BeginCall();
  void Reject(Status why) { call_.rejected = std::move(why); }
  // OK, or that a partition refuses this client for good.
  Status fatal() const;

  // Sends what can be sent.
  void Pump();
  // Handles all events that have come, and waits at most `wait` seconds for the first one. `expects`: events
  // other than replies may come.
  void Receive(double wait, bool expects);
  // Asks again, unless nobody waits any more; fetches rows that have become invalid since.
  void AskAgain(Session* session, PartitionReadPtr read);
  // Call after a call has thrown: closes all connections, and asks all reads again.
  void Recover();

  // Whether requests are in flight or could be sent; seconds until the next one needs attention.
  bool busy() const;
  double Due() const;

 private:
  struct Outgoing {
    Session* session;
    Session::Outgoing what;
  };

  // exchange_send.cc, as Pump: the request points to updates and questions, until it is encoded.
  void Make(const Outgoing& sending, OutRequest* request);
  // Counts a frame of `bytes` bytes; `tables`: for the tables of each part.
  void CountRequests(const std::vector<Outgoing>& parts, const std::vector<OutRequest>& requests,
                     const Vector<TableBytes>& tables, size_t bytes) const;
  void Send(const std::vector<Outgoing>& parts);
  void CheckTimeouts();
  void OnEvent(Transport::Event* event);
  void OnRefusal(Session* session, const Transport::Event& event);
  void OnFrame(Transport::Event* event);
  void OnReply(Session* session, const Session::Outstanding* found, const Reply& reply);
  void Tell(Session* session, const Verdict& verdict);
  void Answer(Session* session, const Session::Outstanding& request, const Reply& reply,
              const Verdict& verdict);
  bool Fits(const Reply& reply, const PartitionRead& read) const;
  void CountReply(const Session::Outstanding* request, const Reply& reply, size_t bytes,
                  const Vector<TableBytes>& tables) const;
  void GiveUpFrame(uint32_t frame, const std::string& reason);
  void Failed(Session* session, const std::string& reason, bool connection_lost);
  ClientId NewId() { return {base_id_.high, base_id_.low + ++generation_}; }

  Transport* const transport_;
  const double request_timeout_;
  TraceLog* const trace_;
  const CachedTables* const tables_;
  Subscriptions* const subscriptions_;
  Listener* const listener_;
  Session::Config session_config_;
  std::deque<Session> sessions_;
  const ClientId base_id_;   // the lower half of `low` counts
  uint64_t generation_ = 0;  // of the newest id
  uint64_t jitter_;
  uint32_t next_request_id_ = 1;
  Call call_;
  std::vector<Transport::Event> events_;
};

}  // namespace het
