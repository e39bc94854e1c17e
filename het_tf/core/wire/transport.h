// What carries frames between a client and the partitions. The client (client.h) is written against
// this: the embedded store, a remote server and a test that delays, cuts, duplicates and refuses
// are three implementations.
//
// A transport is used by one client at a time, from one thread at a time.
#pragma once

#include <poll.h>

#include <cstdint>
#include <string>
#include <vector>

#include "het_tf/core/base/bytes.h"
#include "het_tf/core/wire/ids.h"
#include "het_tf/core/wire/out_frame.h"

namespace het {

class Transport {
 public:
  struct Event {
    enum Kind {
      kReply,      // bytes: one reply frame, of one part or several
      kClosed,     // the connection to the partition is gone; replies that it owed will not come
      kRefused,    // the server answered something else than a frame (busy loading, out of memory, ...): try
                   // later
      kRejected,   // the server will answer so every time until somebody changes something (no permission, no
                   // such command): the call fails
      kGone,       // the partition is not at its server, and nobody moves it there: the call fails
      kReplicas,   // `replicas` of them hold everything up to push `seq`, which AskReplicas asked about
      kUncounted,  // the server refuses to answer that question
    };
    Kind kind = kReply;
    uint32_t partition = 0;
    Bytes bytes;
    std::string reason;       // for people; of all but kReply and kReplicas
    uint32_t request_id = 0;  // of kRefused, kRejected, kGone: the request's; 0: of the oldest one on its way
    uint64_t seq = 0;
    uint32_t replicas = 0;
  };
  // A push that was applied over the connection that its partition has now.
  struct Mark {
    uint32_t partition;
    uint64_t seq;
  };

  virtual ~Transport() = default;

  virtual uint32_t partitions() const = 0;
  virtual PartitionId id(uint32_t partition) const = 0;
  // Partitions of which parts may share a frame now have the same number here.
  virtual uint32_t ShardOf(uint32_t partition) { return partition; }
  // Hands a request frame over. Frames to one partition stay in order as long as the connection
  // lives. Send never blocks for the reply; a connection that cannot be used becomes a kClosed
  // event. What becomes of the frame is told once for each of its parts, but a reply once for all.
  virtual void Send(OutFrame frame) = 0;

  // Memory for a frame: empty, with room for `size` bytes, and perhaps used before.
  virtual Bytes Buffer(size_t size) {
    Bytes bytes;
    bytes.reserve(size);
    return bytes;
  }
  // Takes back the memory of an event that has been read.
  virtual void Recycle(Bytes) {}

  // Appends what has happened since; waits at most `seconds` for the first event. Returns false
  // when nothing came.
  virtual bool Poll(double seconds, std::vector<Event>* events) = 0;

  // Closes the connection to a partition and forgets what it owed. The next Send opens a new one.
  virtual void Reset(uint32_t partition) = 0;

  // The connection that carries the partition's frames now: another number whenever it is another
  // one; 0 when there is none.
  virtual uint64_t Connection(uint32_t partition) = 0;
  // Asks how many replicas hold the marked pushes, over the connections that carried them: what a
  // server promises holds for its connection's own writes. It waits at most `seconds` for
  // `replicas` of them, and replies behind it wait too. Each mark becomes a kReplicas event, or
  // nothing if its connection closes.
  virtual void AskReplicas(const std::vector<Mark>& marks, uint32_t replicas, double seconds) = 0;

  // When bytes last moved on a connection that owes the partition an answer, in the time of Now; 0:
  // never.
  virtual double LastMoved(uint32_t) { return 0; }
  // Where the partition is, for people; "" when it is in this process.
  virtual std::string Where(uint32_t) { return ""; }
  // What to poll for to know that Poll would find something.
  virtual void Descriptors(std::vector<pollfd>*) {}

  // Waits before another attempt, and the time since some fixed moment. A test's transport has a
  // clock of its own.
  virtual void Sleep(double seconds) = 0;
  virtual double Now() = 0;
};

}  // namespace het
