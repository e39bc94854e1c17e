// A partition whose rows are stored in 16 or 8 bits: all copies of it have the same bits, and small steps add
// up.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "het_tf/core/store/local_store.h"
#include "tests/testing/handle_frame.h"
#include "tests/testing/partition_bytes.h"
#include "tests/testing/random.h"
#include "tests/testing/requests.h"
#include "tests/testing/table_specs.h"

namespace het::testing::stored_rows {
namespace {

constexpr uint64_t kEpoch = 77;
constexpr ClientId kClient{1, 2};

class StoredRows : public ::testing::TestWithParam<Stored> {
 protected:
  StoredRows() {
    TableSpec spec = NewSpec("t", kDim, "row_wise_adagrad", {"constant", 1, 0});
    spec.stored = GetParam();
    schema_ = TableSchema::Create(spec).value();
    primary_ = std::make_unique<Partition>(PartitionId{0, 1, 5}, 1000);
    EXPECT_TRUE(primary_->CreateTable(schema_, kEpoch).ok());
  }

  // The next push of these keys; every update is u.
  Bytes Push(const std::vector<Key>& keys, uint32_t ticks, float u) {
    Request q = RequestOf(primary_->id(), kClient, primary_->clients().LastSeq(kClient) + 1);
    q.request_id = ++last_id_;
    AddPush(&AddTable(&q, *schema_, kEpoch), keys, ticks, u);
    Bytes frame;
    Encode(q, &frame);
    return frame;
  }
  Handled Handle(const Bytes& frame) {
    Handling how;
    how.now = 1000;
    how.replicate = true;
    Bytes reply;
    return HandleFrame(primary_.get(), frame, &reply, how);
  }
  // The value and the accumulator.
  std::vector<float> RowOf(Key key) {
    Shard& shard = *primary_->Find(schema_->id());
    const float* const row = shard.Read(shard.rows().data(shard.rows().Find(key)));
    return std::vector<float>(row, row + schema_->row_floats());
  }

  static constexpr uint32_t kDim = 16;
  Schema schema_;
  std::unique_ptr<Partition> primary_;
  uint32_t last_id_ = 0;
};

INSTANTIATE_TEST_SUITE_P(All, StoredRows, ::testing::Values(Stored::kBfloat16, Stored::kInt8),
                         [](const auto& info) { return std::string(StoredName(info.param)); });

// A copy that takes each push, one that was built from a dump in between, and the primary.
TEST_P(StoredRows, CopiesHaveTheSameBits) {
  Random random(3);
  Partition replica(primary_->id(), 2000);
  ASSERT_TRUE(replica.CreateTable(schema_, kEpoch).ok());
  std::unique_ptr<Partition> moved;
  for (int push = 0; push < 200; ++push) {
    if (push == 100) moved = std::move(PartitionOf(BytesOf(*primary_), 3000).value());
    const auto u = static_cast<float>(random.Unit() * 0.01);
    const Bytes frame = Push({1, 2, 3}, push < 3 || random.Chance(0.8) ? 1 : 0, u);
    const Handled handled = Handle(frame);
    ASSERT_TRUE(handled.applied);
    ASSERT_TRUE(CopyHandles(frame, handled, &replica));
    ASSERT_TRUE(moved == nullptr || CopyHandles(frame, handled, moved.get()));
  }
  EXPECT_EQ(BytesOf(replica), BytesOf(*primary_));
  EXPECT_EQ(BytesOf(*moved), BytesOf(*primary_));
}

// A hundredth of a unit of each step. Arithmetic in the stored type, or the nearest number, would lose all.
TEST_P(StoredRows, SmallStepsAddUp) {
  const float unit = GetParam() == Stored::kInt8 ? 1.0f / 64 : 1.0f / 128;
  constexpr int kPushes = 10000;
  for (int push = 0; push < kPushes; ++push)
    ASSERT_TRUE(Handle(Push({1}, push == 0 ? 1 : 0, unit / 200)).applied);
  const std::vector<float> row = RowOf(1);
  double sum = 0;
  for (uint32_t i = 0; i < kDim; ++i) sum += row[i] - 1;
  // 800 units of 160,000 draws, each with a deviation of .07 units: five deviations of the sum are 18 %.
  EXPECT_NEAR(sum / (kDim * kPushes * unit / 200.0), 1, 0.18);
  EXPECT_NEAR(row[kDim], kPushes * unit / 200, 1e-3 * row[kDim]) << "the slot of one float is not rounded";
}

// What a checkpoint holds are floats; so are rows that are assigned.
TEST_P(StoredRows, LoadsAndReadsKeepTheBits) {
  Random random(4);
  LocalService service(1, 5);
  LocalStore store(&service);
  ASSERT_TRUE(store.CreateTable(schema_).ok());
  std::vector<Key> keys = {1, 2, 3};
  std::vector<float> rows(keys.size() * schema_->row_floats());
  for (float& x : rows) x = static_cast<float>(random.Unit());
  const Span<const Key> all(keys.data(), keys.size());
  ASSERT_TRUE(store.Assign(*schema_, all, rows.data(), /*with_slots=*/true, nullptr).ok());
  RowBatch batch(*schema_, 1 << 16);
  uint64_t cursor = 0;
  ASSERT_TRUE(store.ScanSome(*schema_, 0, &cursor, &batch).ok());
  ASSERT_EQ(batch.size(), 3u);
  const Bytes before = BytesOf(&service, 0);
  ASSERT_TRUE(store.LoadBatch(*schema_, batch).ok());
  EXPECT_EQ(BytesOf(&service, 0), before);
  std::vector<float> values(keys.size() * kDim);
  ASSERT_TRUE(store.Read(*schema_, all, values.data()).ok());
  for (size_t i = 0; i < batch.size(); ++i) {
    const size_t at = static_cast<size_t>(batch.keys()[i] - 1);
    for (uint32_t k = 0; k < kDim; ++k) {
      EXPECT_EQ(values[at * kDim + k], batch.value(i)[k]);
      EXPECT_NEAR(values[at * kDim + k], rows[at * schema_->row_floats() + k], 0.008);
    }
  }
}

// A chunk's rows are of the format that it states, though another one may take as many bytes.
TEST_P(StoredRows, RowsOfAnotherFormatAreRefused) {
  TableSpec spec = schema_->spec();
  spec.stored = Stored::kFloat32;
  Partition other(primary_->id(), 4000);
  ASSERT_TRUE(other.CreateTable(TableSchema::Create(spec).value(), kEpoch).ok());
  const Key key = 1;
  const std::vector<float> row(schema_->row_floats());
  Bytes chunk;
  EncodeSet(*schema_, {&key, 1}, row.data(), &chunk);
  const std::string error = LoadChunk(chunk, &other).message();
  EXPECT_NE(error.find(std::string("stored as ") + StoredName(GetParam())), std::string::npos) << error;
  EXPECT_NE(error.find("68 bytes stored as float32"), std::string::npos) << error;
  EXPECT_TRUE(LoadChunk(chunk, primary_.get()).ok());
}

}  // namespace
}  // namespace het::testing::stored_rows
