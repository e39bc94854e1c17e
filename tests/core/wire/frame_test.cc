// Frames: decoding inverts encoding, and refuses truncated frames; their sizes, formats and versions, and
// exhausted memory.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "het_tf/core/wire/parts.h"
#include "tests/testing/packed_rows.h"
#include "tests/testing/random.h"

namespace het::testing::frame_test {
namespace {

constexpr int64_t kSpecial[] = {
    0,         1,         -1,           127, 128, INT32_MAX, int64_t{1} << 31, (int64_t{1} << 53) + 1,
    INT64_MIN, INT64_MAX, INT64_MIN + 1};

int64_t Any(Random* r) { return r->Chance(0.5) ? kSpecial[r->Below(11)] : static_cast<int64_t>(r->Next()); }

void AnyKeys(Random* r, Vector<Key>* keys) {
  std::set<Key> some;
  for (uint64_t n = r->Chance(0.5) ? 0 : r->Below(9); n > 0; --n) some.insert(Any(r));
  keys->insert(keys->end(), some.begin(), some.end());
}

// Names of the first n keys.
void AnyNames(Random* r, size_t n, Vector<uint32_t>* names) {
  for (size_t i = 0; i < n; ++i)
    names->push_back(r->Chance(0.5) ? 0 : 1 + static_cast<uint32_t>(r->Below(NamedKeys::kMostPlaces)));
}

// The keys as they are after decoding: those that have no name, and those behind the list of names.
Vector<Key> InFull(const Vector<uint32_t>& names, const Vector<Key>& keys) {
  Vector<Key> in_full;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (i >= names.size() || names[i] == 0) in_full.push_back(keys[i]);
  }
  return in_full;
}

uint64_t Near(Random* r, uint64_t number) {
  return r->Chance(0.3) ? r->Next() : number + static_cast<uint64_t>(r->Between(-2, 2));
}

RowFormat AnyFormat(Random* r) { return static_cast<RowFormat>(r->Below(3)); }

Span<const uint8_t> View(const Bytes& bytes) { return {bytes.data(), bytes.size()}; }

// --- requests

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
    t.left = static_cast<uint32_t>(t.push_keys.size());
    AnyKeys(r, &t.push_keys);
    t.left = static_cast<uint32_t>(t.push_keys.size()) - t.left;
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
    if (t.bound.every != 0 && r->Chance(0.5))
      t.bound.early = 3, t.bound.from = static_cast<uint32_t>(r->Next());
    AnyKeys(r, &t.check_keys);
    for (size_t i = 0; i < t.check_keys.size(); ++i) t.check_clocks.push_back(Any(r));
    AnyKeys(r, &t.fetch_keys);
    t.subscribe = r->Chance(0.3);
    AnyKeys(r, &t.dropped);
    if (r->Chance(0.5)) continue;
    t.ring = 1 << r->Below(15);
    t.anew = r->Chance(0.5);
    t.names.state = r->Next();
    AnyNames(r, t.push_keys.size() - t.left, &t.names.push);
    AnyNames(r, t.check_keys.size(), &t.names.check);
    AnyNames(r, t.fetch_keys.size(), &t.names.fetch);
    AnyNames(r, t.dropped.size(), &t.names.dropped);
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
  for (const TableRequest& t : q.tables) {
    digest.Add(t.table, t.epoch);
    if (t.ring != 0 && !t.anew) digest.AddNames(t.names.state);
  }
  return digest.value(q.request_id);
}

// Expects that these members are equal.
template <typename T, typename... Members>
void ExpectMembers(const T& p, const T& q, Members... members) {
  int number = 0;
  const auto expect = [&](auto member) { EXPECT_EQ(p.*member, q.*member) << "member " << number++; };
  (expect(members), ...);
}

void ExpectSame(const Request& p, const Request& q, bool says_inc) {
  using R = Request;
  ExpectMembers(p, q, &R::request_id, &R::time, &R::partition, &R::client, &R::seq, &R::after_seq,
                &R::notified_ack);
  EXPECT_EQ(p.knows_inc, says_inc && q.inc != 0);
  if (p.knows_inc || !q.tables.empty()) {
    EXPECT_EQ(p.digest, DigestOf(q, says_inc ? q.inc : 0));
  }
  ASSERT_EQ(p.tables.size(), q.tables.size());
  for (size_t i = 0; i < q.tables.size(); ++i) {
    using T = TableRequest;
    const TableRequest& t = q.tables[i];
    ExpectMembers(p.tables[i], t, &T::table, &T::update_floats, &T::push_ticks, &T::left, &T::push_updates,
                  &T::push_format, &T::row_format, &T::block, &T::bound, &T::ring, &T::anew, &T::check_clocks,
                  &T::subscribe);
    ExpectMembers(p.tables[i].names, t.names, &ListNames::push, &ListNames::check, &ListNames::fetch,
                  &ListNames::dropped);
    EXPECT_EQ(p.tables[i].push_keys, InFull(t.names.push, t.push_keys));
    EXPECT_EQ(p.tables[i].check_keys, InFull(t.names.check, t.check_keys));
    EXPECT_EQ(p.tables[i].fetch_keys, InFull(t.names.fetch, t.fetch_keys));
    EXPECT_EQ(p.tables[i].dropped, InFull(t.names.dropped, t.dropped));
  }
}

