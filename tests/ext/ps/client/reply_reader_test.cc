#include "het_tf/ext/ps/client/reply_reader.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

namespace het {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Describe(const RedisReply& reply) {
  std::string text;
  switch (reply.kind) {
    case RedisReply::kNil:
      return "nil";
    case RedisReply::kString:
      return "'" + reply.text() + "'";
    case RedisReply::kError:
      return "error " + reply.text();
    case RedisReply::kInteger:
      return std::to_string(reply.integer);
    case RedisReply::kArray:
      for (const RedisReply& element : reply.array) text += (text.empty() ? "" : " ") + Describe(element);
      return "[" + text + "]";
  }
  return "?";
}

enum Way { kCopied, kDirect };

// Feeds a piece of `first` bytes, then pieces of `rest`; reports a failure at the end. kDirect: fills the
// reader's Room directly.
std::vector<std::string> Read(const std::string& bytes, size_t first, size_t rest, Way way = kCopied) {
  ReplyReader reader;
  std::vector<RedisReply> replies;
  std::string error;
  for (size_t at = 0, size = first; at < bytes.size() && error.empty(); at += size, size = rest) {
    size = std::min(size, bytes.size() - at);
    Span<const uint8_t> piece(reinterpret_cast<const uint8_t*>(bytes.data()) + at, size);
    if (way == kDirect) {
      const Span<uint8_t> room = reader.Room();
      const size_t direct = std::min(room.size(), size);
      std::copy_n(piece.begin(), direct, room.begin());
      reader.Took(direct);
      piece = piece.subspan(direct, size - direct);
    }
    if (!reader.Feed(piece, &replies)) {
      error = "FAILED: " + reader.error();
    }
  }
  std::vector<std::string> all;
  for (const RedisReply& reply : replies) all.push_back(Describe(reply));
  if (!error.empty()) all.push_back(error);
  return all;
}

TEST(ReplyReader, AnyPiecesGiveTheSameReplies) {
  const std::string bytes =
      "+OK\r\n$5\r\nhe\r\no\r\n$0\r\n\r\n$-1\r\n:-12\r\n-ERR "
      "no\r\n*2\r\n$1\r\na\r\n*1\r\n:3\r\n$3\r\nend\r\n";
  const std::vector<std::string> expected = {"'OK'", "'he\r\no'",    "''",        "nil",
                                             "-12",  "error ERR no", "['a' [3]]", "'end'"};
  for (size_t first = 1; first <= bytes.size(); ++first) {
    for (size_t rest : {size_t{1}, size_t{2}, size_t{7}, bytes.size()}) {
      for (Way way : {kCopied, kDirect}) {
        ASSERT_EQ(Read(bytes, first, rest, way), expected) << first << " bytes, then " << rest << ", " << way;
      }
    }
  }
}

TEST(ReplyReader, RoomIsTheRestOfAStringAlone) {
  ReplyReader reader;
  std::vector<RedisReply> replies;
  const auto feed = [&](const std::string& text) {
    return reader.Feed({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, &replies);
  };
  EXPECT_TRUE(reader.Room().empty());
  ASSERT_TRUE(feed("$6\r\nab"));
  EXPECT_EQ(reader.Room().size(), 4u);
  const Span<uint8_t> room = reader.Room();  // unused room is lent again
  ASSERT_EQ(room.size(), 4u);
  std::memcpy(room.data(), "cd", 2);
  reader.Took(2);
  ASSERT_TRUE(feed("e"));  // without asking
  std::memcpy(reader.Room().data(), "f", 1);
  reader.Took(1);
  EXPECT_TRUE(reader.Room().empty()) << "the line end is not part of the string";
  ASSERT_TRUE(feed("\r\n*2\r\n$3\r\nx"));
  EXPECT_TRUE(reader.Room().empty()) << "hiredis reads that string";
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].text(), "abcdef");
}

TEST(ReplyReader, RoomIsTakenAsTheBytesCome) {
  const std::string body(40000000, 'x');
  EXPECT_EQ(Read("$40000000\r\n" + body + "\r\n", 100, 20000000, kDirect),
            std::vector<std::string>({"'" + body + "'"}));
  ReplyReader reader;
  std::vector<RedisReply> replies;
  const std::string claim = "$999999999999\r\n";
  ASSERT_TRUE(reader.Feed({reinterpret_cast<const uint8_t*>(claim.data()), claim.size()}, &replies));
  EXPECT_LE(reader.Room().size(), size_t{16} << 20);
}

TEST(ReplyReader, ALengthIsOnlyAClaim) {
  EXPECT_EQ(Read("$999999999999\r\nabc", 100, 100), std::vector<std::string>());
}

TEST(ReplyReader, MalformedReplies) {
  for (const char* bytes : {"$3\r\nabcd\r\n", "$3\r\nabc\r\r", "hello\r\n", "$12a\r\n", "*1000000000\r\n"}) {
    for (size_t piece : {size_t{100}, size_t{5}}) {
      const std::vector<std::string> read = Read(bytes, piece, piece, kDirect);
      EXPECT_THAT(read, ElementsAre(HasSubstr("FAILED: "))) << bytes;
      EXPECT_NE(read.back(), "FAILED: ") << bytes;
    }
  }
}

}  // namespace
}  // namespace het
