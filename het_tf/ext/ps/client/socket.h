// A nonblocking TCP or Unix socket: connects to the first of a host's addresses that answers.
#pragma once

#include <string>
#include <vector>

#include "het_tf/ext/ps/client/stream.h"

namespace het {

class Socket final : public Stream {
 public:
  explicit Socket(const ServerNode& node);
  ~Socket() override;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  // Whether it was ever connected.
  bool connected() const { return connected_; }
  int fd() const override { return fd_; }
  bool WantsToWrite(bool more) const override { return !connected_ || more; }
  Io Write(const iovec* parts, int count, size_t* written) override;
  Io Read(const iovec* parts, int count, size_t* got) override;
  const std::string& error() const override { return error_; }
  std::string Doubt(bool closed) const override;

 private:
  bool Resolve();
  // Connects to the host's next address; fails after the last.
  void Connect();
  // kDone once the socket is connected.
  Io FinishConnecting();
  Io Fail(std::string error);

  const ServerNode node_;
  std::vector<std::string> addresses_;  // sockaddr; the next to try is last
  int fd_ = -1;
  bool connected_ = false;
  std::string error_;
};

}  // namespace het
