// One connection to a Redis server: sends commands, receives replies in the same order. Only Ask waits.
//
//   Enqueue ──► [queue of buffers] ──writev──► Stream ──read──► ReplyReader ──► replies, oldest first
//
// A command is a short head and, for frames, a body that is moved in and never copied. Reads ask for
// kReadBytes at a time; for large frames, for the rest of the frame, into its own memory, and a little more.
// Any error closes the connection for good; the owner makes a new one.
//
// Not thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "het_tf/ext/ps/byte_pool.h"
#include "het_tf/ext/ps/client/reply_reader.h"
#include "het_tf/ext/ps/client/stream.h"

namespace het {

class RedisConnection {
 public:
  static constexpr size_t kReadBytes = size_t{256} * 1024;
  static constexpr size_t kDirectBytes = size_t{8} * 1024;  // smallest rest of a frame that is read directly
  static constexpr size_t kBehindBytes = size_t{4} * 1024;  // read with it: the beginning of the next reply

  // Starts to connect to `node`, with the options of `address`; AUTH goes first if it has a password, which
  // is read now. `pool`, if given, lends memory to answers and takes that of sent bodies; it must outlive the
  // connection.
  RedisConnection(const ServerNode& node, const ServerAddress& address, BytePool* pool = nullptr);
  ~RedisConnection();
  RedisConnection(const RedisConnection&) = delete;
  RedisConnection& operator=(const RedisConnection&) = delete;

  const ServerNode& node() const { return node_; }
  // -1 after closing.
  int fd() const { return closed() ? -1 : stream_->fd(); }
  bool closed() const { return stream_ == nullptr; }
  // The reason for closing.
  const std::string& reason() const { return reason_; }
  bool wants_to_write() const { return !closed() && stream_->WantsToWrite(!queue_.empty()); }
  // Whether any byte was sent.
  bool wrote() const { return wrote_; }
  // Whether any byte was received.
  bool answered() const { return answered_; }
  // Steady-clock time at which bytes last moved: were received, given to the kernel, or had left it since the
  // previous call. Initially the time of construction.
  double moved_at();

  // Queues COMMAND KEY [BODY]: a command whose last argument is binary.
  void Enqueue(const std::string& command, const std::string& key, Bytes body);
  void Enqueue(const std::vector<std::string>& words);

  // Writes as much as the socket takes; call it after Enqueue and when the socket is writable.
  void Write();
  // Reads available bytes and appends complete replies, except AUTH's: a refusal closes the connection, and
  // so does NOAUTH.
  void Read(std::vector<RedisReply>* replies);
  void Close(std::string reason);

  // Sends commands together and waits for their replies, at most `seconds` after the last byte that moved;
  // for set-up, when no other command is in flight. Unavailable if the connection fails or times out,
  // Cancelled if Ctrl-C ends the wait; `replies` has the earlier replies then. A Redis error is a reply.
  Status Ask(const std::vector<std::vector<std::string>>& commands, double seconds,
             std::vector<RedisReply>* replies);
  Result<RedisReply> Ask(const std::vector<std::string>& words, double seconds);

 private:
  struct Outgoing {
    Bytes bytes;
    size_t written = 0;
  };

  void Sent(size_t size);
  // Returns false if it has closed the connection.
  bool Received(Span<const uint8_t> behind, std::vector<RedisReply>* replies);
  // Closes. Before the first answer the stream may explain `why`: the server closed the connection, or is
  // silent.
  void GiveUp(const std::string& why, bool closed);

  const ServerNode node_;
  std::unique_ptr<Stream> stream_;  // null once it is closed
  bool awaits_auth_ = false;
  bool wrote_ = false;
  bool answered_ = false;
  double moved_at_;
  int unsent_ = 0;  // bytes in the kernel, as of the last moved_at()
  std::string reason_;
  BytePool* const pool_;
  std::deque<Outgoing> queue_;
  ReplyReader reader_;
  Bytes buffer_;
};

}  // namespace het
