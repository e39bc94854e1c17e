// Frames with several parts: partitions and the client handle or refuse each part separately.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "het_tf/core/store/local_service.h"
#include "het_tf/core/wire/frame_bytes.h"
#include "het_tf/core/wire/parts.h"
#include "tests/testing/requests.h"
#include "tests/testing/table_specs.h"
#include "tests/testing/world/world_test.h"

namespace het::testing {
namespace {

Span<const uint8_t> View(const Bytes& bytes) { return {bytes.data(), bytes.size()}; }

class Parts : public ::testing::Test {
 protected:
  static constexpr uint32_t kParts = 4;

  Parts() : service_(kParts, 5) {
    schema_ = NewSchema("t", 2);
    EXPECT_TRUE(service_.CreateTable(schema_).ok());
    for (uint32_t p = 0; p < kParts; ++p) {
      service_.WithPartition(p, [&](Partition& partition) {
        epochs_.push_back(partition.Find(schema_->id())->epoch());
        incs_.push_back(partition.incarnation());
      });
    }
  }

  // Push `seq` of one row, and a fetch of it, for each partition.
  std::vector<Request> Steps(uint64_t seq) {
    std::vector<Request> all;
    for (uint32_t p = 0; p < kParts; ++p) {
      Request& q = all.emplace_back(RequestOf(service_.id(p), {1, 2}, seq));
      q.request_id = 10 + p;
      q.inc = incs_[p];
      TableRequest& t = AddTable(&q, *schema_, epochs_[p]);
      t.fetch_keys = {7};
      AddPush(&t, t.fetch_keys);
    }
    return all;
  }
  static Bytes Encoded(const std::vector<Request>& all) {
    Bytes bytes;
    EncodeParts(all, &bytes);
    return bytes;
  }
  std::vector<Reply> Handle(const Bytes& frame) {
    Bytes bytes;
    service_.Handle(View(frame), &bytes);
    ReplyParts parts;
    EXPECT_TRUE(parts.Open(View(bytes)).ok());
    std::vector<Reply> replies;
    while (!parts.done()) {
      replies.emplace_back();
      const Status read = parts.Next(&replies.back());
      if (!read.ok()) {
        ADD_FAILURE() << read.message();
        break;
      }
    }
    return replies;
  }
  Clock ClockAt(uint32_t p) {
    return service_.WithPartition(p, [&](Partition& partition) {
      const RowStore& rows = partition.Find(schema_->id())->rows();
      const uint32_t row = rows.Find(7);
      return row == kNoRow ? 0 : rows.meta(row).clock;
    });
  }
  // Expects the push of all parts except one to be applied.
  void ExpectAllBut(uint32_t refused, const std::vector<Reply>& replies, FrameStatus status,
                    uint64_t seq = 2) {
    const auto ticks = static_cast<Clock>(seq);
    ASSERT_EQ(replies.size(), kParts);
    for (uint32_t p = 0; p < kParts; ++p) {
      EXPECT_EQ(replies[p].status, p == refused ? status : FrameStatus::kOk) << p;
      EXPECT_EQ(replies[p].partition, p);
      EXPECT_EQ(replies[p].request_id, 10 + p);
      EXPECT_EQ(ClockAt(p), p == refused ? ticks - 1 : ticks) << p;
      if (p == refused) continue;
      EXPECT_TRUE(replies[p].same_inc);
      EXPECT_TRUE(replies[p].same_seq);
      EXPECT_THAT(replies[p].tables.at(0).fetched_clocks, ::testing::ElementsAre(ticks));
    }
  }
  // All partitions have applied push 1.
  void Begin() {
    for (const Reply& reply : Handle(Encoded(Steps(1)))) ASSERT_EQ(reply.status, FrameStatus::kOk);
  }

