// Replies out of the bytes of a connection: hiredis' parser, and a shorter way for frames.
//
// hiredis copies what it is fed into a buffer of its own, and every string out of it again. A frame
// is a string and is most of what comes, so strings that begin a reply are read here, copied once,
// into the reply; all else, and a reply whose first line is cut off, goes to hiredis. Of a long
// string whose length is known the rest need not be copied at all: its owner reads the socket into
// Room().
//
// Not thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/base/byte_pool.h"

struct redisReader;

namespace het {

// What a server answers. Nested arrays are enough for CLUSTER SLOTS.
struct RedisReply {
  enum Kind { kNil, kString, kError, kInteger, kArray };
  Kind kind = kNil;
  Bytes bytes;  // of kString and kError
  int64_t integer = 0;
  std::vector<RedisReply> array;

  std::string text() const { return std::string(bytes.begin(), bytes.end()); }
  bool ok() const { return kind != kError; }
};

class ReplyReader {
 public:
  // Memory of frames comes out of the pool; null: new each time.
  explicit ReplyReader(BytePool* pool = nullptr);
  ~ReplyReader();

  // Appends the replies that these bytes complete. False when they are no replies: then nothing
  // more can be read. Throws std::bad_alloc, with the same result.
  bool Feed(Span<const uint8_t> bytes, std::vector<RedisReply>* replies);
  // Where the next bytes of the connection belong: the rest of a string that has begun, or some of
  // it; empty when there is none. What was written there is then told to Took, before Feed gets the
  // bytes behind it. Throws std::bad_alloc, and nothing more can be read then.
  Span<uint8_t> Room();
  void Took(size_t size);
  // The length of the last string that began a reply.
  size_t last_string() const { return last_string_; }
  // Why Feed returned false.
  std::string error() const;

 private:
  // Both take bytes from the front of *bytes.
  bool Begin(Span<const uint8_t>* bytes);
  bool Continue(Span<const uint8_t>* bytes, std::vector<RedisReply>* replies);
  bool Parse(std::vector<RedisReply>* replies);

  BytePool* const pool_;
  std::unique_ptr<redisReader, void (*)(redisReader*)> reader_;
  bool in_string_ = false;  // of the short way
  RedisReply string_;
  size_t last_string_ = 0;
  size_t missing_ = 0;  // of the string and the line end behind it
  size_t room_ = 0;     // bytes at the string's end that were lent and are not written yet
  std::string error_;
};

}  // namespace het
