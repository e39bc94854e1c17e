// Replies: decoding inverts encoding, and refuses truncated frames.
#include <gtest/gtest.h>

#include <vector>

#include "tests/core/wire/random_frames.h"
#include "tests/testing/packed_rows.h"

namespace het::testing::frame_test {
namespace {

Reply RandomReply(Random* r, const Reply& before) {
  Reply p;
  p.status = static_cast<FrameStatus>(r->Chance(0.5) ? 0 : r->Below(kFrameStatuses));
  if (p.status != FrameStatus::kOk) p.message = std::string(r->Below(300), 'x');
  p.request_id = static_cast<uint32_t>(Near(r, before.request_id + 1));
  p.partition = static_cast<uint32_t>(Near(r, before.partition + 1));
  p.same_inc = r->Chance(0.5);
  p.inc = p.same_inc ? 0 : r->Next();
  p.same_seq = r->Chance(0.5);
  p.last_seq = p.same_seq ? 0 : Near(r, before.last_seq);
  p.notified = r->Chance(0.5) ? 0 : static_cast<uint32_t>(Near(r, before.notified)) | 1;
  p.subscription_reset = r->Chance(0.5);
  p.tables.resize(r->Below(4));
  for (TableReply& t : p.tables) {
    t.table = r->Below(3);
    t.epoch = p.status == FrameStatus::kEpoch ? r->Next() : 0;
    t.row_floats = static_cast<uint32_t>(r->Below(5));
    t.row_format = AnyFormat(r);
    t.block = t.row_format == RowFormat::kFloat32 ? 0 : 1 + static_cast<uint32_t>(r->Below(3));
    size_t rows = 0;
    auto clock = [&] {
      const Clock c = Any(r) & INT64_MAX;  // the store has no others
      rows += c != 0;
      return c;
    };
    for (uint64_t n = r->Below(9); n > 0; --n) {
      t.refreshed.push_back(static_cast<uint32_t>(r->Next()));
      t.refreshed_clocks.push_back(clock());
    }
    for (uint64_t n = r->Below(9); n > 0; --n) t.fetched_clocks.push_back(clock());
    AnyKeys(r, &t.notified_keys);
    for (size_t i = 0; i < rows * t.row_floats; ++i) t.rows.push_back(static_cast<float>(r->Unit()));
    // As they will be after decoding.
    for (float* row = t.rows.data(); row < t.rows.data() + t.rows.size(); row += t.row_floats) {
      RoundRow({t.row_format}, t.block, t.row_floats, row, row);
    }
    for (uint64_t n = r->Chance(0.5) ? 0 : r->Below(66); n > 0; --n) t.lag_histogram.push_back(r->Next());
  }
  return p;
}

size_t RowsOf(const TableReply& t) { return t.row_floats == 0 ? 0 : t.rows.size() / t.row_floats; }

void ExpectSame(const Reply& q, const Reply& p) {
  EXPECT_EQ(q.status, p.status);
  EXPECT_EQ(q.message, p.message);
  EXPECT_EQ(q.request_id, p.request_id);
  EXPECT_EQ(q.partition, p.partition);
  EXPECT_EQ(q.same_inc, p.same_inc);
  EXPECT_EQ(q.inc, p.inc);
  EXPECT_EQ(q.same_seq, p.same_seq);
  EXPECT_EQ(q.last_seq, p.last_seq);
  EXPECT_EQ(q.notified, p.notified);
  EXPECT_EQ(q.subscription_reset, p.subscription_reset);
  ASSERT_EQ(q.tables.size(), p.tables.size());
  for (size_t i = 0; i < p.tables.size(); ++i) {
    EXPECT_EQ(q.tables[i].table, p.tables[i].table);
    EXPECT_EQ(q.tables[i].epoch, p.tables[i].epoch);
    EXPECT_EQ(q.tables[i].row_floats, p.tables[i].row_floats);
    EXPECT_EQ(q.tables[i].row_format, p.tables[i].row_format);
    EXPECT_EQ(q.tables[i].block, p.tables[i].block);
    EXPECT_EQ(q.tables[i].refreshed, p.tables[i].refreshed);
    EXPECT_EQ(q.tables[i].refreshed_clocks, p.tables[i].refreshed_clocks);
    EXPECT_EQ(q.tables[i].fetched_clocks, p.tables[i].fetched_clocks);
    EXPECT_EQ(q.tables[i].notified_keys, p.tables[i].notified_keys);
    EXPECT_EQ(q.tables[i].rows, p.tables[i].rows);
    EXPECT_EQ(q.tables[i].lag_histogram, p.tables[i].lag_histogram);
  }
}

TEST(ReplyFrame, RepliesRoundTrip) {
  for (uint64_t seed = 1; seed <= Scaled(3000); ++seed) {
    SCOPED_TRACE(seed);
    Random r(seed);
    const Reply p = RandomReply(&r, Reply());
    Bytes bytes;
    Encode(p, &bytes);
    Reply q;
    ASSERT_TRUE(Decode(View(bytes), &q).ok());
    ExpectSame(q, p);
    EXPECT_FALSE(Decode(Span<const uint8_t>(bytes.data(), r.Below(bytes.size())), &q).ok());
  }
}

TEST(ReplyFrame, RepliesOfManyPartsRoundTrip) {
  for (uint64_t seed = 1; seed <= Scaled(1000); ++seed) {
    SCOPED_TRACE(seed);
    Random r(seed);
    std::vector<Reply> all;
    for (size_t n = 2 + r.Below(9); n > 0; --n)
      all.push_back(RandomReply(&r, all.empty() ? Reply() : all.back()));
    Bytes bytes;
    ReplyWriter writer(all.size(), &bytes);
    for (const Reply& p : all) writer.Add(p);
    ReplyParts parts;
    ASSERT_TRUE(parts.Open(View(bytes)).ok());
    Reply q;
    Vector<TableBytes> tables;
    size_t sum = 0;
    for (const Reply& p : all) {
      ASSERT_FALSE(parts.done());
      size_t size = 0;
      ASSERT_TRUE(parts.Next(&q, &tables, &size).ok());
      ExpectSame(q, p);
      sum += size;
      ASSERT_EQ(tables.size(), p.tables.size());
      for (size_t i = 0; i < tables.size(); ++i) {
        EXPECT_EQ(tables[i].rows,
                  RowsOf(p.tables[i]) *
                      LeastRowBytes(p.tables[i].row_format, p.tables[i].block, p.tables[i].row_floats));
        size -= tables[i].all;
      }
      EXPECT_LT(size, 400u) << "a head, and perhaps a message";
    }
    EXPECT_TRUE(parts.done());
    EXPECT_EQ(sum, bytes.size());
    EXPECT_FALSE(Decode(View(bytes), &q).ok()) << "one part is not taken for all";
  }
}

}  // namespace
}  // namespace het::testing::frame_test