// One part is a frame, too: its decoding by Decode.
TEST(RequestFrame, RequestsRoundTrip) {
  for (uint64_t seed = 1; seed <= Scaled(4000); ++seed) {
    SCOPED_TRACE(seed);
    Random r(seed);
    const std::vector<Request> all = RandomRequests(&r, r.Chance(0.7) ? 1 : 2 + r.Below(9));
    Vector<TableBytes> tables;
    const OutFrame frame = EncodeFrame(all, {}, &tables);
    Bytes bytes = frame.bytes;
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
      ExpectSame(p, all[i], all.size() > 1 || !IsPushAlone(all[i]));
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
    EXPECT_EQ(Decode(View(bytes), &p).ok(), all.size() == 1) << "one part is not taken for all";
    if (all.size() == 1) ExpectSame(p, all[0], !IsPushAlone(all[0]));
    // A cut anywhere is noticed, and a byte too many.
    const auto read = [&](size_t size) {
      RequestParts cut;
      Status status = cut.Open({bytes.data(), size});
      for (size_t i = 0; i < all.size() && status.ok(); ++i) status = cut.Next(&p);
      return status;
    };
    EXPECT_FALSE(read(r.Below(bytes.size())).ok());
    bytes.push_back(0);
    EXPECT_FALSE(read(bytes.size()).ok());
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
      of.names.Clear();
      of.subscribe = of.anew = false;
      of.ring = 0;
      of.bound = Bound();
    }
    push.after_seq = q.seq;
    push.notified_ack = 0;
    ExpectSame(p, push, false);
  }
}

// --- replies

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
      const uint32_t last = t.refreshed.empty() ? 0 : t.refreshed.back();
      t.refreshed.push_back(last + 1 + static_cast<uint32_t>(r->Below(r->Chance(0.9) ? 9 : UINT32_MAX / 16)));
      t.refreshed_lags.push_back(clock());
    }
    for (uint64_t n = r->Below(9); n > 0; --n) t.fetched_clocks.push_back(clock());
    AnyKeys(r, &t.notified_keys);
    if (p.status != FrameStatus::kEpoch && r->Chance(0.5))
      AnyNames(r, t.notified_keys.size(), &t.notified_names);
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
  using R = Reply;
  ExpectMembers(q, p, &R::status, &R::message, &R::request_id, &R::partition, &R::same_inc, &R::inc,
                &R::same_seq, &R::last_seq, &R::notified, &R::subscription_reset);
  ASSERT_EQ(q.tables.size(), p.tables.size());
  for (size_t i = 0; i < p.tables.size(); ++i) {
    using T = TableReply;
    ExpectMembers(q.tables[i], p.tables[i], &T::table, &T::epoch, &T::row_floats, &T::row_format, &T::block,
                  &T::refreshed, &T::refreshed_lags, &T::fetched_clocks, &T::notified_names, &T::rows,
                  &T::lag_histogram);
    EXPECT_EQ(q.tables[i].notified_keys, InFull(p.tables[i].notified_names, p.tables[i].notified_keys));
  }
}

TEST(ReplyFrame, RepliesRoundTrip) {
  for (uint64_t seed = 1; seed <= Scaled(4000); ++seed) {
    SCOPED_TRACE(seed);
    Random r(seed);
    std::vector<Reply> all;
    for (size_t n = r.Chance(0.7) ? 1 : 2 + r.Below(9); n > 0; --n)
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
    EXPECT_EQ(Decode(View(bytes), &q).ok(), all.size() == 1) << "one part is not taken for all";
    if (all.size() > 1) continue;
    ExpectSame(q, all[0]);
    EXPECT_FALSE(Decode({bytes.data(), r.Below(bytes.size())}, &q).ok());
  }
}

// --- sizes, formats, versions, memory

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

TEST(Frame, AnotherVersionSaysWhatToDo) {
  Bytes request, reply;
  Encode(Request(), &request);
  Encode(Reply(), &reply);
  Request q;
  Reply p;
  EXPECT_FALSE(Decode(request, &p).ok()) << "a request is no reply";
  request[4] = reply[4] = 9;
  for (const Status& status : {Decode(request, &q), Decode(reply, &p)}) {
    EXPECT_NE(status.message().find("version 9"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("upgrade"), std::string::npos) << status.message();
  }
}

TEST(Frame, LagBuckets) {
  const std::pair<int64_t, size_t> buckets[] = {{-3, 0}, {0, 0}, {1, 1},         {2, 2},
                                                {3, 2},  {4, 3}, {INT64_MAX, 63}};
  for (const auto& [lag, bucket] : buckets) EXPECT_EQ(LagBucket(lag), bucket) << lag;
}

}  // namespace
}  // namespace het::testing::frame_test
