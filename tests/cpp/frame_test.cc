// Frames: what is written is read, and nothing else is.
#include "het_tf/core/frame.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tests/cpp/testing/random.h"

namespace het::testing {
namespace {

constexpr int64_t kSpecial[] = {
    0,         1,         -1,           127, 128, INT32_MAX, int64_t{1} << 31, (int64_t{1} << 53) + 1,
    INT64_MIN, INT64_MAX, INT64_MIN + 1};

int64_t Any(Random* r) { return r->Chance(0.5) ? kSpecial[r->Below(11)] : static_cast<int64_t>(r->Next()); }

Request RandomRequest(Random* r) {
  Request q;
  q.request_id = static_cast<uint32_t>(r->Next());
  q.time = static_cast<uint32_t>(r->Next());
  q.partition = {static_cast<uint32_t>(r->Next()), static_cast<uint32_t>(r->Next()), r->Next()};
  q.client = {r->Next(), r->Next()};
  q.seq = r->Next();
  q.after_seq = r->Next();
  q.tables.resize(r->Below(4));
  for (TableRequest& t : q.tables) {
    t.table = r->Next();
    t.epoch = r->Next();
    t.update_floats = static_cast<uint32_t>(r->Below(5));
    for (uint64_t n = r->Below(9); n > 0; --n) {
      t.push_keys.push_back(Any(r));
      t.push_ticks.push_back(r->Chance(0.5) ? UINT32_MAX : static_cast<uint32_t>(r->Below(200)));
      for (uint32_t i = 0; i < t.update_floats; ++i) t.push_updates.push_back(static_cast<float>(r->Unit()));
    }
    t.bound = r->Chance(0.3) ? kUnbounded : static_cast<int64_t>(r->Next() >> 2);
    for (uint64_t n = r->Below(9); n > 0; --n) {
      t.check_keys.push_back(Any(r));
      t.check_clocks.push_back(Any(r));
    }
    for (uint64_t n = r->Below(9); n > 0; --n) t.fetch_keys.push_back(Any(r));
  }
  return q;
}

TEST(Frame, RequestsRoundTrip) {
  for (uint64_t seed = 1; seed <= Scaled(3000); ++seed) {
    SCOPED_TRACE(seed);
    Random r(seed);
    const Request q = RandomRequest(&r);
    Bytes bytes;
    Encode(q, &bytes);
    Request p;
    ASSERT_TRUE(Decode(Span<const uint8_t>(bytes.data(), bytes.size()), &p).ok());
    EXPECT_EQ(p.request_id, q.request_id);
    EXPECT_EQ(p.time, q.time);
    EXPECT_TRUE(p.partition == q.partition);
    EXPECT_TRUE(p.client == q.client);
    EXPECT_EQ(p.seq, q.seq);
    EXPECT_EQ(p.after_seq, q.after_seq);
    ASSERT_EQ(p.tables.size(), q.tables.size());
    for (size_t i = 0; i < q.tables.size(); ++i) {
      EXPECT_EQ(p.tables[i].table, q.tables[i].table);
      EXPECT_EQ(p.tables[i].epoch, q.tables[i].epoch);
      EXPECT_EQ(p.tables[i].update_floats, q.tables[i].update_floats);
      EXPECT_EQ(p.tables[i].push_keys, q.tables[i].push_keys);
      EXPECT_EQ(p.tables[i].push_ticks, q.tables[i].push_ticks);
      EXPECT_EQ(p.tables[i].push_updates, q.tables[i].push_updates);
      EXPECT_EQ(p.tables[i].bound, q.tables[i].bound);
      EXPECT_EQ(p.tables[i].check_keys, q.tables[i].check_keys);
      EXPECT_EQ(p.tables[i].check_clocks, q.tables[i].check_clocks);
      EXPECT_EQ(p.tables[i].fetch_keys, q.tables[i].fetch_keys);
    }
    // A cut anywhere is noticed.
    const size_t cut = r.Below(bytes.size());
    EXPECT_FALSE(Decode(Span<const uint8_t>(bytes.data(), cut), &p).ok());
  }
}

TEST(Frame, RepliesRoundTrip) {
  for (uint64_t seed = 1; seed <= Scaled(3000); ++seed) {
    SCOPED_TRACE(seed);
    Random r(seed);
    Reply p;
    p.status = static_cast<FrameStatus>(r.Below(7));
    p.message = std::string(r.Below(300), 'x');
    p.request_id = static_cast<uint32_t>(r.Next());
    p.inc = r.Next();
    p.last_seq = r.Next();
    p.tables.resize(r.Below(4));
    for (TableReply& t : p.tables) {
      t.table = r.Next();
      t.epoch = r.Next();
      t.row_floats = static_cast<uint32_t>(r.Below(5));
      size_t rows = 0;
      auto clock = [&] {
        const Clock c = Any(&r);
        rows += c != 0;
        return c;
      };
      for (uint64_t n = r.Below(9); n > 0; --n) {
        t.refreshed.push_back(static_cast<uint32_t>(r.Next()));
        t.refreshed_clocks.push_back(clock());
      }
      for (uint64_t n = r.Below(9); n > 0; --n) t.fetched_clocks.push_back(clock());
      for (size_t i = 0; i < rows * t.row_floats; ++i) t.rows.push_back(static_cast<float>(r.Unit()));
      for (uint64_t n = r.Below(66); n > 0; --n) t.lag_histogram.push_back(r.Next());
    }
    Bytes bytes;
    Encode(p, &bytes);
    Reply q;
    ASSERT_TRUE(Decode(Span<const uint8_t>(bytes.data(), bytes.size()), &q).ok());
    EXPECT_EQ(q.status, p.status);
    EXPECT_EQ(q.message, p.message);
    EXPECT_EQ(q.request_id, p.request_id);
    EXPECT_EQ(q.inc, p.inc);
    EXPECT_EQ(q.last_seq, p.last_seq);
    ASSERT_EQ(q.tables.size(), p.tables.size());
    for (size_t i = 0; i < p.tables.size(); ++i) {
      EXPECT_EQ(q.tables[i].table, p.tables[i].table);
      EXPECT_EQ(q.tables[i].epoch, p.tables[i].epoch);
      EXPECT_EQ(q.tables[i].row_floats, p.tables[i].row_floats);
      EXPECT_EQ(q.tables[i].refreshed, p.tables[i].refreshed);
      EXPECT_EQ(q.tables[i].refreshed_clocks, p.tables[i].refreshed_clocks);
      EXPECT_EQ(q.tables[i].fetched_clocks, p.tables[i].fetched_clocks);
      EXPECT_EQ(q.tables[i].rows, p.tables[i].rows);
      EXPECT_EQ(q.tables[i].lag_histogram, p.tables[i].lag_histogram);
    }
    EXPECT_FALSE(Decode(Span<const uint8_t>(bytes.data(), r.Below(bytes.size())), &q).ok());
  }
}

// Rows that stand elsewhere make the same frame as rows that the reply has.
TEST(Frame, StoredRowsAreRows) {
  for (uint32_t floats : {0u, 1u, 16u}) {
    Reply reply;
    reply.tables.resize(2);
    Reply stored = reply;
    std::vector<float> rows(3 * floats);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
    for (Reply* r : {&reply, &stored}) {
      TableReply& t = r->tables[0];
      t.row_floats = floats;
      t.refreshed = {4};
      t.refreshed_clocks = {9};
      t.fetched_clocks = {2, 0, 3};
    }
    for (size_t row : {2u, 0u, 1u}) {
      const float* begin = rows.data() + row * floats;
      reply.tables[0].rows.insert(reply.tables[0].rows.end(), begin, begin + floats);
      stored.tables[0].stored_rows.push_back(begin);
    }
    Bytes expected;
    Bytes bytes;
    Encode(reply, &expected);
    Encode(stored, &bytes);
    EXPECT_EQ(bytes, expected) << floats;
    Reply decoded;
    ASSERT_TRUE(Decode(Span<const uint8_t>(bytes.data(), bytes.size()), &decoded).ok());
    EXPECT_EQ(decoded.tables[0].rows, reply.tables[0].rows);
  }
}

// Against the definition, byte by byte; with few bytes behind and with many.
TEST(Frame, VarintsOfAnyLengthAndWherever) {
  for (uint64_t seed = 1; seed <= Scaled(2000); ++seed) {
    SCOPED_TRACE(seed);
    Random r(seed);
    std::vector<uint8_t> bytes(1 + r.Below(24));
    for (uint8_t& byte : bytes) {
      const uint64_t kind = r.Below(8);
      byte = kind == 0 ? 0x80 : kind == 1 ? 0xff : static_cast<uint8_t>(r.Next());
      if (kind > 1 && r.Chance(0.5)) byte |= 0x80;
    }
    Reader reader({bytes.data(), bytes.size()});
    for (size_t at = 0; at < bytes.size();) {
      uint64_t expected = 0;
      bool ends = false;
      for (int shift = 0; shift < 64 && at < bytes.size() && !ends; shift += 7, ++at) {
        expected |= static_cast<uint64_t>(bytes[at] & 0x7f) << shift;
        ends = bytes[at] < 0x80;
      }
      const uint64_t value = reader.Varint();
      ASSERT_EQ(reader.ok(), ends);
      if (!ends) break;
      ASSERT_EQ(value, expected);
      ASSERT_EQ(reader.left(), bytes.size() - at);
    }
  }
}

TEST(Frame, SortedDenseKeysTakeFewBytes) {
  Request q;
  q.tables.resize(1);
  for (Key key = 0; key < 10000; ++key) {
    q.tables[0].check_keys.push_back(key * 50);
    q.tables[0].check_clocks.push_back(100000 + key);
  }
  Bytes bytes;
  Encode(q, &bytes);
  EXPECT_LE(bytes.size(), 6 * 10000u);
}

TEST(Frame, ATableWithNothingToDo) {
  Request q;
  q.tables.resize(3);
  Bytes bytes;
  Encode(q, &bytes);
  Request p;
  EXPECT_TRUE(Decode(Span<const uint8_t>(bytes.data(), bytes.size()), &p).ok());
  Reply reply;
  reply.tables.resize(3);
  Encode(reply, &bytes);
  EXPECT_TRUE(Decode(Span<const uint8_t>(bytes.data(), bytes.size()), &reply).ok());
}

TEST(Frame, AnotherVersionSaysWhatToDo) {
  Bytes bytes;
  Encode(Request(), &bytes);
  bytes[4] = 9;
  Request q;
  const Status status = Decode(Span<const uint8_t>(bytes.data(), bytes.size()), &q);
  EXPECT_NE(status.message().find("version 9"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("upgrade"), std::string::npos) << status.message();
}

TEST(Frame, ARequestIsNoReply) {
  Bytes bytes;
  Encode(Request(), &bytes);
  Reply reply;
  EXPECT_FALSE(Decode(Span<const uint8_t>(bytes.data(), bytes.size()), &reply).ok());
}

TEST(Frame, ZigZagIsABijection) {
  for (int64_t v : kSpecial) EXPECT_EQ(UnZigZag(ZigZag(v)), v);
  EXPECT_EQ(ZigZag(0), 0u);
  EXPECT_EQ(ZigZag(-1), 1u);
  EXPECT_EQ(ZigZag(1), 2u);
}

TEST(Frame, LagBuckets) {
  EXPECT_EQ(LagBucket(-3), 0u);
  EXPECT_EQ(LagBucket(0), 0u);
  EXPECT_EQ(LagBucket(1), 1u);
  EXPECT_EQ(LagBucket(2), 2u);
  EXPECT_EQ(LagBucket(3), 2u);
  EXPECT_EQ(LagBucket(4), 3u);
  EXPECT_EQ(LagBucket(INT64_MAX), 63u);
}

}  // namespace
}  // namespace het::testing
