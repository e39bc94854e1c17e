// Something that talks like a Redis server with the module, on a TCP port of this machine, and does what a
// test tells it: answers frames truly from a LocalService, refuses those that the test picks, redirects, or
// reads slowly.
//
//   client ──► one thread: parse commands ──► script(command) ──► "" : the true answer
//                                                             ──► else: this text, as it stands
#ifndef HET_TESTS_CPP_TESTING_FAKE_SERVER_H_
#define HET_TESTS_CPP_TESTING_FAKE_SERVER_H_

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "het_tf/core/frame_parts.h"
#include "het_tf/core/local_service.h"
#include "het_tf/ps/client/address.h"

namespace het::testing {

class FakeServer {
 public:
  struct Command {
    std::vector<std::string> words;
    bool asking = false;  // it came behind ASKING
    bool frame() const { return words[0] == "HET.STEP" || words[0] == "HET.READ"; }
  };
  using Script = std::function<std::string(const Command&)>;

  // `keys`: of the partitions of `service`, in order. Several servers may share one service.
  FakeServer(LocalService* service, std::vector<std::string> keys) : service_(service) {
    for (uint32_t p = 0; p < keys.size(); ++p) partition_of_[keys[p]] = p;
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int small = 1 << 16;  // so that a slow reader is felt at the other end
    setsockopt(listener_, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_, 16) != 0)
      std::abort();
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~FakeServer() {
    stop_.store(true);
    thread_.join();
    close(listener_);
    for (auto& [fd, connection] : connections_) close(fd);
  }

  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }
  ServerAddress address() const { return ParseServerAddress("redis://" + endpoint()).value(); }
  // Whatever is not in it is answered truly.
  void SetScript(Script script) {
    std::lock_guard<std::mutex> lock(mutex_);
    script_ = std::move(script);
  }
  // Partitions that it does not have: of several parts, those are elsewhere.
  void SetGone(std::set<uint32_t> gone) {
    std::lock_guard<std::mutex> lock(mutex_);
    gone_ = std::move(gone);
  }
  // Says that every slot is at this server, as a cluster's node; else there is no cluster.
  std::atomic<bool> cluster{false};
  // Between two reads of at most 64 KiB.
  std::atomic<int> pause_milliseconds{0};
  std::atomic<int> frames{0};       // that were answered truly
  std::atomic<int> many_parts{0};   // of these: with several parts
  std::atomic<int> elsewhere{0};    // parts that were told so
  std::atomic<int> connections{0};  // that there ever were
  std::atomic<int> reads{0};        // commands that came together were one read, mostly

 private:
  struct Connection {
    std::string in;
    bool asking = false;
  };

  void Serve() {
    while (!stop_.load()) {
      std::vector<pollfd> ready = {{listener_, POLLIN, 0}};
      for (auto& [fd, connection] : connections_) ready.push_back({fd, POLLIN, 0});
      if (poll(ready.data(), ready.size(), 20) <= 0) continue;
      for (size_t i = 1; i < ready.size(); ++i) {
        if (ready[i].revents != 0) Read(ready[i].fd);
      }
      if (ready[0].revents != 0) {
        connections_[accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)];
        ++connections;
      }
    }
  }
  void Read(int fd) {
    std::vector<char> bytes(1 << 16);
    if (pause_milliseconds.load() > 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(pause_milliseconds.load()));
    const ssize_t got = recv(fd, bytes.data(), bytes.size(), 0);
    ++reads;
    if (got <= 0) {
      close(fd);
      connections_.erase(fd);
      return;
    }
    Connection& connection = connections_[fd];
    connection.in.append(bytes.data(), static_cast<size_t>(got));
    Command command;
    while (Take(&connection.in, &command)) {
      command.asking = connection.asking;
      connection.asking = command.words[0] == "ASKING";
      const std::string answer = Answer(command);
      for (size_t sent = 0; sent < answer.size();) {
        const ssize_t n = send(fd, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
        if (n <= 0) return;
        sent += static_cast<size_t>(n);
      }
    }
  }
  // Takes one command off the front, if it is complete.
  static bool Take(std::string* in, Command* command) {
    size_t at = 0;
    auto number = [&](char kind, size_t* value) {
      const size_t end = in->find("\r\n", at);
      if (end == std::string::npos || (*in)[at] != kind) return false;
      *value = std::stoul(in->substr(at + 1, end - at - 1));
      at = end + 2;
      return true;
    };
    size_t words = 0;
    command->words.clear();
    if (!number('*', &words)) return false;
    for (; words > 0; --words) {
      size_t size = 0;
      if (!number('$', &size) || in->size() < at + size + 2) return false;
      command->words.push_back(in->substr(at, size));
      at += size + 2;
    }
    in->erase(0, at);
    return true;
  }
  std::string Answer(const Command& command) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (script_ != nullptr) {
        const std::string scripted = script_(command);
        if (!scripted.empty()) return scripted + "\r\n";
      }
    }
    if (command.words[0] == "ASKING") return "+OK\r\n";
    if (command.words[0] == "WAIT") return ":0\r\n";
    if (command.words[0] == "CLUSTER") {
      if (!cluster.load()) return "-ERR This instance has cluster support disabled\r\n";
      const std::string port = std::to_string(port_);
      return "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:" + port + "\r\n";
    }
    if (!command.frame()) return "-ERR unknown command\r\n";
    ++frames;
    const std::string& body = command.words[2];
    const Span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(body.data()), body.size());
    Bytes reply;
    if (IsOfManyParts(bytes)) {
      ++many_parts;
      std::lock_guard<std::mutex> lock(mutex_);
      AnswerParts(bytes, &reply, [this](Request* q, ReplyWriter* replies) {
        const PartRef part{q->partition.index, q->request_id};
        if (gone_.count(part.partition) == 0) return service_->HandlePart(q, replies);
        ++elsewhere;
        replies->Add(PartRefusal(part, FrameStatus::kElsewhere, ""));
      });
      return "$" + std::to_string(reply.size()) + "\r\n" + std::string(reply.begin(), reply.end()) + "\r\n";
    }
    service_->Handle(partition_of_.at(command.words[1]), bytes, &reply);
    return "$" + std::to_string(reply.size()) + "\r\n" + std::string(reply.begin(), reply.end()) + "\r\n";
  }

  LocalService* const service_;
  std::map<std::string, uint32_t> partition_of_;
  int listener_;
  int port_ = 0;
  std::mutex mutex_;
  Script script_;
  std::set<uint32_t> gone_;
  std::map<int, Connection> connections_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace het::testing

#endif  // HET_TESTS_CPP_TESTING_FAKE_SERVER_H_