  LocalService service_;
  Schema schema_;
  std::vector<uint64_t> epochs_, incs_;
};

// One part has an error: it is refused, and the others are handled.
TEST_F(Parts, OneIsRefused) {
  const struct {
    uint32_t part;
    std::function<void(Request*)> change;
    FrameStatus status;
  } cases[] = {
      {1, [](Request* q) { q->seq = q->after_seq = 3; }, FrameStatus::kGap},
      {3, [](Request* q) { q->tables[0].epoch ^= 1; }, FrameStatus::kEpoch},
      {0, [](Request* q) { q->inc ^= 1; }, FrameStatus::kEpoch},
      {2, [](Request* q) { q->tables[0].table ^= 1; }, FrameStatus::kNoTable},
  };
  Begin();
  uint64_t seq = 1;
  for (const auto& one : cases) {
    SCOPED_TRACE(one.part);
    auto steps = Steps(++seq);
    one.change(&steps[one.part]);
    const auto replies = Handle(Encoded(steps));
    ExpectAllBut(one.part, replies, one.status, seq);
    const Reply& refused = replies[one.part];
    EXPECT_EQ(refused.last_seq, one.status == FrameStatus::kGap ? seq - 1 : refused.last_seq);
    if (one.status == FrameStatus::kEpoch) {  // what the client has to know is told
      ASSERT_EQ(refused.tables.size(), 1u);
      EXPECT_EQ(refused.tables[0].epoch, epochs_[one.part]);
      EXPECT_FALSE(refused.same_inc);
      EXPECT_EQ(refused.inc, incs_[one.part]);
    }
    // The refused part catches up.
    auto rest = Steps(seq);
    for (const Reply& reply : Handle(Encoded({rest[one.part]}))) ASSERT_EQ(reply.status, FrameStatus::kOk);
  }
}

TEST_F(Parts, UnknownPartitionInOnePart) {
  Begin();
  auto steps = Steps(2);
  steps.resize(2);
  steps[1].partition.index = 9;
  const auto replies = Handle(Encoded(steps));
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[0].status, FrameStatus::kOk);
  EXPECT_EQ(replies[1].status, FrameStatus::kElsewhere);
  EXPECT_EQ(replies[1].partition, 9u);
}

// Memory is exhausted anywhere: exactly the answered parts were handled.
TEST_F(Parts, MemoryEndsInTheMiddle) {
  size_t whole = 0, in_part = 0;
  for (size_t room = 0; room < 12000; room += 48) {
    SCOPED_TRACE(room);
    LocalService fresh(kParts, 5);
    ASSERT_TRUE(fresh.CreateTable(schema_).ok());
    auto steps = Steps(1);
    for (uint32_t p = 0; p < kParts; ++p) {
      steps[p].inc = 0;
      fresh.WithPartition(p,
                          [&](Partition& of) { steps[p].tables[0].epoch = of.Find(schema_->id())->epoch(); });
    }
    const Bytes frame = Encoded(steps);
    Bytes bytes;
    SetAllocLimit(AllocatedBytes() + room);
    bool threw = false;
    try {
      fresh.Handle(View(frame), &bytes);
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    SetAllocLimit(SIZE_MAX);
    auto applied = [&](uint32_t p) {
      return fresh.WithPartition(p, [&](Partition& of) { return of.clients().LastSeq({1, 2}); });
    };
    if (threw) {
      for (uint32_t p = 0; p < kParts; ++p) EXPECT_EQ(applied(p), 0u);
      continue;
    }
    ReplyParts parts;
    ASSERT_TRUE(parts.Open(View(bytes)).ok());
    size_t ok = 0;
    for (uint32_t p = 0; p < kParts; ++p) {
      Reply reply;
      ASSERT_TRUE(parts.Next(&reply).ok());
      EXPECT_EQ(reply.partition, p);
      if (reply.status == FrameStatus::kOk || reply.status == FrameStatus::kOutOfMemory) {
        EXPECT_EQ(reply.same_seq ? 1 : reply.last_seq, applied(p));
      } else {
        EXPECT_EQ(reply.status, FrameStatus::kBusy);
        EXPECT_EQ(reply.message, kStoreOutOfMemory);
        EXPECT_EQ(applied(p), 0u);
      }
      ok += reply.status == FrameStatus::kOk;
    }
    EXPECT_TRUE(parts.done());
    whole += ok == kParts;
    in_part += ok > 0 && ok < kParts;
  }
  EXPECT_GT(whole, 0u);
  EXPECT_GT(in_part, 0u);
}

// Each of them takes one byte: a sender must not control their cost here.
TEST_F(Parts, MoreThanThereCanBe) {
  for (size_t parts : {1u << 16, (1u << 16) + 1}) {
    Bytes frame;
    Writer w(&frame);
    w.Fixed(uint32_t{0x51544548});
    w.Fixed(frame::kVersion);
    w.Fixed(uint8_t{8});  // of many parts
    w.Fixed(uint32_t{1});
    w.Varint(kParts);
    w.Fixed(uint64_t{5});
    w.Varint(parts);
    frame.resize(frame.size() + parts, 0);
    RequestParts read;
    EXPECT_EQ(read.Open(View(frame)).ok(), parts <= 1u << 16);
    EXPECT_EQ(read.size(), parts <= 1u << 16 ? parts : 0);
  }
}

TEST_F(Parts, DamageInTheMiddle) {
  Begin();
  const Bytes frame = Encoded(Steps(2));
  Bytes cut = frame;
  cut.resize(cut.size() - 3);  // in the last part
  ExpectAllBut(3, Handle(cut), FrameStatus::kBadFrame);
}

// --- the client

WorldConfig Shared(uint32_t partitions, uint32_t shards) {
  WorldConfig config;
  config.partitions = partitions;
  config.shards = shards;
  config.cache.pull_bound = config.cache.push_bound = 0;
  config.cache.capacity = 1000;
  return config;
}

class SharedShards : public WorldTest {
 protected:
  static std::vector<Key> Some() {
    std::vector<Key> keys;
    for (Key key = 0; key < 40; ++key) keys.push_back(key);
    return keys;
  }
};

TEST_F(SharedShards, StepIsOneFramePerShardAndDirection) {
  for (const uint32_t shards : {1u, 2u}) {
    Make(Shared(8, shards));
    Train(0, Some());
    net().record = true;
    Train(0, Some());
    EXPECT_EQ(net().recorded.size(), 2 * shards) << "checks, and pushes";
    EXPECT_EQ(Sent(0).size(), 2u * 8);
    Drained();
  }
}

TEST_F(SharedShards, LargePartsGoAlone) {
  WorldConfig config = Shared(4, 1);
  config.dim = 512;
  Make(config);
  std::vector<Key> keys = Some();
  net().record = true;
  Train(0, keys);  // 40 rows of 2 kB, some 20 kB a partition
  EXPECT_GT(net().many_parts(), 0u);
  for (Key key = 40; key < 400; ++key) keys.push_back(key);
  Train(0, keys);
  net().recorded.clear();
  const size_t many = net().many_parts();
  Write(0, Read(0, keys).get());
  size_t pushes = 0;
  for (const OutFrame& frame : net().recorded) pushes += frame.push;
  EXPECT_EQ(pushes, 4u) << "200 kB each";
  EXPECT_EQ(net().many_parts(), many + 1) << "checks alone travel together";
  Drained();
}

TEST_F(SharedShards, UnansweredPartIsSentAgain) {
  Make(Shared(8, 1));
  Train(0, Some());
  for (uint32_t p : {0u, 3u, 7u}) {
    net().omit = p;
    const double before = net().Now();
    Train(0, Some());
    EXPECT_FALSE(net().omit.has_value());
    EXPECT_LT(net().Now() - before, ClientConfig().request_timeout / 2) << "no call waited for it";
  }
  Drained();
}

}  // namespace
}  // namespace het::testing
