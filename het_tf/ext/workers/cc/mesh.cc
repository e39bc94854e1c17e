#include "het_tf/ext/workers/cc/mesh.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <utility>

#include "het_tf/core/base/after_fork.h"
#include "het_tf/core/base/interrupt.h"
#include "het_tf/core/base/steady_seconds.h"

namespace het {
namespace {

constexpr int kSignsOfLife = 4;    // in the time after which a silent rank is lost
constexpr double kApart = 3;       // times the timeout: ranks that wait so long in two collectives never meet
constexpr double kEndSeconds = 2;  // for the other ranks to read the last messages
constexpr int kPollMilliseconds = 50;

std::string Name(uint32_t rank) { return "rank " + std::to_string(rank); }

std::mutex& MeshMutex() {
  static auto* const mutex = new std::mutex();
  return *mutex;
}
std::shared_ptr<Mesh>& MeshOfProcess() {
  static auto* const mesh = new std::shared_ptr<Mesh>();  // never destroyed: ops may outlive main()
  return *mesh;
}

}  // namespace

Result<std::shared_ptr<Mesh>> ConnectedMesh() {
  const std::lock_guard<std::mutex> lock(MeshMutex());
  if (MeshOfProcess() != nullptr) return MeshOfProcess();
  return FailedPrecondition("this process is connected to no other ranks; call het_tf.init() first");
}

void SetMesh(std::shared_ptr<Mesh> mesh) {
  const std::lock_guard<std::mutex> lock(MeshMutex());
  MeshOfProcess().swap(mesh);
}

Mesh::Mesh(uint32_t rank, std::vector<int> sockets, double timeout, double patience)
    : rank_(rank), timeout_(timeout), patience_(patience) {
  woke_ = SteadySeconds();
  for (const int socket : sockets) {
    if (peers_.size() == rank) {
      peers_.emplace_back();
      continue;
    }
    peers_.push_back(std::make_unique<Peer>());
    peers_.back()->socket = socket;
    peers_.back()->heard = woke_;
    fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
  }
  RefuseInChildren();
  listen_ = std::make_unique<Background>([this] { return Listen(); });
  listen_->Wake();
}

Mesh::~Mesh() {
  listen_.reset();
  Header end;
  end.kind = Kind::kEnd;
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    Send(peer.get(), end, "", {});
    shutdown(peer->socket, SHUT_WR);
  }
  // Closing a socket that holds unread bytes resets the connection, and the peer would lose what it has not
  // read yet. So this waits until the peers, which answer the end by theirs, have read all.
  const double limit = SteadySeconds() + std::min(timeout_, kEndSeconds);
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    while (peer->open && SteadySeconds() < limit) {
      pollfd ready{peer->socket, POLLIN, 0};
      uint8_t unread[4096];
      if (poll(&ready, 1, kPollMilliseconds) > 0)
        peer->open = recv(peer->socket, unread, sizeof(unread), 0) > 0;
    }
    close(peer->socket);
  }
}

Status Mesh::Exchange(const std::string& label, const std::string& what,
                      const std::vector<Span<const uint8_t>>& parts, std::vector<Bytes>* received) {
  HET_RETURN_IF_ERROR(CheckNotInChild());
  Header header;
  header.label = static_cast<uint32_t>(label.size());
  header.what = static_cast<uint32_t>(what.size());
  for (const auto& part : parts) header.bytes = std::max<uint64_t>(header.bytes, part.size());
  if (!MaySay(header)) {
    return InvalidArgument("collective " + label.substr(0, 200) + " has " + std::to_string(header.bytes) +
                           " bytes, and " + std::to_string(label.size() + what.size()) +
                           " of text; at most " + std::to_string(kMostData) + " and " +
                           std::to_string(kMostText) + " travel between two ranks at once");
  }
  const double since = SteadySeconds();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.ok()) return failure_;
    waits_.emplace_back(label, since);
  }
  for (uint32_t i = 1; i < size(); ++i) {
    const uint32_t to = (rank_ + i) % size();
    header.bytes = parts[to].size();
    Send(peers_[to].get(), header, label + what, parts[to]);
  }
  std::vector<Message> messages;
  Status status = Receive(label, since, &messages);
  received->clear();
  for (uint32_t from = 0; from < messages.size(); ++from) {
    if (status.ok() && from != rank_ && messages[from].what != what) {
      status = InvalidArgument("ranks call collective " + label + " with different data: " + what + " on " +
                               Name(rank_) + ", and " + messages[from].what + " on " + Name(from) +
                               "; run the same program with the same model on every rank");
    }
    received->push_back(std::move(messages[from].data));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  waits_.erase(std::find(waits_.begin(), waits_.end(), std::make_pair(label, since)));
  return status;
}

