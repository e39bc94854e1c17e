// What a follower must do in one situation each.
#include "het_tf/ext/serving/cc/follow/follower.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include "tests/ext/serving/follow/followed_store.h"

namespace het::follow {
namespace {

using ::testing::HasSubstr;

class FollowerTest : public FollowedStore {
 protected:
  void Open(uint32_t partitions = 1) {
    Start(partitions, 1);
    OpenFollower();
  }
  nlohmann::json Report() const { return nlohmann::json::parse(follower_->Report()); }
  std::string ErrorOf(size_t part) const { return Report()["partitions"][part]["error"]; }
  void StepFor(double seconds) {
    for (double passed = 0; passed < seconds; passed += 0.05) {
      Pass(0.05);
      follower_->Step();
    }
  }
  static Version Named(uint64_t number) {
    Version version;
    version.number = number;
    version.dense_path = "dense";
    return version;
  }
  Status Offer(uint64_t number, std::vector<Position> cut) {
    return follower_->Offer(Named(number), std::move(cut));
  }
};

// Would catch rows of a removed table that go on being served as new.
TEST_F(FollowerTest, AMissingTableStopsTheAge) {
  Open();
  CatchUp();
  const uint64_t seen = writer_->seen();
  const size_t rows = writer_->rows(0);
  service_->DropTable(schema(0)->id());
  Set(1, 5, 9);
  StepFor(3);
  EXPECT_LE(writer_->seen(), seen + 200'000'000) << "it only grows older";
  EXPECT_EQ(writer_->rows(0), rows);
  EXPECT_THAT(Report()["tables"]["a"]["error"], HasSubstr("does not exist"));
  EXPECT_EQ(Report()["tables"]["b"]["error"], "");
  EXPECT_LT(source_->asked, 60u) << "it asks ever more seldom";
  ASSERT_TRUE(store_->CreateTable(schema(0)).ok());
  Set(0, 5, 8);
  CatchUp();
  EXPECT_EQ(Report()["tables"]["a"]["error"], "");
  ExpectEqual();
}

// Would catch rows of another table of the same name and width.
TEST_F(FollowerTest, ATableOfAnotherSeedIsRefused) {
  Open();
  CatchUp();
  TableSpec spec = schema(0)->spec();
  spec.seed = 99;
  service_->DropTable(schema(0)->id());
  const Schema other = TableSchema::Create(spec).value();
  ASSERT_TRUE(store_->CreateTable(other).ok());
  testing::AssignRows(store_.get(), *other, 0, 1, 77);
  const auto served = Served(0, 0);
  StepFor(1);
  EXPECT_EQ(Served(0, 0), served);
  EXPECT_THAT(Report()["tables"]["a"]["error"], HasSubstr("seed"));
}

// Would catch a follower that another optimizer stops: values do not depend on it.
TEST_F(FollowerTest, ATableOfAnotherOptimizerIsFollowed) {
  Start(1, 1);
  TableSpec spec = schema(0)->spec();
  spec.optimizer.name = "adam";
  service_->DropTable(schema(0)->id());
  ASSERT_TRUE(store_->CreateTable(TableSchema::Create(spec).value()).ok());
  OpenFollower();
  CatchUp();
  EXPECT_EQ(Report()["tables"]["a"]["error"], "");
}

// Would catch removals by the layout of another store.
TEST_F(FollowerTest, RowsOfAnotherPartitionAreRefused) {
  Start(2, 1);
  OpenFollower();
  CatchUp();
  const std::unique_ptr<LocalService> right = std::move(service_);
  service_ = std::make_unique<LocalService>(2, /*hash_seed=*/5);
  store_ = std::make_unique<LocalStore>(service_.get());
  follower_.reset();
  class Disguised : public LocalChanges {
   public:
    using LocalChanges::LocalChanges;
    uint64_t hash_seed() const override { return 11; }
  };
  source_ = std::make_unique<Disguised>(service_.get(), 1);
  for (const Schema& one : schemas_) ASSERT_TRUE(store_->CreateTable(one).ok());
  testing::AssignRows(store_.get(), *schema(0), 0, kKeys, 6);
  OpenFollower();
  const uint64_t seen = writer_->seen();
  StepFor(1);
  EXPECT_EQ(writer_->seen(), seen);
  EXPECT_THAT(ErrorOf(0), HasSubstr("belongs to another one"));
}

// Would catch a skew that the files of an earlier follower, or another version, still show.
TEST_F(FollowerTest, TheSkewIsUnknownAfterARestart) {
  Start(1, 1, /*same=*/true);
  options_.base = Positions();
  OpenFollower();
  CatchUp();
  ASSERT_TRUE(Offer(1, Positions()).ok());
  StepFor(0.3);
  EXPECT_EQ(reader_->state().value().skew, 0.0);
  follower_.reset();
  writer_.reset();
  OpenFollower();
  CatchUp();
  EXPECT_EQ(reader_->state().value().skew, std::nullopt);
}

// Would catch an older version that comes into force, one that waits and ends a rollback, rows that stop, and
// weights whose rows have not come.
TEST_F(FollowerTest, OnlyTheNewestReachedVersionComesIntoForceAndDenseWeightsGoBack) {
  Open(1);
  CatchUp();
  const std::vector<Position> cut = Positions();
  std::vector<Position> later = cut;
  later[0].number += 1;
  ASSERT_TRUE(Offer(3, later).ok());
  ASSERT_TRUE(Offer(2, cut).ok());
  ASSERT_TRUE(Offer(1, cut).ok());
  StepFor(0.3);
  EXPECT_EQ(writer_->version().number, 2u);
  EXPECT_EQ(writer_->version().dense_path, "dense");
  EXPECT_EQ(Report()["waiting"], nlohmann::json({3}));
  ASSERT_TRUE(follower_->RollBack(Named(1), cut).ok());
  EXPECT_EQ(writer_->version().number, 1u);
  EXPECT_TRUE(Report()["skew"].is_null());
  Set(0, 1, 7);
  StepFor(0.3);
  EXPECT_EQ(Served(0, 1), 7);
  EXPECT_EQ(writer_->version().number, 1u);
  later[0].number += 1;
  ASSERT_TRUE(follower_->RollBack(Named(4), later).ok());
  StepFor(0.3);
  EXPECT_EQ(writer_->version().number, 1u);
  Set(0, 1, 8);
  StepFor(0.3);
  EXPECT_EQ(writer_->version().number, 4u);
}

TEST_F(FollowerTest, ACutOfAnotherStoreIsRefused) {
  Open(2);
  EXPECT_TRUE(Fails(Offer(1, {Position{1, 1}}), Code::kInvalidArgument, "2 partitions"));
}

// Would catch a whole scan where the positions of the export suffice.
TEST_F(FollowerTest, OnlyChangesAreAskedForSinceTheExport) {
  Start(1, 1, /*same=*/true);
  options_.base = Positions();
  Set(0, 1, 7);
  OpenFollower();
  CatchUp();
  EXPECT_EQ(Report()["partitions"][0]["kind"], "changes");
  EXPECT_EQ(Report()["rows"], 1);
  ExpectEqual();
}

// Would catch a full disk that ends the follower, damages rows, or lets it claim that they are new.
TEST_F(FollowerTest, AFullDiskStopsTheAgeUntilThereIsRoom) {
  Open();
  CatchUp();
  const uint64_t seen = writer_->seen();
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 1024;
  signal(SIGXFSZ, SIG_IGN);
  // More rows than the file has room for.
  const std::vector<Key> keys = testing::Range(1000, 2000);
  const std::vector<float> rows(keys.size() * Dim(), 4);
  ASSERT_TRUE(store_->Assign(*schema(0), keys, rows.data(), false).ok());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  StepFor(3);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_LE(writer_->seen(), seen + 200'000'000);
  EXPECT_NE(ErrorOf(0), "");
  CheckServed(seen);
  CatchUp();
  EXPECT_EQ(ErrorOf(0), "");
  ExpectEqual();
  EXPECT_EQ(Read(reader_.get(), 0, {2999})[0], 4);
}

}  // namespace
}  // namespace het::follow
