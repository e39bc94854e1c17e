// Requests: decoding inverts encoding, and refuses truncated frames.
#include <gtest/gtest.h>

#include <vector>

#include "tests/core/wire/random_frames.h"
#include "tests/testing/packed_rows.h"

namespace het::testing::frame_test {
namespace {

// A request that may follow `before` in a frame.
Request RandomRequest(Random* r, const Request& before) {
  Request q;
  q.request_id = static_cast<uint32_t>(Near(r, before.request_id + 1));
  q.time = before.time;
  q.partition = before.partition;
  q.partition.index = static_cast<uint32_t>(Near(r, before.partition.index + 1));
  q.client = {before.client.high, Near(r, before.client.low)};
  q.seq = r->Chance(0.3) ? 0 : Near(r, before.seq);
  q.after_seq = r->Chance(0.5) ? q.seq : Near(r, q.seq);
  q.inc = r->Chance(0.5) ? 0 : r->Next();
  if (r->Chance(0.3)) q.notified_ack = static_cast<uint32_t>(Near(r, before.notified_ack)) | 1;
  q.tables.resize(r->Below(4));
  for (TableRequest& t : q.tables) {
    t.table = r->Below(3);  // sometimes a table twice
    t.epoch = r->Next();
    t.update_floats = static_cast<uint32_t>(r->Below(5));
    t.push_format = AnyFormat(r);
    t.row_format = AnyFormat(r);
    const bool plain = t.push_format == RowFormat::kFloat32 && t.row_format == RowFormat::kFloat32;
    t.block = plain ? 0 : 1 + static_cast<uint32_t>(r->Below(3));
    AnyKeys(r, &t.push_keys);
    if (q.notified_ack != 0) t.left = static_cast<uint32_t>(r->Below(t.push_keys.size() + 1));
    for (size_t i = 0; i < t.push_keys.size(); ++i) {
      t.push_ticks.push_back(r->Chance(0.5) ? UINT32_MAX : static_cast<uint32_t>(r->Below(200)));
      for (uint32_t k = 0; k < t.update_floats; ++k) t.push_updates.push_back(static_cast<float>(r->Unit()));
    }
    // As they will be after decoding.
    float* update = t.push_updates.data();
    for (size_t i = 0; i < t.push_keys.size(); ++i, update += t.update_floats)
      testing::RoundRow({t.push_format}, t.block, t.update_floats, update, update);
    t.bound = r->Chance(0.3) ? kUnbounded : r->Chance(0.5) ? 7 : static_cast<int64_t>(r->Next() >> 2);
    if (r->Chance(0.5)) t.bound.every = r->Chance(0.5) ? 20 : static_cast<uint32_t>(r->Next());
    AnyKeys(r, &t.check_keys);
    for (size_t i = 0; i < t.check_keys.size(); ++i) t.check_clocks.push_back(Any(r));
    AnyKeys(r, &t.fetch_keys);
    t.subscribe = r->Chance(0.3);
    AnyKeys(r, &t.dropped);
  }
  return q;
}

std::vector<Request> RandomRequests(Random* r, size_t parts) {
  Request before;
  before.request_id = static_cast<uint32_t>(r->Next());
  before.time = r->Chance(0.5) ? 0 : static_cast<uint32_t>(r->Next());
  before.partition = {static_cast<uint32_t>(r->Next()), static_cast<uint32_t>(r->Next()), r->Next()};
  if (r->Chance(0.8)) before.client = {r->Next(), r->Next()};
  std::vector<Request> all;
  for (size_t i = 0; i < parts; ++i) all.push_back(RandomRequest(r, i == 0 ? before : all[i - 1]));
  if (parts > 0 && r->Chance(0.1)) all[0].client.low = 0;
  return all;
}

uint32_t DigestOf(const Request& q, uint64_t inc) {
  EpochDigest digest(inc);
  for (const TableRequest& t : q.tables) digest.Add(t.table, t.epoch);
  return digest.value(q.request_id);
}

void ExpectSame(const Request& p, const Request& q, bool says_inc) {
  EXPECT_EQ(p.request_id, q.request_id);
  EXPECT_EQ(p.time, q.time);
  EXPECT_TRUE(p.partition == q.partition);
  EXPECT_TRUE(p.client == q.client);
  EXPECT_EQ(p.seq, q.seq);
  EXPECT_EQ(p.after_seq, q.after_seq);
  EXPECT_EQ(p.notified_ack, q.notified_ack);
  EXPECT_EQ(p.knows_inc, says_inc && q.inc != 0);
  if (p.knows_inc || !q.tables.empty()) {
    EXPECT_EQ(p.digest, DigestOf(q, says_inc ? q.inc : 0));
  }
  ASSERT_EQ(p.tables.size(), q.tables.size());
  for (size_t i = 0; i < q.tables.size(); ++i) {
    EXPECT_EQ(p.tables[i].table, q.tables[i].table);
    EXPECT_EQ(p.tables[i].update_floats, q.tables[i].update_floats);
    EXPECT_EQ(p.tables[i].push_keys, q.tables[i].push_keys);
    EXPECT_EQ(p.tables[i].push_ticks, q.tables[i].push_ticks);
    EXPECT_EQ(p.tables[i].left, q.tables[i].left);
    EXPECT_EQ(p.tables[i].push_updates, q.tables[i].push_updates);
    EXPECT_EQ(p.tables[i].push_format, q.tables[i].push_format);
    EXPECT_EQ(p.tables[i].row_format, q.tables[i].row_format);
    EXPECT_EQ(p.tables[i].block, q.tables[i].block);
    EXPECT_EQ(p.tables[i].bound, q.tables[i].bound);
    EXPECT_EQ(p.tables[i].check_keys, q.tables[i].check_keys);
    EXPECT_EQ(p.tables[i].check_clocks, q.tables[i].check_clocks);
    EXPECT_EQ(p.tables[i].fetch_keys, q.tables[i].fetch_keys);
    EXPECT_EQ(p.tables[i].subscribe, q.tables[i].subscribe);
    EXPECT_EQ(p.tables[i].dropped, q.tables[i].dropped);
  }
}

TEST(RequestFrame, RequestsRoundTrip) {
  for (uint64_t seed = 1; seed <= Scaled(3000); ++seed) {
    SCOPED_TRACE(seed);
    Random r(seed);
    const Request q = RandomRequests(&r, 1)[0];
    Bytes bytes;
    Encode(q, &bytes);
    Request p;
    ASSERT_TRUE(Decode(View(bytes), &p).ok());
    ExpectSame(p, q, !IsPushAlone(q));
    RequestParts parts;
    ASSERT_TRUE(parts.Open(View(bytes)).ok());
    EXPECT_EQ(parts.pushes(), q.seq != 0);
    // A cut anywhere is noticed.
    const size_t cut = r.Below(bytes.size());
    EXPECT_FALSE(Decode(Span<const uint8_t>(bytes.data(), cut), &p).ok());
    bytes.push_back(0);
    EXPECT_FALSE(Decode(View(bytes), &p).ok()) << "a byte too many";
  }
}

TEST(RequestFrame, RequestsOfManyPartsRoundTrip) {
  for (uint64_t seed = 1; seed <= Scaled(1000); ++seed) {
    SCOPED_TRACE(seed);
    Random r(seed);
    const std::vector<Request> all = RandomRequests(&r, 2 + r.Below(9));
    Vector<TableBytes> tables;
    const OutFrame frame = EncodeFrame(all, {}, &tables);
    const Bytes& bytes = frame.bytes;
    RequestParts parts;
    ASSERT_TRUE(parts.Open(View(bytes)).ok());
    ASSERT_EQ(parts.size(), all.size());
    ASSERT_EQ(frame.parts.size(), all.size());
    Request p;
    size_t sized = 0;
    size_t sum = 0;
    bool pushes = false;
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(parts.left(), all.size() - i);
      for (const PartRef& part : {frame.parts[i], parts.ref(i)}) {
        EXPECT_EQ(part.partition, all[i].partition.index);
        EXPECT_EQ(part.request_id, all[i].request_id);
      }
      ASSERT_TRUE(parts.Next(&p).ok()) << i;
      ExpectSame(p, all[i], true);
      pushes = pushes || all[i].seq != 0;
      for (const TableRequest& t : all[i].tables) {
        const size_t pushes = t.push_keys.size();
        EXPECT_LE(tables.at(sized).rows, pushes * MostRowBytes(t.push_format, t.block, t.update_floats));
        EXPECT_GE(tables.at(sized).rows, pushes * LeastRowBytes(t.push_format, t.block, t.update_floats));
        sum += tables[sized++].all;
      }
    }
    EXPECT_EQ(frame.push, pushes);
    EXPECT_EQ(parts.pushes(), pushes);
    EXPECT_EQ(sized, tables.size());
    EXPECT_LT(sum, bytes.size());
    EXPECT_FALSE(Decode(View(bytes), &p).ok()) << "one part is not taken for all";
    RequestParts cut;
    Status status = cut.Open({bytes.data(), r.Below(bytes.size())});
    for (size_t i = 0; i < all.size() && status.ok(); ++i) status = cut.Next(&p);
    EXPECT_FALSE(status.ok());
  }
}

// So an undetected change of state is detected at the next request.
TEST(RequestFrame, EveryRequestHasAnotherDigest) {
  EpochDigest digest(5);
  digest.Add(7, 9);
  EXPECT_EQ(digest.value(1), digest.value(1));
  EXPECT_NE(digest.value(1), digest.value(2));
}

// The replicated form: only fields of the push, and no inc, since a copy has another.
TEST(RequestFrame, ThePushPartAlone) {
  for (uint64_t seed = 1; seed <= Scaled(1000); ++seed) {
    SCOPED_TRACE(seed);
    Random r(seed);
    Request q = RandomRequests(&r, 1)[0];
    if (q.seq == 0) q.seq = 5;
    Bytes bytes;
    EncodePush(q, &bytes);
    Request p;
    ASSERT_TRUE(Decode(View(bytes), &p).ok());
    EXPECT_TRUE(IsPushAlone(p));
    EXPECT_FALSE(p.knows_inc);
    Request push = q;
    push.tables.clear();
    for (const TableRequest& t : q.tables) {
      if (t.push_keys.empty()) continue;
      push.tables.push_back(t);
      TableRequest& of = push.tables.back();
      of.check_keys.clear(), of.check_clocks.clear(), of.fetch_keys.clear(), of.dropped.clear();
      of.subscribe = false;
      of.left = 0;
      of.bound = Bound();
    }
    push.after_seq = q.seq;
    push.notified_ack = 0;
    ExpectSame(p, push, false);
  }
}

}  // namespace
}  // namespace het::testing::frame_test