void Mesh::Send(Peer* peer, const Header& header, const std::string& text, Span<const uint8_t> data) {
  const std::lock_guard<std::mutex> lock(peer->sending);
  const std::string rest = std::exchange(peer->rest, "");
  iovec parts[] = {{const_cast<char*>(rest.data()), rest.size()},
                   {const_cast<Header*>(&header), sizeof(header)},
                   {const_cast<char*>(text.data()), text.size()},
                   {const_cast<uint8_t*>(data.data()), data.size()}};
  iovec* part = parts;
  iovec* const end = parts + 4;
  while (part != end) {
    msghdr message{};
    message.msg_iov = part;
    message.msg_iovlen = static_cast<size_t>(end - part);
    ssize_t sent = sendmsg(peer->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      // A connection that has ended is seen by the thread that listens, with what the peer said before.
      if (errno != EAGAIN && errno != EINTR) return;
      pollfd ready{peer->socket, POLLOUT, 0};
      poll(&ready, 1, kPollMilliseconds);
      const std::lock_guard<std::mutex> mesh(mutex_);
      if (!failure_.ok() || !peer->open || listen_ == nullptr) return;
      continue;
    }
    for (; part != end && static_cast<size_t>(sent) >= part->iov_len; ++part) {
      sent -= static_cast<ssize_t>(part->iov_len);
    }
    if (part == end) break;
    part->iov_base = static_cast<uint8_t*>(part->iov_base) + sent;
    part->iov_len -= static_cast<size_t>(sent);
  }
}

Status Mesh::Receive(const std::string& label, double since, std::vector<Message>* messages) {
  messages->resize(size());
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    if (rank != rank_) missing.push_back(rank);
  }
  bool told = false;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    const auto take = [&](uint32_t from) {
      auto& inbox = peers_[from]->inbox;
      const auto found = inbox.find(label);
      if (found == inbox.end()) return false;
      (*messages)[from] = std::move(found->second.front());
      found->second.pop_front();
      if (found->second.empty()) inbox.erase(found);
      return true;
    };
    missing.erase(std::remove_if(missing.begin(), missing.end(), take), missing.end());
    if (missing.empty()) return Status();
    for (const uint32_t from : missing) HET_RETURN_IF_ERROR(Doubt(from, label, since));
    if (!told && SteadySeconds() - since > patience_) {
      told = true;
      std::string ranks;
      for (const uint32_t from : missing) ranks += (ranks.empty() ? "" : ", ") + std::to_string(from);
      std::fprintf(stderr, "het_tf: rank %u has waited %.0f s in collective %s for rank %s, which lives\n",
                   rank_, SteadySeconds() - since, label.c_str(), ranks.c_str());
    }
    if (Interrupts::Due(since)) return Status(Code::kCancelled, "interrupted in collective " + label);
    arrived_.wait_for(lock, std::chrono::milliseconds(kPollMilliseconds));
  }
}

Status Mesh::Doubt(uint32_t from, const std::string& label, double since) const {
  HET_RETURN_IF_ERROR(failure_);
  const Peer& peer = *peers_[from];
  if (peer.ended) {
    return Status(Code::kUnavailable, Name(from) + " has ended, but this rank waits for it in collective " +
                                          label + "; see its own output for the reason");
  }
  const double apart = kApart * timeout_;
  if (!peer.waits_in.empty() && peer.waits_in != label && peer.waited > apart &&
      SteadySeconds() - since > apart) {
    return Status(Code::kAborted, "ranks wait in different collectives: " + Name(rank_) + " in " + label +
                                      ", and " + Name(from) + " in " + peer.waits_in +
                                      "; every rank must make the same calls in the same order");
  }
  return Status();
}

void Mesh::Lose(uint32_t rank, const std::string& how) {
  if (failure_.ok()) failure_ = Status(Code::kUnavailable, Name(rank) + " is lost: " + how);
  arrived_.notify_all();
}

