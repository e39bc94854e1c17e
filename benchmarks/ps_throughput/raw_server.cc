#include "benchmarks/ps_throughput/raw_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "het_tf/core/store/partition.h"

namespace het::bench {
namespace {

constexpr size_t kReadBytes = 256 * 1024;

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::exit(1);
}

// Bytes that come in pieces, and the messages in them.
class Inbox {
 public:
  // False when the other side has closed.
  bool Read(int fd) {
    for (;;) {
      if (bytes_.size() < end_ + kReadBytes) bytes_.resize(std::max(end_ + kReadBytes, 2 * bytes_.size()));
      const ssize_t got = recv(fd, bytes_.data() + end_, bytes_.size() - end_, 0);
      if (got == 0) return false;
      if (got < 0) return errno == EAGAIN || errno == EINTR;
      end_ += static_cast<size_t>(got);
      if (end_ < bytes_.size()) return true;
    }
  }
  template <typename Fn>
  void ForEachMessage(Fn fn) {
    size_t at = 0;
    while (end_ - at >= sizeof(uint32_t)) {
      uint32_t size = 0;
      std::memcpy(&size, bytes_.data() + at, sizeof(size));
      if (end_ - at < sizeof(size) + size) break;
      fn(Span<const uint8_t>(bytes_.data() + at + sizeof(size), size));
      at += sizeof(size) + size;
    }
    std::memmove(bytes_.data(), bytes_.data() + at, end_ - at);
    end_ -= at;
  }

 private:
  Bytes bytes_;
  size_t end_ = 0;
};

struct Peer {
  int fd;
  Inbox in;
  Bytes out;
  size_t written = 0;

  void Write() {
    while (written < out.size()) {
      const ssize_t sent = send(fd, out.data() + written, out.size() - written, MSG_NOSIGNAL);
      if (sent < 0) return;
      written += static_cast<size_t>(sent);
    }
    out.clear();
    written = 0;
  }
};

[[noreturn]] void Serve(int listener, std::vector<std::unique_ptr<Partition>> partitions) {
  std::vector<std::unique_ptr<Peer>> peers;
  Bytes reply;
  for (;;) {
    std::vector<pollfd> ready = {{listener, POLLIN, 0}};
    for (auto& peer : peers) {
      ready.push_back({peer->fd, static_cast<short>(POLLIN | (peer->out.empty() ? 0 : POLLOUT)), 0});
    }
    if (poll(ready.data(), ready.size(), -1) < 0) Die("poll");
    for (size_t i = 1; i < ready.size(); ++i) {
      if (ready[i].revents == 0) continue;
      Peer& peer = *peers[i - 1];
      if (!peer.in.Read(peer.fd)) {
        close(peer.fd);
        peer.fd = -1;
        continue;
      }
      peer.in.ForEachMessage([&](Span<const uint8_t> frame) {
        AnswerFrame(frame, &reply, [&](Request* q, ReplyWriter* replies) {
          partitions[q->partition.index]->HandlePart(q, replies);
        });
        const auto size = static_cast<uint32_t>(reply.size());
        const auto* head = reinterpret_cast<const uint8_t*>(&size);
        peer.out.insert(peer.out.end(), head, head + sizeof(size));
        peer.out.insert(peer.out.end(), reply.begin(), reply.end());
        peer.Write();
      });
      peer.Write();
    }
    peers.erase(std::remove_if(peers.begin(), peers.end(), [](const auto& peer) { return peer->fd < 0; }),
                peers.end());
    if (ready[0].revents != 0) {
      const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK);
      const int yes = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
      peers.push_back(std::make_unique<Peer>());
      peers.back()->fd = fd;
    }
  }
}

sockaddr_un Local(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  return address;
}

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

}  // namespace

