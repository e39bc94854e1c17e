#include "tests/testing/redis/fake_server.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <utility>

namespace het::testing {

FakeServer::FakeServer(LocalService* service) : service_(service) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int small = 1 << 16;  // so that the other end notices a slow reader
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

FakeServer::~FakeServer() {
  stop_.store(true);
  thread_.join();
  close(listener_);
  for (auto& [fd, connection] : connections_) close(fd);
}

void FakeServer::SetScript(Script script) {
  std::lock_guard<std::mutex> lock(mutex_);
  script_ = std::move(script);
}

void FakeServer::SetGone(std::set<uint32_t> gone) {
  std::lock_guard<std::mutex> lock(mutex_);
  gone_ = std::move(gone);
}

void FakeServer::Serve() {
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

void FakeServer::Read(int fd) {
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

bool FakeServer::Take(std::string* in, Command* command) {
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

std::string FakeServer::Answer(const Command& command) {
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
  RequestParts parts;
  const bool many = parts.Open(bytes).ok() && parts.size() > 1;
  many_parts += many;
  std::lock_guard<std::mutex> lock(mutex_);
  AnswerFrame(bytes, &reply, [this, many](Request* q, ReplyWriter* replies) {
    const PartRef part{q->partition.index, q->request_id};
    if (!many || gone_.count(part.partition) == 0) return service_->HandlePart(q, replies);
    ++elsewhere;
    replies->Add(PartRefusal(part, FrameStatus::kElsewhere, ""));
  });
  return "$" + std::to_string(reply.size()) + "\r\n" + std::string(reply.begin(), reply.end()) + "\r\n";
}

}  // namespace het::testing
