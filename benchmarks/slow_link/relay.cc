// Hands bytes on between clients and one server, later than they came: a link with a latency and a rate.
//
//   slow_link_relay HOST:PORT TARGET        TARGET: HOST:PORT, or the path of a Unix socket
//
// prints "ready" and then obeys lines of its standard input, each with a line of its own:
//
//   delay SECONDS      from now on bytes are handed on so much later, in each direction      ok
//   rate BYTES         a second, of all connections together, in each direction; 0: any      ok
//   bytes              how many came from clients, and how many from the server              IN OUT
//
// It ends with its standard input. One thread waits for all sockets. A direction of a connection is a queue
// of chunks, each with the time when it may go on; a chunk takes its share of the link's time when it is
// read, so connections share the link as they come. A sender whose queue is full is not read any more.

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace {

using Nanos = int64_t;

constexpr size_t kChunk = 4096;        // bytes that travel as one: small, so that a link is no staircase
constexpr size_t kQueue = 8u << 20;    // bytes of a direction that wait before its sender must
constexpr Nanos kForever = INT64_MAX;  // no chunk waits

Nanos Now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return Nanos{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "slow_link_relay: %s\n", what.c_str());
  std::exit(2);
}

// A file descriptor that is closed with its owner.
class Socket {
 public:
  explicit Socket(int number) : number_(number) {}
  Socket(Socket&& other) noexcept : number_(other.number_) { other.number_ = -1; }
  Socket& operator=(Socket&& other) = delete;
  ~Socket() {
    if (number_ >= 0) close(number_);
  }
  int number() const { return number_; }

 private:
  int number_;
};

struct Address {
  sockaddr_storage data{};
  socklen_t size = 0;
};

Address ParseAddress(const std::string& text) {
  Address address;
  const size_t colon = text.rfind(':');
  auto* ip = reinterpret_cast<sockaddr_in*>(&address.data);
  if (text.find('/') != std::string::npos) {
    auto* path = reinterpret_cast<sockaddr_un*>(&address.data);
    if (text.size() >= sizeof path->sun_path) Fail(text + ": the path is too long");
    path->sun_family = AF_UNIX;
    std::memcpy(path->sun_path, text.c_str(), text.size() + 1);
    address.size = sizeof *path;
  } else if (colon == std::string::npos ||
             inet_pton(AF_INET, text.substr(0, colon).c_str(), &ip->sin_addr) != 1) {
    Fail("'" + text + "' is no address: give IPV4:PORT, or the path of a Unix socket");
  } else {
    ip->sin_family = AF_INET;
    ip->sin_port = htons(static_cast<uint16_t>(std::atoi(text.c_str() + colon + 1)));
    address.size = sizeof *ip;
  }
  return address;
}