RawServer::RawServer(const std::string& path, uint32_t partitions, uint64_t hash_seed, const Schema& schema)
    : path_(path) {
  const int listener = socket(path.empty() ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (path.empty()) {
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof(address);
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0) Die("bind");
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  } else {
    const sockaddr_un address = Local(path);
    if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) Die(path.c_str());
  }
  if (listen(listener, 16) != 0) Die("listen");
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::vector<std::unique_ptr<Partition>> all;
    for (uint32_t p = 0; p < partitions; ++p) {
      all.push_back(std::make_unique<Partition>(PartitionId{p, partitions, hash_seed}, 1 + p));
      if (!all.back()->CreateTable(schema, kEpoch).ok()) std::abort();
    }
    Serve(listener, std::move(all));
  }
  close(listener);
}

RawServer::~RawServer() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  if (!path_.empty()) unlink(path_.c_str());
}

int RawServer::Connect() const {
  const int fd = socket(path_.empty() ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  int failed = 0;
  if (path_.empty()) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    const sockaddr_in address = Loopback(port_);
    failed = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  } else {
    const sockaddr_un address = Local(path_);
    failed = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  }
  if (failed != 0) Die("connect");
  fcntl(fd, F_SETFL, O_NONBLOCK);
  return fd;
}

RawTransport::RawTransport(const RawServer& server, uint32_t partitions, uint64_t hash_seed)
    : partitions_(partitions), hash_seed_(hash_seed), fd_(server.Connect()) {}

RawTransport::~RawTransport() { close(fd_); }

void RawTransport::Send(OutFrame frame) {
  const auto size = static_cast<uint32_t>(frame.bytes.size());
  queue_.push_back({size, std::move(frame.bytes), 0});
  owed_.push_back(frame.parts[0].partition);
  Write();
}

void RawTransport::Write() {
  while (queue_begin_ < queue_.size()) {
    Outgoing& out = queue_[queue_begin_];
    const size_t head = sizeof(out.size);
    const size_t body = out.written < head ? 0 : out.written - head;
    iovec parts[] = {{reinterpret_cast<uint8_t*>(&out.size) + std::min(out.written, head),
                      head - std::min(out.written, head)},
                     {out.frame.data() + body, out.frame.size() - body}};
    const ssize_t sent = writev(fd_, parts, 2);
    if (sent < 0) {
      if (errno == EAGAIN || errno == EINTR) return;
      Die("raw server");
    }
    out.written += static_cast<size_t>(sent);
    if (out.written == head + out.frame.size()) ++queue_begin_;
  }
  queue_.clear();
  queue_begin_ = 0;
}

bool RawTransport::Poll(double seconds, std::vector<Event>* events) {
  pollfd ready{fd_, static_cast<short>(POLLIN | (queue_.empty() ? 0 : POLLOUT)), 0};
  if (poll(&ready, 1, seconds <= 0 ? 0 : std::max(1, static_cast<int>(seconds * 1000))) <= 0) return false;
  Write();
  if (in_.size() < in_end_ + kReadBytes) in_.resize(std::max(in_end_ + kReadBytes, 2 * in_.size()));
  const ssize_t got = recv(fd_, in_.data() + in_end_, in_.size() - in_end_, 0);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) Die("raw server");
  if (got > 0) in_end_ += static_cast<size_t>(got);
  size_t at = 0;
  bool any = false;
  while (in_end_ - at >= sizeof(uint32_t)) {
    uint32_t size = 0;
    std::memcpy(&size, in_.data() + at, sizeof(size));
    if (in_end_ - at < sizeof(size) + size) break;
    const uint8_t* frame = in_.data() + at + sizeof(size);
    Event event;
    event.partition = owed_[owed_begin_++];
    event.bytes.assign(frame, frame + size);
    events->push_back(std::move(event));
    any = true;
    at += sizeof(size) + size;
  }
  std::memmove(in_.data(), in_.data() + at, in_end_ - at);
  in_end_ -= at;
  if (owed_begin_ == owed_.size()) {
    owed_.clear();
    owed_begin_ = 0;
  }
  return any;
}

void RawTransport::Sleep(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

double RawTransport::Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace het::bench
