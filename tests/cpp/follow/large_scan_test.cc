// A follower that defers small changes: what comes when, and what stays right.
#include "het_tf/core/follow/large_scan.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/cpp/follow/followed_store.h"

namespace het::follow {
namespace {

using ::testing::HasSubstr;

class LargeScanTest : public FollowedStore {
 protected:
  LargeScanTest() {
    large_update_ = 0.1;
    options_.defer_small = 10;
  }
  void Open() {
    Start(1, 1);
    OpenFollower();
    CatchUp();
  }
  nlohmann::json Report() const { return nlohmann::json::parse(follower_->Report()); }
  nlohmann::json Part() const { return Report()["partitions"][0]; }
  void StepFor(double seconds) {
    for (double passed = 0; passed < seconds; passed += 0.05) {
      Pass(0.05);
      follower_->Step();
    }
  }
};

TEST_F(LargeScanTest, LargeChangesComeAtOnceAndSmallOnesLater) {
  Open();
  const uint64_t seen = writer_->seen();
  Set(0, 1, 100);
  StepFor(0.3);
  EXPECT_EQ(Served(0, 1), 100) << "it is new";
  for (int i = 1; i <= 10; ++i) {
    Update(0, 1, 1);
    StepFor(0.3);
    EXPECT_EQ(Served(0, 1), 100) << "after " << i << " steps of a hundredth";
  }
  Update(0, 1, 2);
  StepFor(0.3);
  EXPECT_EQ(Served(0, 1), 112) << "the steps add up to more than a tenth";
  EXPECT_EQ(writer_->seen(), seen) << "other rows are as old as before";
  Update(0, 1, 1);
  Remove(0, {3});
  StepFor(0.3);
  EXPECT_EQ(Served(0, 1), 112);
  EXPECT_EQ(Served(0, 3), kBaseValue) << "keys are removed by ordinary scans";
  StepFor(10);
  ExpectEqual();
  EXPECT_GT(writer_->seen(), seen);
  EXPECT_EQ(Report()["defer_small"], 10);
  EXPECT_EQ(Part()["scans"], 2);
  EXPECT_GT(Part()["large"]["scans"], 20);
  EXPECT_EQ(Part()["large"]["rows"], 2);
}

// Would catch a long scan over a slow link that holds up large changes.
// Would catch rows of a large scan that get ahead of the dense weights, and nobody knows by how much.
TEST_F(LargeScanTest, LargeChangesCountForTheSkew) {
  Start(1, 1, /*same=*/true);
  options_.base = Positions();
  OpenFollower();
  CatchUp();
  StepFor(0.3);
  ASSERT_EQ(Report()["skew"], 0);
  Set(0, 1, 100);
  StepFor(0.3);
  ASSERT_EQ(Served(0, 1), 100);
  EXPECT_GT(Report()["skew"], 0);
}

TEST_F(LargeScanTest, LargeChangesComeBetweenThePagesOfAScan) {
  Open();
  for (Key key = 0; key < kKeys; key += 3) Update(0, key, 0.001f);
  options_.max_page_bytes = 20;
  OpenFollower();
  const uint64_t seen = writer_->seen();
  const auto answer = [&] {  // one question
    Pass(0.2);
    follower_->Step();
  };
  for (int i = 0; i < 6; ++i) answer();
  Set(0, 59, 50);
  for (int i = 0; i < 2; ++i) answer();
  EXPECT_EQ(Served(0, 59), 50);
  EXPECT_EQ(writer_->seen(), seen) << "the scan is not complete";
  CatchUp();
  ExpectEqual();
}

// Would catch a follower that never ends an ordinary scan while large changes fill the link.
TEST_F(LargeScanTest, AnOrdinaryScanIsNotHeldUp) {
  options_.max_page_bytes = 20;
  options_.defer_small = 0.2;
  Open();
  float value = 100;
  source_->before_answer = [&] {
    Pass(0.2);  // every answer takes longer than both intervals
    for (Key key = 0; key < 20; ++key) Set(0, key, ++value);
  };
  const size_t asked = source_->asked, large = source_->large_asked;
  const uint64_t now = now_;
  while (writer_->seen() <= now && source_->asked < asked + 1000) follower_->Step();
  const size_t pages = source_->asked - asked, large_pages = source_->large_asked - large;
  EXPECT_GT(writer_->seen(), now);
  EXPECT_LE(pages, 2 * large_pages + 2) << "they take turns";
  EXPECT_GE(pages, 2 * large_pages - 2);
}

// Would catch the end of a scan that removes a row which it cannot have met.
TEST_F(LargeScanTest, ARowThatWasMadeBehindTheCursorOfAWholeScanStays) {
  Open();
  Restart(0, Snapshot(0));
  const size_t first = schema(0)->id() < schema(1)->id() ? 0 : 1;  // a scan begins there
  Remove(first, {0});                                              // its first row is free now
  options_.max_page_bytes = 20;
  OpenFollower();
  size_t whole = 0;
  source_->before_answer = [&] {
    if (++whole == 5) Set(first, 1, 77);  // it takes the free row
  };
  const uint64_t seen = writer_->seen();
  bool came = false;
  while (writer_->seen() == seen) {
    Pass(0.05);
    follower_->Step();
    ASSERT_NO_FATAL_FAILURE(CheckServed(writer_->seen()));
    came = came || Served(first, 1) == 77;
    EXPECT_EQ(Served(first, 1) == 77, came) << "it goes and comes";
  }
  EXPECT_TRUE(came);
  EXPECT_EQ(Part()["kind"], "whole");
  EXPECT_EQ(Served(first, 1), 77) << "the last page removed it";
}

// Would catch a follower that waits for the next ordinary scan while nobody tells it of large changes.
TEST_F(LargeScanTest, AnUnknownPositionBeginsAnOrdinaryScan) {
  Open();
  EXPECT_EQ(Part()["kind"], "whole");
  Update(0, 0, 0.001f);
  Restart(0, Snapshot(0));
  StepFor(0.5);
  EXPECT_EQ(Part()["scans"], 2);
  ExpectEqual();
  Update(0, 0, 1);
  StepFor(0.5);
  ExpectEqual();
  service_->ClearTable(schema(1)->id());
  Observe();
  StepFor(0.5);
  EXPECT_EQ(Part()["scans"], 3);
  ExpectEqual();
}

// Would catch rows of a table that the follower has not looked at.
TEST_F(LargeScanTest, RowsOfAnotherTableDoNotCome) {
  Open();
  TableSpec spec = schema(0)->spec();
  spec.seed = 99;
  service_->DropTable(schema(0)->id());
  const Schema other = TableSchema::Create(spec).value();
  ASSERT_TRUE(store_->CreateTable(other).ok());
  const std::vector<float> row(Dim(), 77);
  const Key key = 0;
  ASSERT_TRUE(store_->Assign(*other, {&key, 1}, row.data(), false).ok());
  const auto served = Served(0, 0);
  StepFor(1);
  EXPECT_EQ(Served(0, 0), served);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(store_->Assign(*other, {&key, 1}, row.data(), false).ok());
    StepFor(0.1);
    EXPECT_EQ(Served(0, 0), served);
  }
  EXPECT_THAT(Report()["tables"]["a"]["error"], HasSubstr("seed"));
}

// Would catch a server without the setting that stops ordinary scans, or is asked without pauses.
TEST_F(LargeScanTest, AStoreThatDoesNotRememberIsReportedAndFollowedOn) {
  large_update_ = 0;
  options_.defer_small = 1;
  Open();
  Set(0, 1, 7);
  StepFor(5);
  ExpectEqual();
  EXPECT_LT(Report()["age"], 1.2);
  EXPECT_THAT(Part()["large"]["error"], HasSubstr("do not remember"));
  EXPECT_GT(Part()["large"]["failing"], 4);
  EXPECT_EQ(Part()["error"], "");
  EXPECT_LT(source_->large_asked, 15u);
}

// Would catch an answer of before a rollback that is written into the rows of the version.
TEST_F(LargeScanTest, AnAnswerOfBeforeARollbackIsIgnored) {
  Open();
  Version version;
  version.number = 1;
  version.dense_path = "dense";
  ASSERT_TRUE(follower_->Offer(version, Positions()).ok());
  CatchUp();
  ASSERT_EQ(writer_->version().number, 1u);
  version.number = 2;
  ASSERT_TRUE(follower_->Offer(version, Positions()).ok());
  CatchUp();
  const auto before = Served(0, 1);
  Set(0, 1, 50);
  source_->late = 1;
  StepFor(0.3);
  ASSERT_TRUE(follower_->RollBack(1).ok());
  StepFor(1);
  source_->late = 0;
  StepFor(1);
  EXPECT_EQ(Served(0, 1), before);
  ASSERT_TRUE(follower_->Resume().ok());
  StepFor(0.5);
  ExpectEqual();
}

}  // namespace
}  // namespace het::follow
