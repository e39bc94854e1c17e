#include "het_tf/ext/ps/client/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace het {
namespace {

size_t Total(const iovec* parts, int count) {
  size_t total = 0;
  for (int i = 0; i < count; ++i) total += parts[i].iov_len;
  return total;
}

}  // namespace

Socket::Socket(const ServerNode& node) : node_(node) {
  if (Resolve()) Connect();
}

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

Stream::Io Socket::Fail(std::string error) {
  error_ = std::move(error);
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  return Io::kFailed;
}

bool Socket::Resolve() {
  if (node_.host.empty()) {
    sockaddr_un local{};
    local.sun_family = AF_UNIX;
    std::memcpy(local.sun_path, node_.path.data(), node_.path.size());
    addresses_.emplace_back(reinterpret_cast<const char*>(&local), sizeof(local));
    return true;
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(node_.host.c_str(), std::to_string(node_.port).c_str(), &hints, &found);
  if (error != 0) {
    Fail("cannot resolve '" + node_.host + "': " + gai_strerror(error));
    return false;
  }
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    addresses_.emplace_back(reinterpret_cast<const char*>(one->ai_addr), one->ai_addrlen);
  }
  freeaddrinfo(found);
  std::reverse(addresses_.begin(), addresses_.end());
  return true;
}

void Socket::Connect() {
  int error = ECONNREFUSED;
  while (!addresses_.empty()) {
    const std::string address = std::move(addresses_.back());
    addresses_.pop_back();
    sockaddr_storage where{};
    std::memcpy(&where, address.data(), address.size());
    fd_ = socket(where.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ >= 0) {
      const int yes = 1;
      if (!node_.host.empty()) setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
      if (connect(fd_, reinterpret_cast<const sockaddr*>(&where), static_cast<socklen_t>(address.size())) ==
          0) {
        connected_ = true;
        return;
      }
      if (errno == EINPROGRESS) return;
    }
    error = errno;
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  Fail("cannot connect to " + node_.ToString() + ": " + std::strerror(error));
}

Stream::Io Socket::FinishConnecting() {
  if (fd_ < 0) return Io::kFailed;
  if (connected_) return Io::kDone;
  pollfd writable{fd_, POLLOUT, 0};
  if (poll(&writable, 1, 0) <= 0) return Io::kWait;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == 0) {
    connected_ = true;
    return Io::kDone;
  }
  if (addresses_.empty()) return Fail("cannot connect to " + node_.ToString() + ": " + std::strerror(error));
  close(fd_);
  fd_ = -1;
  Connect();  // tries the host's next address
  return fd_ < 0 ? Io::kFailed : connected_ ? Io::kDone : Io::kWait;
}

Stream::Io Socket::Write(const iovec* parts, int count, size_t* written) {
  *written = 0;
  const Io connected = FinishConnecting();
  if (connected != Io::kDone) return connected;
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = static_cast<size_t>(count);
  for (;;) {
    const ssize_t sent = sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (sent >= 0) {
      *written = static_cast<size_t>(sent);
      return *written == Total(parts, count) ? Io::kDone : Io::kWait;
    }
    // A server that has closed the connection may have said why: reading tells, and fails.
    const bool closed = errno == EPIPE || errno == ECONNRESET;
    if (closed || errno == EAGAIN || errno == EWOULDBLOCK) return Io::kWait;
    if (errno != EINTR) return Fail("writing to " + node_.ToString() + ": " + std::strerror(errno));
  }
}

Stream::Io Socket::Read(const iovec* parts, int count, size_t* got) {
  *got = 0;
  const Io connected = FinishConnecting();
  if (connected != Io::kDone) return connected;
  for (;;) {
    const ssize_t came = readv(fd_, parts, count);
    if (came == 0) return Fail(node_.ToString() + " closed the connection");
    if (came > 0) {
      *got = static_cast<size_t>(came);
      return *got == Total(parts, count) ? Io::kDone : Io::kWait;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Io::kWait;
    if (errno != EINTR) return Fail("reading from " + node_.ToString() + ": " + std::strerror(errno));
  }
}

std::string Socket::Doubt(bool closed) const {
  return closed && connected_ && !node_.host.empty() ? "a server that speaks TLS needs rediss:// for redis://"
                                                     : "";
}

}  // namespace het