// Small messages go at once, as Redis and its clients ask for.
void SendAtOnce(int socket) {
  const int yes = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

// The link in one direction, of all connections.
struct Link {
  Nanos delay = 0;
  double seconds_a_byte = 0;
  Nanos free = 0;  // when the last byte that was read will have left
  uint64_t bytes = 0;

  // When a chunk that was read at `now` may go on.
  Nanos Pass(size_t size, Nanos now) {
    bytes += size;
    const double took = static_cast<double>(size) * seconds_a_byte * 1e9;
    free = std::max(free, now) + static_cast<Nanos>(took);
    return free + delay;
  }
};

// One direction of one connection.
class Pipe {
 public:
  Pipe(int from, int to, Link* link) : from_(from), to_(to), link_(link) {}

  bool Reads() const { return !ended_ && waiting_ < kQueue; }
  bool Done() const { return ended_ && queue_.empty(); }
  // When the first chunk may go on; kForever if none waits.
  Nanos Due() const { return queue_.empty() ? kForever : queue_.front().due; }
  int from() const { return from_; }
  int to() const { return to_; }

  // Reads what has come. False: the connection is broken.
  bool Read() {
    while (Reads()) {
      std::string data(kChunk, '\0');
      const ssize_t got = recv(from_, data.data(), data.size(), MSG_DONTWAIT);
      if (got < 0) return errno == EAGAIN || errno == EINTR;
      if (got == 0) {
        ended_ = true;
        return true;
      }
      data.resize(static_cast<size_t>(got));
      waiting_ += data.size();
      const Nanos due = link_->Pass(data.size(), Now());
      // A delay that has become shorter reorders nothing.
      queue_.push_back({queue_.empty() ? due : std::max(due, queue_.back().due), std::move(data)});
    }
    return true;
  }

  // Hands on what is due. False: the connection is broken.
  bool Write(Nanos now) {
    while (!queue_.empty() && queue_.front().due <= now) {
      const std::string& data = queue_.front().data;
      const ssize_t sent = send(to_, data.data() + sent_, data.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0) return errno == EAGAIN || errno == EINTR;
      sent_ += static_cast<size_t>(sent);
      waiting_ -= static_cast<size_t>(sent);
      if (sent_ < data.size()) return true;
      sent_ = 0;
      queue_.pop_front();
    }
    if (Done() && !told_) {
      told_ = true;
      shutdown(to_, SHUT_WR);
    }
    return true;
  }

 private:
  struct Chunk {
    Nanos due;
    std::string data;
  };

  int from_, to_;
  Link* link_;
  std::deque<Chunk> queue_;
  size_t sent_ = 0;     // of the first chunk
  size_t waiting_ = 0;  // in the queue
  bool ended_ = false, told_ = false;
};

struct Connection {
  Connection(Socket a_client, Socket a_server, Link* in, Link* out)
      : client(std::move(a_client)),
        server(std::move(a_server)),
        pipes{Pipe(client.number(), server.number(), in), Pipe(server.number(), client.number(), out)} {}

  Socket client, server;
  Pipe pipes[2];
};

class Relay {
 public:
  Relay(const std::string& listen_on, const std::string& target)
      : target_(ParseAddress(target)), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const Address address = ParseAddress(listen_on);
    const int yes = 1;
    setsockopt(listener_.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener_.number(), reinterpret_cast<const sockaddr*>(&address.data), address.size) != 0 ||
        listen(listener_.number(), 64) != 0) {
      Fail("cannot listen on " + listen_on + ": " + std::strerror(errno));
    }
  }

  // Hands bytes on until the standard input ends.
  void Run() {
    std::puts("ready");
    std::fflush(stdout);
    while (Wait()) {
    }
  }

 private:
  bool Wait() {
    std::vector<pollfd> polled = {{STDIN_FILENO, POLLIN, 0}, {listener_.number(), POLLIN, 0}};
    Nanos due = kForever;
    const Nanos before = Now();
    for (const auto& connection : connections_) {
      for (const Pipe& pipe : connection->pipes) {
        // What is due and yet here waits for its receiver.
        const bool blocked = pipe.Due() <= before;
        polled.push_back({pipe.Reads() ? pipe.from() : -1, POLLIN, 0});
        polled.push_back({blocked ? pipe.to() : -1, POLLOUT, 0});
        if (!blocked) due = std::min(due, pipe.Due());
      }
    }
    timespec time{};
    if (due != kForever) {
      const Nanos left = std::max<Nanos>(0, due - before);
      time = {static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
    }
    ppoll(polled.data(), polled.size(), due == kForever ? nullptr : &time, nullptr);

    size_t at = 2;
    for (auto& connection : connections_) {
      bool whole = true;
      for (Pipe& pipe : connection->pipes) {
        if (polled[at].fd >= 0 && polled[at].revents != 0) whole &= pipe.Read();
        at += 2;
      }
      for (Pipe& pipe : connection->pipes) whole &= pipe.Write(Now());
      if (!whole || (connection->pipes[0].Done() && connection->pipes[1].Done())) {
        connection.reset();
      }
    }
    connections_.erase(std::remove(connections_.begin(), connections_.end(), nullptr), connections_.end());
    if (polled[1].revents != 0) Accept();
    return polled[0].revents == 0 || Obey();
  }

  void Accept() {
    Socket client(accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (client.number() < 0) return;
    Socket server(socket(target_.data.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(server.number(), reinterpret_cast<const sockaddr*>(&target_.data), target_.size) != 0) {
      return;  // the client sees its connection end
    }
    SendAtOnce(client.number());
    SendAtOnce(server.number());
    connections_.push_back(std::make_unique<Connection>(std::move(client), std::move(server), &in_, &out_));
  }

  // Reads commands. False: there will be no more.
  bool Obey() {
    char data[4096];
    const ssize_t got = read(STDIN_FILENO, data, sizeof data);
    if (got <= 0) return false;
    input_.append(data, static_cast<size_t>(got));
    for (size_t end; (end = input_.find('\n')) != std::string::npos; input_.erase(0, end + 1)) {
      Do(input_.substr(0, end));
    }
    return true;
  }

  void Do(const std::string& line) {
    double value = -1;
    if (std::sscanf(line.c_str(), "delay %lf", &value) == 1 && value >= 0) {
      in_.delay = out_.delay = static_cast<Nanos>(value * 1e9);
      std::puts("ok");
    } else if (std::sscanf(line.c_str(), "rate %lf", &value) == 1 && value >= 0) {
      in_.seconds_a_byte = out_.seconds_a_byte = value == 0 ? 0 : 1 / value;
      in_.free = out_.free = 0;
      std::puts("ok");
    } else if (line == "bytes") {
      std::printf("%llu %llu\n", static_cast<unsigned long long>(in_.bytes),
                  static_cast<unsigned long long>(out_.bytes));
    } else {
      Fail("'" + line + "' is no command: give delay SECONDS, rate BYTES or bytes");
    }
    std::fflush(stdout);
  }

  Address target_;
  Socket listener_;
  Link in_, out_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::string input_;
};

}  // namespace

int main(int count, char** words) {
  if (count != 3) Fail("give HOST:PORT to listen on, and the address of the server");
  std::signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_TIMERSLACK, 1000);  // wakes within a microsecond, not fifty
  Relay(words[1], words[2]).Run();
}
