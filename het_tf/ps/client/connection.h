// One connection to a Redis server: commands out, replies in the same order back. Nothing here
// waits, but for Ask.
//
//   Enqueue ──► [queue of buffers] ──writev──► Stream ──read──► ReplyReader ──► replies, oldest first
//
// A command is a short head and, for frames, a body that is handed over and never copied. Reads ask
// for kReadBytes at a time; where large frames come, for the rest of a frame, into its own memory,
// and a little behind it. Whatever goes wrong closes the connection for good; the owner makes a new one.
//
// Not thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/base/byte_pool.h"
#include "het_tf/ps/client/reply_reader.h"
#include "het_tf/ps/client/stream.h"

namespace het {

class RedisConnection {
 public:
  static constexpr size_t kReadBytes = size_t{256} * 1024;
  static constexpr size_t kDirectBytes = size_t{8} * 1024;  // of a frame, at least, for a read of its own
  static constexpr size_t kBehindBytes = size_t{4} * 1024;  // the beginning of the next reply

  // Starts to connect to a server of `address`, as that asks for; AUTH goes out first where it has a
  // password. `pool`, where given: memory of answers comes out of it, and that of bodies that were
  // sent goes there; it outlives the connection.
  RedisConnection(const ServerNode& node, const ServerAddress& address, BytePool* pool = nullptr);
  ~RedisConnection();
  RedisConnection(const RedisConnection&) = delete;
  RedisConnection& operator=(const RedisConnection&) = delete;

  const ServerNode& node() const { return node_; }
  // -1 once it is closed.
  int fd() const { return closed() ? -1 : stream_->fd(); }
  bool closed() const { return stream_ == nullptr; }
  // Why it was closed.
  const std::string& reason() const { return reason_; }
  bool wants_to_write() const { return !closed() && stream_->WantsToWrite(!queue_.empty()); }
  // Whether anything at all was sent.
  bool wrote() const { return wrote_; }
  // When bytes moved last, by the steady clock: came in, were handed to the kernel, or were found
  // to have left it since the last time that somebody asked. When it was made, if none did yet.
  double moved_at();

  // COMMAND KEY [BODY]: a command with one binary argument at its end.
  void Enqueue(const std::string& command, const std::string& key, Bytes body);
  void Enqueue(const std::vector<std::string>& words);

  // Writes what the socket takes; call it after Enqueue and when the socket is writable.
  void Write();
  // Reads what is there and appends the replies that are complete. The answer to AUTH is not among
  // them: a refusal closes the connection.
  void Read(std::vector<RedisReply>* replies);
  void Close(std::string reason);

  // Sends commands, all at once, and waits for their answers, at most `seconds` after the last byte
  // that moved; for set-up, when nothing else is on its way. Unavailable when the connection fails
  // or nothing comes: then `replies` has the answers that came before. A Redis error is a reply.
  Status Ask(const std::vector<std::vector<std::string>>& commands, double seconds,
             std::vector<RedisReply>* replies);
  Result<RedisReply> Ask(const std::vector<std::string>& words, double seconds);

 private:
  struct Outgoing {
    Bytes bytes;
    size_t written = 0;
  };

  void Sent(size_t size);
  // False when it has closed.
  bool Received(Span<const uint8_t> behind, std::vector<RedisReply>* replies);
  // Closes. Before the first answer the stream may know what is behind `why`: the server has closed, or is
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
