// What carries frames between a client and the partitions. The client (client.h) is written against this: the
// embedded store, a remote server and a test that delays, cuts, duplicates and refuses are three
// implementations.
//
// A transport is used by one client at a time, from one thread at a time.
#ifndef HET_TF_CORE_TRANSPORT_H_
#define HET_TF_CORE_TRANSPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "het_tf/core/bytes.h"
#include "het_tf/core/frame.h"

namespace het {

// The reason of a kRefused event when the store has no memory left.
constexpr char kStoreOutOfMemory[] = "the store is out of memory";

class Transport {
 public:
  struct Event {
    enum Kind {
      kReply,     // bytes: one reply frame
      kClosed,    // the connection to the partition is gone; replies that it owed will not come
      kRefused,   // the server answered something else than a frame (busy loading, out of memory, ...): try
                  // later
      kRejected,  // the server will answer so every time until somebody changes something (no permission, no
                  // such command): the call fails
    };
    Kind kind = kReply;
    uint32_t partition = 0;
    Bytes bytes;
    std::string reason;  // for people; of all but kReply
  };

  virtual ~Transport() = default;

  virtual uint32_t partitions() const = 0;
  virtual PartitionId id(uint32_t partition) const = 0;
  // Hands a request frame over. Frames to one partition stay in order as long as the connection lives. Never
  // blocks for the reply; a connection that cannot be used becomes a kClosed event.
  virtual void Send(uint32_t partition, Bytes frame) = 0;

  // Appends what has happened since; waits at most `seconds` for the first event. Returns false when nothing
  // came.
  virtual bool Poll(double seconds, std::vector<Event>* events) = 0;

  // Closes the connection to a partition and forgets what it owed. The next Send opens a new one.
  virtual void Reset(uint32_t partition) = 0;

  // Waits before another attempt, and the time since some fixed moment. A test's transport has a clock of its
  // own.
  virtual void Sleep(double seconds) = 0;
  virtual double Now() = 0;
};

}  // namespace het

#endif  // HET_TF_CORE_TRANSPORT_H_
