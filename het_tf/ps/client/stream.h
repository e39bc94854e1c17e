// Bytes to and from one server, over a socket that never waits.
//
//   RedisConnection ──► Stream ◄── Socket       TCP or a Unix socket, the bytes as they are
//                              ◄── TlsStream    the same under TLS
//
// Not thread-safe.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <string>

#include "het_tf/ps/client/address.h"

namespace het {

class Stream {
 public:
  // What a call came to. kDone: all that was asked for, and there may be more. kWait: the rest when
  // the socket is ready. kFailed: the stream has ended, and error() says why.
  enum class Io { kDone, kWait, kFailed };

  virtual ~Stream() = default;

  // What to poll; -1 once the socket has failed.
  virtual int fd() const = 0;
  // Whether to wait for room in the socket: for what the stream itself has to send, or for `more`,
  // what its owner has.
  virtual bool WantsToWrite(bool more) const = 0;
  // Both go through the parts in order, and say how many bytes of them were taken or filled.
  virtual Io Write(const iovec* parts, int count, size_t* written) = 0;
  virtual Io Read(const iovec* parts, int count, size_t* got) = 0;
  // Names the server.
  virtual const std::string& error() const = 0;
  // What may be the matter where a server closes, or else is silent, before its first answer; or "".
  virtual std::string Doubt(bool closed) const = 0;
};

// Begins to connect; under TLS where `address` asks for it. What fails at once is in error().
std::unique_ptr<Stream> OpenStream(const ServerNode& node, const ServerAddress& address);

}  // namespace het
