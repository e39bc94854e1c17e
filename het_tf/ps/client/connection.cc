#include "het_tf/ps/client/connection.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "het_tf/core/base/steady_seconds.h"

namespace het {
namespace {

void Append(Bytes* bytes, const std::string& text) { bytes->insert(bytes->end(), text.begin(), text.end()); }

void AppendWord(Bytes* bytes, const std::string& word) {
  Append(bytes, "$" + std::to_string(word.size()) + "\r\n");
  Append(bytes, word);
  Append(bytes, "\r\n");
}

// An answer that comes byte by byte ends too, after so many times the seconds that one may take.
constexpr double kMostTimes = 10;

std::string Errno() { return std::strerror(errno); }

}  // namespace

RedisConnection::RedisConnection(const ServerNode& node, const std::string& user, const std::string& password,
                                 BytePool* pool)
    : node_(node), moved_at_(SteadySeconds()), pool_(pool), reader_(pool) {
  if (Resolve()) Connect();
  if (closed() || password.empty()) return;
  awaits_auth_ = true;
  Enqueue(user.empty() ? std::vector<std::string>{"AUTH", password}
                       : std::vector<std::string>{"AUTH", user, password});
}

RedisConnection::~RedisConnection() { Close("the client left"); }

bool RedisConnection::Resolve() {
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
    Close("cannot resolve '" + node_.host + "': " + gai_strerror(error));
    return false;
  }
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    addresses_.emplace_back(reinterpret_cast<const char*>(one->ai_addr), one->ai_addrlen);
  }
  freeaddrinfo(found);
  std::reverse(addresses_.begin(), addresses_.end());
  return true;
}

void RedisConnection::Connect() {
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
      connecting_ = true;
      if (connect(fd_, reinterpret_cast<const sockaddr*>(&where), static_cast<socklen_t>(address.size())) ==
          0) {
        connecting_ = false;
        return;
      }
      if (errno == EINPROGRESS) return;
    }
    error = errno;
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  Close("cannot connect to " + node_.ToString() + ": " + std::strerror(error));
}

void RedisConnection::FinishConnecting() {
  pollfd writable{fd_, POLLOUT, 0};
  if (poll(&writable, 1, 0) <= 0) return;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
  connecting_ = false;
  if (error == 0) return;
  if (addresses_.empty()) return Close("cannot connect to " + node_.ToString() + ": " + std::strerror(error));
  close(fd_);
  fd_ = -1;
  Connect();  // the host has more addresses
}

void RedisConnection::Close(std::string reason) {
  if (reason_.empty()) reason_ = std::move(reason);
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  connecting_ = false;
  queue_.clear();
}

void RedisConnection::Enqueue(const std::string& command, const std::string& key, Bytes body) {
  Outgoing head;
  Append(&head.bytes, "*3\r\n");
  AppendWord(&head.bytes, command);
  AppendWord(&head.bytes, key);
  Append(&head.bytes, "$" + std::to_string(body.size()) + "\r\n");
  Outgoing tail;
  Append(&tail.bytes, "\r\n");
  queue_.push_back(std::move(head));
  queue_.push_back({std::move(body), 0});
  queue_.push_back(std::move(tail));
}

void RedisConnection::Enqueue(const std::vector<std::string>& words) {
  Outgoing command;
  Append(&command.bytes, "*" + std::to_string(words.size()) + "\r\n");
  for (const std::string& word : words) AppendWord(&command.bytes, word);
  queue_.push_back(std::move(command));
}

double RedisConnection::moved_at() {
  // The kernel takes megabytes at once, and a slow link carries them for long.
  int unsent = 0;
  if (!closed() && ioctl(fd_, SIOCOUTQ, &unsent) == 0 && unsent != 0 && unsent != unsent_)
    moved_at_ = SteadySeconds();
  unsent_ = unsent;
  return moved_at_;
}

