// Carries frames between a client and the partitions. The client (client.h) uses only this interface, with
// three implementations: for the embedded store, for a remote server, and for tests that delay, cut,
// duplicate and refuse.
//
// Only one client and one thread may use a transport at a time.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "het_tf/core/base/bytes.h"
#include "het_tf/core/base/steady_seconds.h"
#include "het_tf/core/wire/ids.h"
#include "het_tf/core/wire/out_frame.h"

namespace het {

class Transport {
 public:
  struct Event {
    enum Kind {
      kReply,      // bytes: one reply frame, of one part or several
      kClosed,     // the connection to the partition closed; outstanding replies are lost
      kRefused,    // the server answered with an error (loading, out of memory, ...): try later
      kRejected,   // a permanent error, until somebody intervenes (no permission, no such command): the call
                   // fails
      kGone,       // the partition is missing at its server, and is not being moved: the call fails
      kReplicas,   // `replicas` replicas have everything up to push `seq` (AskReplicas)
      kUncounted,  // the server refuses to answer AskReplicas
    };
    Kind kind = kReply;
    uint32_t partition = 0;
    Bytes bytes;
    std::string reason;       // for messages; set except for kReply and kReplicas
    uint32_t request_id = 0;  // for kRefused, kRejected, kGone; 0: the oldest request in flight
    uint64_t seq = 0;
    uint32_t replicas = 0;
  };
  // A push that was applied over its partition's current connection.
  struct Mark {
    uint32_t partition;
    uint64_t seq;
  };

  virtual ~Transport() = default;

  virtual uint32_t partitions() const = 0;
  virtual PartitionId id(uint32_t partition) const = 0;
  // Partitions with equal numbers may share a frame.
  virtual uint32_t ShardOf(uint32_t partition) { return partition; }
  // Sends a request frame. Frames to one partition stay in order while the connection lives. Send never waits
  // for the reply; an unusable connection becomes a kClosed event. There is one event for each part, except
  // that a reply is one event for the frame.
  virtual void Send(OutFrame frame) = 0;

  // Returns memory for a frame: empty, with room for `size` bytes, perhaps reused.
  virtual Bytes Buffer(size_t size) {
    Bytes bytes;
    bytes.reserve(size);
    return bytes;
  }
  // Takes back the memory of a processed event.
  virtual void Recycle(Bytes) {}

  // Appends new events; waits at most `seconds` for the first. Returns false if there was none.
  virtual bool Poll(double seconds, std::vector<Event>* events) = 0;

  // Closes the connection to a partition and drops its outstanding replies. The next Send opens a new one.
  virtual void Reset(uint32_t partition) = 0;

  // Returns a number that identifies the partition's current connection; 0: none.
  virtual uint64_t Connection(uint32_t partition) = 0;
  // Asks how many replicas have the marked pushes, over the connections that carried them: a server's answer
  // is about its connection's own writes. The server waits at most `seconds` for `replicas` of them, and
  // later replies wait too. Each mark becomes a kReplicas event, or none if its connection closes.
  virtual void AskReplicas(const std::vector<Mark>& marks, uint32_t replicas, double seconds) = 0;

  // Returns when bytes last moved on a connection that owes the partition an answer, on the clock of Now; 0:
  // never.
  virtual double LastMoved(uint32_t) { return 0; }
  // Where the partition is, for messages; "" if it is in this process.
  virtual std::string Where(uint32_t) { return ""; }
  // Appends the descriptors to poll for Poll.
  virtual void Descriptors(std::vector<pollfd>*) {}

  // Sleep waits before another attempt; Now is the time since some fixed moment. Tests have their own clock.
  virtual void Sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }
  virtual double Now() { return SteadySeconds(); }
};

}  // namespace het
