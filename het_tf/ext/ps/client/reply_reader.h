// Parses replies from a connection's bytes: with hiredis' parser, and a shorter path for frames.
//
// hiredis copies its input into a buffer, and every string out of it again. Frames are strings and most of
// the input, so strings at the beginning of a reply are read here and copied once, into the reply. Other
// replies, and a reply whose first line is cut off, go to hiredis. The rest of a long string need not be
// copied at all: the owner reads the socket into Room().
//
// Not thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "het_tf/ext/ps/byte_pool.h"

struct redisReader;

namespace het {

// A server's reply. Nested arrays suffice for CLUSTER SLOTS.
struct RedisReply {
  enum Kind { kNil, kString, kError, kInteger, kArray };
  Kind kind = kNil;
  Bytes bytes;  // for kString and kError
  int64_t integer = 0;
  std::vector<RedisReply> array;

  std::string text() const { return std::string(bytes.begin(), bytes.end()); }
  bool ok() const { return kind != kError; }
};

class ReplyReader {
 public:
  // `pool` lends the memory of frames; null: allocate.
  explicit ReplyReader(BytePool* pool = nullptr);
  ~ReplyReader();

  // Appends the replies that these bytes complete. Returns false for malformed bytes; the reader is unusable
  // then. Throws std::bad_alloc, with the same result.
  bool Feed(Span<const uint8_t> bytes, std::vector<RedisReply>* replies);
  // Returns memory for the connection's next bytes: (part of) the rest of a started string; empty if there is
  // none. Report bytes written there by Took, before Feed gets the bytes behind them. Throws std::bad_alloc;
  // the reader is unusable then.
  Span<uint8_t> Room();
  void Took(size_t size);
  // The length of the last string that began a reply.
  size_t last_string() const { return last_string_; }
  // Why Feed returned false.
  std::string error() const;

 private:
  // Both remove bytes from the front of *bytes.
  bool Begin(Span<const uint8_t>* bytes);
  bool Continue(Span<const uint8_t>* bytes, std::vector<RedisReply>* replies);
  bool Parse(std::vector<RedisReply>* replies);

  BytePool* const pool_;
  std::unique_ptr<redisReader, void (*)(redisReader*)> reader_;
  bool in_string_ = false;  // a frame is being read here
  RedisReply string_;
  size_t last_string_ = 0;
  size_t missing_ = 0;  // bytes of the string and its line end
  size_t room_ = 0;     // bytes at the string's end that Room lent
  std::string error_;
};

}  // namespace het