void RedisConnection::Write() {
  if (closed()) return;
  if (connecting_) FinishConnecting();
  while (!closed() && !connecting_ && !queue_.empty()) {
    iovec parts[64];
    int count = 0;
    for (const Outgoing& out : queue_) {
      if (count == 64) break;
      parts[count++] = {const_cast<uint8_t*>(out.bytes.data()) + out.written, out.bytes.size() - out.written};
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = static_cast<size_t>(count);
    const ssize_t written = sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (written < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      if (errno == EINTR) continue;
      return Close("writing to " + node_.ToString() + ": " + Errno());
    }
    wrote_ = true;
    moved_at_ = SteadySeconds();
    for (size_t left = static_cast<size_t>(written); !queue_.empty();) {
      Outgoing& front = queue_.front();
      const size_t rest = front.bytes.size() - front.written;
      if (left < rest) {
        front.written += left;
        break;
      }
      left -= rest;
      if (pool_ != nullptr) pool_->Give(std::move(front.bytes));
      queue_.pop_front();
    }
  }
}

void RedisConnection::Read(std::vector<RedisReply>* replies) {
  if (closed()) return;
  if (connecting_) {
    FinishConnecting();
    if (closed() || connecting_) return;
  }
  buffer_.resize(kReadBytes);
  for (;;) {
    // A frame that has begun to come goes where it stays; what the buffer gets is copied. So where
    // large frames come, the buffer gets the beginning of the next one and no more.
    Span<uint8_t> room = reader_.Room();
    if (room.size() < kDirectBytes) room = {};
    const size_t behind = reader_.last_string() < kDirectBytes ? kReadBytes : kBehindBytes;
    const iovec parts[] = {{room.data(), room.size()}, {buffer_.data(), behind}};
    const ssize_t got = readv(fd_, parts, 2);
    if (got == 0) return Close(node_.ToString() + " closed the connection");
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) Close("reading from " + node_.ToString() + ": " + Errno());
      return;
    }
    moved_at_ = SteadySeconds();
    const size_t before = replies->size();
    const size_t direct = std::min(static_cast<size_t>(got), room.size());
    reader_.Took(direct);
    if (!reader_.Feed({buffer_.data(), static_cast<size_t>(got) - direct}, replies)) {
      return Close(node_.ToString() + " sent what is no reply: " + reader_.error());
    }
    if (awaits_auth_ && replies->size() > before) {
      awaits_auth_ = false;
      const RedisReply login = std::move((*replies)[before]);
      replies->erase(replies->begin() + static_cast<ptrdiff_t>(before));
      if (!login.ok()) {
        replies->resize(before);  // refusals of what was sent behind it
        return Close(node_.ToString() + " refuses the login: " + login.text());
      }
    }
    if (static_cast<size_t>(got) < room.size() + behind) return;
  }
}

Status RedisConnection::Ask(const std::vector<std::vector<std::string>>& commands, double seconds,
                            std::vector<RedisReply>* replies) {
  for (const std::vector<std::string>& words : commands) Enqueue(words);
  const double start = SteadySeconds();
  while (!closed() && replies->size() < commands.size()) {
    Write();
    const double left =
        std::min(std::max(start, moved_at()) + seconds, start + kMostTimes * seconds) - SteadySeconds();
    if (left <= 0)
      Close(node_.ToString() + " gave no answer for " + std::to_string(static_cast<int>(seconds)) + " s");
    if (closed()) break;
    pollfd ready{fd_, static_cast<short>(POLLIN | (wants_to_write() ? POLLOUT : 0)), 0};
    poll(&ready, 1, static_cast<int>(std::clamp(left * 1000, 1.0, 1000.0)));
    Read(replies);
  }
  if (replies->size() > commands.size()) {  // which of them answers what, nobody can tell
    Close(node_.ToString() + " answered what nobody asked");
    replies->clear();
  }
  return replies->size() < commands.size() ? Status(Code::kUnavailable, reason_) : Status();
}

Result<RedisReply> RedisConnection::Ask(const std::vector<std::string>& words, double seconds) {
  std::vector<RedisReply> replies;
  HET_RETURN_IF_ERROR(Ask({words}, seconds, &replies));
  return std::move(replies[0]);
}

}  // namespace het
