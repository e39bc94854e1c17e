// Frames: their sizes, formats and versions, and exhausted memory.
#include <gtest/gtest.h>

#include <vector>

#include "tests/core/wire/random_frames.h"
#include "tests/testing/packed_rows.h"

namespace het::testing::frame_test {
namespace {

// Memory is exhausted within a part: earlier parts stay, and each later one still fits as a short part.
TEST(Frame, ReplyWithoutMemoryLeavesRoomForOthers) {
  Reply large;
  large.tables.resize(1);
  large.tables[0].row_floats = 100;
  large.tables[0].fetched_clocks.assign(2, 1);
  large.tables[0].rows.assign(200, 1.f);
  Reply small;
  small.status = FrameStatus::kOutOfMemory;
  small.inc = small.last_seq = UINT64_MAX;
  constexpr size_t kParts = 60;
  size_t refused = 0;
  for (size_t room = 0; room < 200000; room += 400) {
    Bytes bytes;
    ReplyWriter writer(kParts, &bytes);
    SetAllocLimit(AllocatedBytes() + room);
    std::vector<FrameStatus> expected;
    for (uint32_t i = 0; i < kParts; ++i) {
      small.partition = i % 3;
      small.last_seq = i % 2 == 0 ? 0 : UINT64_MAX / 3;
      try {
        writer.Add(large);
        expected.push_back(FrameStatus::kOk);
      } catch (const std::bad_alloc&) {
        writer.Add(small);  // does not throw
        expected.push_back(FrameStatus::kOutOfMemory);
        ++refused;
      }
    }
    SetAllocLimit(SIZE_MAX);
    ReplyParts parts;
    ASSERT_TRUE(parts.Open(View(bytes)).ok());
    Reply reply;
    for (FrameStatus status : expected) {
      ASSERT_TRUE(parts.Next(&reply).ok());
      ASSERT_EQ(reply.status, status);
      ASSERT_EQ(reply.tables.size(), status == FrameStatus::kOk ? 1u : 0u);
    }
    ASSERT_TRUE(parts.done());
  }
  EXPECT_GT(refused, 100u);
}

// A cheap step: heads of 64 partitions, all at the same point of a run.
TEST(Frame, HeadsOfManyPartsAreSmall) {
  std::vector<Request> all(64);
  Bytes bytes;
  const auto request_bytes = [&] {
    EncodeParts(all, &bytes);
    return bytes.size();
  };
  const auto reply_bytes = [&](const std::vector<Reply>& replies) {
    ReplyWriter writer(replies.size(), &bytes);
    for (const Reply& p : replies) writer.Add(p);
    return bytes.size();
  };
  std::vector<Reply> replies(64);
  for (uint32_t p = 0; p < 64; ++p) {
    all[p].partition = {p, 64, 99};
    all[p].client = {1, (uint64_t{3} << 32) + p % 2};
    all[p].request_id = 1000000 + p;
    all[p].after_seq = 5000 + p % 7;
    all[p].inc = 77;
    all[p].notified_ack = 3000 + p % 3;
    replies[p].partition = p;
    replies[p].request_id = all[p].request_id;
    replies[p].same_seq = true;
    replies[p].same_inc = true;
    replies[p].notified = all[p].notified_ack + 1;
  }
  EXPECT_LE(request_bytes() + reply_bytes(replies), 64u * 11) << "a question alone";
  for (uint32_t p = 0; p < 64; ++p) {
    all[p].notified_ack = replies[p].notified = 0;
    all[p].tables.resize(2);
    replies[p].tables.resize(2);
    for (uint64_t t = 0; t < 2; ++t) {
      all[p].tables[t].table = t;
      all[p].tables[t].bound = 100;
      replies[p].tables[t].table = t;
      replies[p].tables[t].row_floats = 32;
    }
  }
  EXPECT_LE(request_bytes() + reply_bytes(replies), 64u * 14) << "two tables, counts aside";
}

// An answer rounds. A client sends packed updates as they are; a server packs them again for its replicas.
TEST(Frame, RowsInAFormatTakeTheirBytes) {
  const Vector<float> row = {1.1f, 2.2f, 3.3f, 4.4f, 5.5f};
  for (RowFormat format : {RowFormat::kFloat32, RowFormat::kFloat16, RowFormat::kInt8}) {
    Vector<float> rounded = row;
    testing::RoundRow({format}, 4, 5, row.data(), rounded.data());
    Reply p;
    p.tables.emplace_back();
    p.tables[0].row_floats = 5;
    p.tables[0].row_format = format;
    p.tables[0].block = format == RowFormat::kFloat32 ? 0 : 4;
    p.tables[0].fetched_clocks = {3};
    p.tables[0].stored_rows = {row.data()};
    Bytes bytes;
    Encode(p, &bytes);
    ReplyParts parts;
    Reply read;
    Vector<TableBytes> sizes;
    ASSERT_TRUE(parts.Open(View(bytes)).ok());
    ASSERT_TRUE(parts.Next(&read, &sizes).ok());
    EXPECT_EQ(read.tables[0].rows, rounded);
    EXPECT_EQ(sizes[0].rows, LeastRowBytes(format, 4, 5));

    Bytes packed;
    Writer writer(&packed);
    const float* const updates[] = {row.data(), row.data()};
    PackRows({format}, 4, 5, updates, 2, &writer);
    Request q;
    q.seq = 1;
    q.tables.emplace_back();
    TableRequest& t = q.tables[0];
    t.update_floats = 5;
    t.push_format = format;
    t.block = p.tables[0].block;
    t.push_keys = {1, 2};
    t.push_ticks = {1, 0};
    t.packed_updates = packed;
    sizes.clear();
    Encode(q, &bytes, &sizes);
    Request back;
    ASSERT_TRUE(Decode(View(bytes), &back).ok());
    Vector<float> both = rounded;
    both.insert(both.end(), rounded.begin(), rounded.end());
    EXPECT_EQ(back.tables[0].push_updates, both);
    EXPECT_EQ(back.tables[0].push_ticks, t.push_ticks);
    EXPECT_EQ(sizes[0].rows, 2 * LeastRowBytes(format, 4, 5));
    Bytes again;
    EncodePush(back, &again);
    EXPECT_EQ(Bytes(again.end() - static_cast<ptrdiff_t>(packed.size()), again.end()), packed);
  }
}

// Against the definition, byte by byte, near the end of the bytes and far from it.
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
    Reader reader(bytes);
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

TEST(Frame, AnotherVersionSaysWhatToDo) {
  Bytes bytes;
  Encode(Request(), &bytes);
  bytes[4] = 9;
  Request q;
  Status status = Decode(View(bytes), &q);
  EXPECT_NE(status.message().find("version 9"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("upgrade"), std::string::npos) << status.message();
  Encode(Reply(), &bytes);
  bytes[4] = 1;
  Reply p;
  status = Decode(View(bytes), &p);
  EXPECT_NE(status.message().find("version 1"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("upgrade"), std::string::npos) << status.message();
}

TEST(Frame, ARequestIsNoReply) {
  Bytes bytes;
  Encode(Request(), &bytes);
  Reply reply;
  EXPECT_FALSE(Decode(bytes, &reply).ok());
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
}  // namespace het::testing::frame_test
