// A byte stream to one server over a nonblocking socket.
//
//   RedisConnection ──► Stream ◄── Socket       TCP or a Unix socket, the bytes as they are
//                              ◄── TlsStream    the same under TLS
//
// Not thread-safe.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <string>

#include "het_tf/ext/ps/client/address.h"

namespace het {

class Stream {
 public:
  // Result of a call. kDone: complete, and there may be more. kWait: call again when the socket is ready.
  // kFailed: the stream has ended; error() says why.
  enum class Io { kDone, kWait, kFailed };

  virtual ~Stream() = default;

  // The descriptor to poll; -1 after a failure.
  virtual int fd() const = 0;
  // Whether to poll for writing: the stream has bytes to send, or its owner has (`more`).
  virtual bool WantsToWrite(bool more) const = 0;
  // Both process the parts in order, and return the number of bytes written or read.
  virtual Io Write(const iovec* parts, int count, size_t* written) = 0;
  virtual Io Read(const iovec* parts, int count, size_t* got) = 0;
  // The message names the server.
  virtual const std::string& error() const = 0;
  // A likely cause if a server closes or stays silent before its first answer; or "".
  virtual std::string Doubt(bool closed) const = 0;
};

// Starts to connect, with TLS if `address` says so. error() has immediate failures.
std::unique_ptr<Stream> OpenStream(const ServerNode& node, const ServerAddress& address);

}  // namespace het
