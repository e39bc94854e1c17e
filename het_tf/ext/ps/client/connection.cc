#include "het_tf/ext/ps/client/connection.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <utility>

#include "het_tf/core/base/interrupt.h"
#include "het_tf/core/base/steady_seconds.h"

namespace het {
namespace {

void Append(Bytes* bytes, const std::string& text) { bytes->insert(bytes->end(), text.begin(), text.end()); }

void AppendWord(Bytes* bytes, const std::string& word) {
  Append(bytes, "$" + std::to_string(word.size()) + "\r\n");
  Append(bytes, word);
  Append(bytes, "\r\n");
}

// Limits an answer that arrives byte by byte: to this many times the seconds for one byte.
constexpr double kMostTimes = 10;
// A server's refusal of a login, with a remedy.
std::string Refusal(std::string error) {
  if (!error.empty() && error.back() == '.') error.pop_back();
  return error + "; give user and password as redis://USER:PASSWORD@HOST:PORT, with % as %25";
}
// Between two looks whether an Ask is interrupted.
constexpr double kLookMilliseconds = 100;
// What a server says to one client too many, before it closes the connection.
constexpr char kFull[] = "ERR max number of clients";

}  // namespace

RedisConnection::RedisConnection(const ServerNode& node, const ServerAddress& address, BytePool* pool)
    : node_(node),
      stream_(OpenStream(node, address)),
      moved_at_(SteadySeconds()),
      pool_(pool),
      reader_(pool) {
  const Result<std::string> password = address.Password();
  if (!stream_->error().empty()) Close(stream_->error());
  if (!password.ok()) Close(node_.ToString() + ": " + password.status().message());
  if (closed() || password.value().empty()) return;
  awaits_auth_ = true;
  Enqueue(address.user.empty() ? std::vector<std::string>{"AUTH", password.value()}
                               : std::vector<std::string>{"AUTH", address.user, password.value()});
}

RedisConnection::~RedisConnection() { Close("the client left"); }

void RedisConnection::Close(std::string reason) {
  if (reason_.empty()) reason_ = std::move(reason);
  stream_.reset();
  queue_.clear();
}

void RedisConnection::GiveUp(const std::string& why, bool closed) {
  const std::string doubt = answered_ ? "" : stream_->Doubt(closed);
  Close(why + (doubt.empty() ? "" : "; " + doubt));
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
  // Bytes in the kernel count as moving: a slow link takes long to carry its megabytes.
  int unsent = 0;
  if (!closed() && ioctl(fd(), SIOCOUTQ, &unsent) == 0 && unsent != 0 && unsent != unsent_)
    moved_at_ = SteadySeconds();
  unsent_ = unsent;
  return moved_at_;
}

void RedisConnection::Write() {
  while (wants_to_write()) {
    iovec parts[64];
    int count = 0;
    for (const Outgoing& out : queue_) {
      if (count == 64) break;
      parts[count++] = {const_cast<uint8_t*>(out.bytes.data()) + out.written, out.bytes.size() - out.written};
    }
    size_t written = 0;
    const Stream::Io io = stream_->Write(parts, count, &written);
    Sent(written);
    if (io == Stream::Io::kFailed) return GiveUp(stream_->error(), /*closed=*/true);
    if (io == Stream::Io::kWait) return;
  }
}

void RedisConnection::Sent(size_t size) {
  if (size == 0) return;
  wrote_ = true;
  moved_at_ = SteadySeconds();
  while (!queue_.empty()) {
    Outgoing& front = queue_.front();
    const size_t rest = front.bytes.size() - front.written;
    if (size < rest) {
      front.written += size;
      return;
    }
    size -= rest;
    if (pool_ != nullptr) pool_->Give(std::move(front.bytes));
    queue_.pop_front();
  }
}

void RedisConnection::Read(std::vector<RedisReply>* replies) {
  if (closed()) return;
  buffer_.resize(kReadBytes);
  for (;;) {
    // The rest of a started frame is read directly into its memory; bytes in the buffer are copied. So where
    // large frames come, the buffer gets only the beginning of the next one.
    Span<uint8_t> room = reader_.Room();
    if (room.size() < kDirectBytes) room = {};
    const size_t behind = reader_.last_string() < kDirectBytes ? kReadBytes : kBehindBytes;
    const iovec parts[] = {{room.data(), room.size()}, {buffer_.data(), behind}};
    size_t got = 0;
    const Stream::Io io = stream_->Read(parts, 2, &got);
    if (got > 0) {
      const size_t direct = std::min(got, room.size());
      reader_.Took(direct);
      if (!Received({buffer_.data(), got - direct}, replies)) return;
    }
    if (io == Stream::Io::kFailed) return GiveUp(stream_->error(), /*closed=*/true);
    if (io == Stream::Io::kWait) return;
  }
}

bool RedisConnection::Received(Span<const uint8_t> behind, std::vector<RedisReply>* replies) {
  moved_at_ = SteadySeconds();
  const bool answered_before = std::exchange(answered_, true);
  const size_t before = replies->size();
  if (!reader_.Feed(behind, replies)) {
    Close(node_.ToString() + " sent a malformed reply: " + reader_.error() +
          (answered_before ? "" : "; it is no server of Redis' protocol: check the port"));
    return false;
  }
  if (replies->size() == before) return true;
  const RedisReply& first = (*replies)[before];
  if (!answered_before && first.kind == RedisReply::kError && first.text().rfind(kFull, 0) == 0) {
    Close(node_.ToString() + " has no room for more clients (" + first.text() +
          "); raise its maxclients, as by CONFIG SET maxclients, or start fewer workers");
    replies->resize(before);
    return false;
  }
  if (std::exchange(awaits_auth_, false)) {
    const RedisReply login = std::move((*replies)[before]);
    replies->erase(replies->begin() + static_cast<ptrdiff_t>(before));
    if (!login.ok()) {
      replies->resize(before);  // drops the errors of commands sent behind it
      Close(node_.ToString() + " refuses the login: " + Refusal(login.text()));
      return false;
    }
  }
  const auto asks_login = std::find_if(
      replies->begin() + static_cast<ptrdiff_t>(before), replies->end(), [](const RedisReply& reply) {
        return reply.kind == RedisReply::kError && StartsWith(reply.text(), "NOAUTH");
      });
  if (asks_login != replies->end()) {  // the next connection may have a password
    Close(node_.ToString() + " refuses: " + Refusal(asks_login->text()));
    replies->erase(asks_login, replies->end());
    return false;
  }
  return true;
}

Status RedisConnection::Ask(const std::vector<std::vector<std::string>>& commands, double seconds,
                            std::vector<RedisReply>* replies) {
  for (const std::vector<std::string>& words : commands) Enqueue(words);
  const double start = SteadySeconds();
  while (!closed() && replies->size() < commands.size()) {
    Write();
    const double left =
        std::min(std::max(start, moved_at()) + seconds, start + kMostTimes * seconds) - SteadySeconds();
    if (Interrupts::Due(std::max(start, moved_at()))) {
      Close(node_.ToString() + " gave no answer, and the wait for it was interrupted");
      return Status(Code::kCancelled, reason_);
    }
    if (left <= 0) {
      GiveUp(node_.ToString() + " gave no answer for " + std::to_string(static_cast<int>(seconds)) + " s",
             /*closed=*/false);
    }
    if (closed()) break;
    pollfd ready{fd(), static_cast<short>(POLLIN | (wants_to_write() ? POLLOUT : 0)), 0};
    poll(&ready, 1, static_cast<int>(std::clamp(left * 1000, 1.0, kLookMilliseconds)));
    Read(replies);
  }
  if (replies->size() > commands.size()) {  // replies cannot be matched to commands
    Close(node_.ToString() + " sent a reply without a request");
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
