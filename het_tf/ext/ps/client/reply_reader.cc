#include "het_tf/ext/ps/client/reply_reader.h"

#include <hiredis/read.h>

#include <algorithm>

namespace het {
namespace {

// A string longer than this gets its memory as its bytes arrive: its length is untrusted.
constexpr size_t kReserveAtOnce = size_t{16} << 20;
constexpr size_t kLineEnd = 2;

// --- hiredis' parser makes RedisReply objects: its caller owns the root, and each parent its elements

RedisReply* NewReply(const redisReadTask* task, RedisReply::Kind kind) {
  RedisReply* reply = nullptr;
  if (task->parent == nullptr) {
    reply = new RedisReply();
  } else {
    reply = &static_cast<RedisReply*>(task->parent->obj)->array[static_cast<size_t>(task->idx)];
  }
  reply->kind = kind;
  return reply;
}

// Returning null means "out of memory" to hiredis, which reports it as its error.
template <typename Fn>
void* Guarded(Fn fn) {
  try {
    return fn();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void* CreateString(const redisReadTask* task, char* text, size_t size) {
  return Guarded([&]() -> void* {
    RedisReply* reply =
        NewReply(task, task->type == REDIS_REPLY_ERROR ? RedisReply::kError : RedisReply::kString);
    reply->bytes.assign(text, text + size);
    return reply;
  });
}

// CLUSTER SLOTS of a large cluster has some thousands; a forged size must not allocate memory.
constexpr size_t kMaxElements = 1 << 20;

void* MakeArray(const redisReadTask* task, size_t size) {
  if (size > kMaxElements) return nullptr;
  return Guarded([&]() -> void* {
    RedisReply* reply = NewReply(task, RedisReply::kArray);
    reply->array.resize(size);
    return reply;
  });
}
// The type of a size differs between hiredis 0.14 and 1.x; the compiler picks the overload.
[[maybe_unused]] void* CreateArray(const redisReadTask* task, int size) {
  return MakeArray(task, static_cast<size_t>(std::max(size, 0)));
}
[[maybe_unused]] void* CreateArray(const redisReadTask* task, size_t size) { return MakeArray(task, size); }

void* CreateInteger(const redisReadTask* task, long long value) {
  return Guarded([&]() -> void* {
    RedisReply* reply = NewReply(task, RedisReply::kInteger);
    reply->integer = value;
    return reply;
  });
}

void* CreateNil(const redisReadTask* task) {
  return Guarded([&]() -> void* { return NewReply(task, RedisReply::kNil); });
}

// Called only for roots.
void FreeObject(void* reply) { delete static_cast<RedisReply*>(reply); }

redisReplyObjectFunctions* ReplyFunctions() {
  static redisReplyObjectFunctions functions = [] {
    redisReplyObjectFunctions f{};
    f.createString = CreateString;
    f.createArray = CreateArray;
    f.createInteger = CreateInteger;
    f.createNil = CreateNil;
    f.freeObject = FreeObject;
    return f;
  }();
  return &functions;
}

}  // namespace

ReplyReader::ReplyReader(BytePool* pool)
    : pool_(pool), reader_(redisReaderCreateWithFunctions(ReplyFunctions()), redisReaderFree) {}

ReplyReader::~ReplyReader() = default;

std::string ReplyReader::error() const { return error_.empty() ? reader_->errstr : error_; }

bool ReplyReader::Feed(Span<const uint8_t> bytes, std::vector<RedisReply>* replies) {
  while (bytes.size() > 0) {
    if (in_string_) {
      if (!Continue(&bytes, replies)) return false;
      continue;
    }
    const bool idle = reader_->ridx < 0 && reader_->pos == reader_->len;
    if (idle && Begin(&bytes)) continue;
    // hiredis takes all bytes: several replies, and the beginning of another.
    if (redisReaderFeed(reader_.get(), reinterpret_cast<const char*>(bytes.data()), bytes.size()) != REDIS_OK)
      return false;
    return Parse(replies);
  }
  return true;
}

// Parses `$SIZE\r\n` if it is complete.
bool ReplyReader::Begin(Span<const uint8_t>* bytes) {
  constexpr size_t kLongestLine = 16;
  if ((*bytes)[0] != '$') return false;
  size_t size = 0;
  size_t at = 1;
  for (; at < std::min(bytes->size(), kLongestLine) && (*bytes)[at] >= '0' && (*bytes)[at] <= '9'; ++at) {
    size = 10 * size + static_cast<size_t>((*bytes)[at] - '0');
  }
  if (at == 1 || at + 2 > bytes->size() || (*bytes)[at] != '\r' || (*bytes)[at + 1] != '\n') return false;
  string_ = RedisReply();
  string_.kind = RedisReply::kString;
  const size_t reserved = std::min(size, kReserveAtOnce);
  if (pool_ != nullptr) {
    string_.bytes = pool_->Take(reserved);
  } else {
    string_.bytes.reserve(reserved);
  }
  last_string_ = size;
  missing_ = size + kLineEnd;
  in_string_ = true;
  *bytes = {bytes->data() + at + 2, bytes->size() - at - 2};
  return true;
}

Span<uint8_t> ReplyReader::Room() {
  Took(0);
  if (!in_string_ || missing_ <= kLineEnd) return {};
  const size_t have = string_.bytes.size();
  const size_t room = std::min(missing_ - kLineEnd, kReserveAtOnce);
  string_.bytes.resize(have + room);
  room_ = room;
  return {string_.bytes.data() + have, room_};
}

void ReplyReader::Took(size_t size) {
  string_.bytes.resize(string_.bytes.size() - room_ + size);
  missing_ -= size;
  room_ = 0;
}

bool ReplyReader::Continue(Span<const uint8_t>* bytes, std::vector<RedisReply>* replies) {
  const size_t take = std::min(bytes->size(), missing_);
  const size_t of_string = std::min(take, missing_ - std::min(missing_, kLineEnd));
  string_.bytes.insert(string_.bytes.end(), bytes->data(), bytes->data() + of_string);
  for (size_t i = of_string; i < take; ++i) {
    if (static_cast<char>((*bytes)[i]) != (missing_ - i == kLineEnd ? '\r' : '\n')) {
      error_ = "a string does not end at its stated length";
      return false;
    }
  }
  missing_ -= take;
  *bytes = {bytes->data() + take, bytes->size() - take};
  if (missing_ > 0) return true;
  in_string_ = false;
  replies->push_back(std::move(string_));
  return true;
}

bool ReplyReader::Parse(std::vector<RedisReply>* replies) {
  for (;;) {
    void* object = nullptr;
    if (redisReaderGetReply(reader_.get(), &object) != REDIS_OK) return false;
    if (object == nullptr) return true;
    const std::unique_ptr<RedisReply> reply(static_cast<RedisReply*>(object));
    replies->push_back(std::move(*reply));
  }
}

}  // namespace het