Background::Pause Mesh::Listen() {
  Background::Pause pause;
  pause.seconds = timeout_ / kSignsOfLife / 2;
  bool more = false;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    Peer* const peer = peers_[rank].get();
    if (peer == nullptr || !peer->open) continue;
    Got got = Got::kMore;
    // A turn for each: one that sends much must not let another look silent.
    for (int messages = 0; messages < 64 && (got == Got::kMore || got == Got::kAll); ++messages) {
      got = Read(peer);
      if (got == Got::kAll) Arrived(peer);
    }
    if (got >= Got::kEnd) {
      const std::lock_guard<std::mutex> lock(mutex_);
      peer->open = false;
      if (!peer->ended || got != Got::kEnd) {
        Lose(rank, got == Got::kEnd        ? "its process has ended without a word, or its machine is off"
                   : got == Got::kStranger ? "it has sent what no rank sends"
                                           : "there is no memory for what it sends");
      }
      arrived_.notify_all();
      continue;
    }
    more = more || got != Got::kNothing;
    pause.descriptors.push_back({peer->socket, POLLIN, 0});
  }
  if (more) pause.seconds = 0;

  const double now = SteadySeconds();
  SayAlive(now);
  const std::lock_guard<std::mutex> lock(mutex_);
  // After a stop of this process itself, the others were not silent.
  const double slept = now - woke_ > timeout_ / 2 ? now - woke_ : 0;
  woke_ = now;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    Peer* const peer = peers_[rank].get();
    if (peer == nullptr || !peer->open || peer->ended) continue;
    peer->heard += slept;
    if (now - peer->heard > timeout_) {
      Lose(rank, "nothing has come from it for " + std::to_string(static_cast<int>(now - peer->heard)) +
                     " s; its process is stopped, or its machine or network is down");
    }
  }
  return pause;
}

Mesh::Got Mesh::Read(Peer* peer) {
  Header& header = peer->header;
  const size_t text = peer->got < sizeof(Header) ? 0 : header.label + size_t{header.what};
  uint8_t* to = reinterpret_cast<uint8_t*>(&header) + peer->got;
  size_t room = sizeof(Header) - peer->got;
  if (peer->got >= sizeof(Header) + text) {
    const size_t at = peer->got - sizeof(Header) - text;
    if (at == peer->data.size()) {
      try {
        peer->data.resize(std::min(header.bytes, std::max(kFirstBytes, 4 * std::max(at, peer->largest))));
      } catch (const std::bad_alloc&) {
        return Got::kNoMemory;
      }
    }
    to = peer->data.data() + at;
    room = peer->data.size() - at;
  } else if (peer->got >= sizeof(Header)) {
    const size_t at = peer->got - sizeof(Header);
    to = reinterpret_cast<uint8_t*>(peer->text.data()) + at;
    room = text - at;
  }
  const ssize_t got = recv(peer->socket, to, room, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Got::kNothing;
  if (got <= 0) return Got::kEnd;
  peer->got += static_cast<size_t>(got);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    peer->heard = SteadySeconds();
  }
  if (peer->got == sizeof(Header)) {
    if (!MaySay(header)) return Got::kStranger;
    peer->text.resize(header.label + size_t{header.what});
    peer->data.clear();
  }
  const bool all = peer->got >= sizeof(Header) &&
                   peer->got == sizeof(Header) + header.label + size_t{header.what} + header.bytes;
  return all ? Got::kAll : Got::kMore;
}

bool Mesh::MaySay(const Header& header) {
  if (header.kind != Kind::kData && (header.kind > Kind::kEnd || header.what != 0 || header.bytes != 0))
    return false;
  return header.label + size_t{header.what} <= kMostText && header.bytes <= kMostData;
}

void Mesh::Arrived(Peer* peer) {
  peer->got = 0;
  const Header& header = peer->header;
  std::string label = peer->text.substr(0, header.label);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (header.kind == Kind::kAlive) {
    peer->waits_in = std::move(label);
    peer->waited = header.waited / 1000.0;
    return;
  }
  if (header.kind == Kind::kEnd) {
    peer->ended = true;
    shutdown(peer->socket, SHUT_WR);  // the answer
  } else {
    peer->largest = std::max(peer->largest, peer->data.size());
    peer->inbox[label].push_back({peer->text.substr(header.label), std::move(peer->data)});
    peer->data = Bytes();
  }
  arrived_.notify_all();
}

void Mesh::SayAlive(double now) {
  Header header;
  header.kind = Kind::kAlive;
  std::string label;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (now - said_ < timeout_ / kSignsOfLife) return;
    said_ = now;
    if (!waits_.empty()) {
      label = waits_.front().first;
      header.waited = static_cast<uint32_t>(std::min((now - waits_.front().second) * 1000, 4e9));
    }
  }
  header.label = static_cast<uint32_t>(label.size());
  for (const auto& peer : peers_) {
    if (peer == nullptr || !peer->open) continue;
    // A thread that sends is a sign of life itself; and this thread must not wait for a full socket.
    std::unique_lock<std::mutex> free(peer->sending, std::try_to_lock);
    if (!free.owns_lock()) continue;
    if (peer->rest.empty()) {
      peer->rest.assign(reinterpret_cast<const char*>(&header), sizeof(header));
      peer->rest += label;
    }
    const ssize_t sent =
        send(peer->socket, peer->rest.data(), peer->rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) peer->rest.erase(0, static_cast<size_t>(sent));
  }
}

}  // namespace het
