// The way back: a follower with random changes goes back to versions, is killed, and goes on.
#include "het_tf/ext/serving/cc/follow/undo.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include "tests/ext/serving/follow/followed_store.h"

namespace het::follow {
namespace {

using ::testing::HasSubstr;
using testing::Random;
using testing::Scaled;

class UndoTest : public FollowedStore {
 protected:
  using Rows = std::map<History::Place, History::Value>;

  Rows ServedRows() {
    Rows rows;
    for (size_t table = 0; table < schemas_.size(); ++table) {
      for (Key key = 0; key < kKeys; ++key) rows[{table, key}] = Served(table, key);
    }
    return rows;
  }
  void Open(uint32_t partitions = 3) {
    Start(partitions, 1);
    OpenFollower();
    CatchUp();
  }
  // Ends the process at once, and begins the next one.
  void Kill() {
    follower_.reset();
    writer_.reset();
    source_ = std::make_unique<LocalChanges>(service_.get(), 5);
    OpenFollower();
  }
  Version Named(uint64_t number) {
    Version version;
    version.number = number;
    version.dense_path = "dense " + std::to_string(number);
    return version;
  }
  // Publishes a version, and steps until it is in force: notes the rows of its moment.
  void Publish(uint64_t number) {
    ASSERT_TRUE(follower_->Offer(Named(number), Positions()).ok());
    for (int i = 0; i < 5000 && writer_->version().number != number; ++i) {
      Pass(0.03);
      follower_->Step();
    }
    ASSERT_EQ(writer_->version().number, number) << follower_->Report();
    moments_[number] = ServedRows();
  }
  void StepFor(double seconds) {
    for (double passed = 0; passed < seconds; passed += 0.05) {
      Pass(0.05);
      follower_->Step();
    }
  }
  void Change(size_t table, Key key) { Set(table, key, ++stamp_); }
  nlohmann::json Report() const { return nlohmann::json::parse(follower_->Report()); }
  std::vector<uint64_t> Targets() const {
    std::vector<uint64_t> numbers;
    const nlohmann::json report = Report();
    for (const auto& one : report["undo"]) numbers.push_back(one["version"]);
    return numbers;
  }

  std::map<uint64_t, Rows> moments_;
  float stamp_ = 1;
};

// Would catch a new, a removed or a twice changed key that does not come back, and rows that go on.
TEST_F(UndoTest, RowsAndDenseWeightsGoBackAndStay) {
  Open();
  Publish(1);
  Change(0, 3);
  Change(0, 45);
  Remove(0, {6});
  CatchUp();
  Change(0, 3);
  Publish(2);
  Change(0, 3);
  CatchUp();
  const uint64_t seen = writer_->seen();
  ASSERT_TRUE(follower_->RollBack(1).ok());
  EXPECT_EQ(writer_->version().dense_path, "dense 1");
  EXPECT_LT(writer_->seen(), seen) << "the age must not be that of rows that are gone";
  EXPECT_NE(ServedRows(), moments_[1]) << "requests that began before have time to read their rows";
  Change(1, 9);
  StepFor(2);
  EXPECT_EQ(ServedRows(), moments_[1]);
  ASSERT_TRUE(follower_->Offer(Named(3), Positions()).ok());
  StepFor(2);
  EXPECT_EQ(writer_->version().number, 1u);
  EXPECT_EQ(Report()["rolled_back"], (nlohmann::json{{"version", 1}, {"rows", true}}));
  ASSERT_TRUE(follower_->Resume().ok());
  CatchUp();
  ExpectEqual();
  Publish(3);
  EXPECT_TRUE(Report()["rolled_back"].is_null());
}

// Would catch an answer to a question of before the rollback, which would be taken for one of after it.
TEST_F(UndoTest, AnswersToQuestionsOfBeforeAreIgnored) {
  Open();
  Publish(1);
  for (Key key = 0; key < 20; ++key) Change(0, key);
  CatchUp();
  source_->late = 1;
  StepFor(0.5);  // questions are under way
  ASSERT_TRUE(follower_->RollBack(1).ok());
  StepFor(1);
  source_->late = 0.5;
  ASSERT_TRUE(follower_->Resume().ok());
  CatchUp();
  ExpectEqual();
}

TEST_F(UndoTest, AVersionWithoutJournalIsRefusedWithThoseThatHaveOne) {
  options_.undo.versions = 2;
  Open();
  for (uint64_t number = 1; number <= 5; ++number) {
    Change(0, 3);
    Publish(number);
  }
  EXPECT_EQ(Targets(), (std::vector<uint64_t>{3, 4, 5}));
  const Status refused = follower_->RollBack(2);
  EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("it can go back to 3, 4, 5"));
  EXPECT_TRUE(Report()["rolled_back"].is_null());
  ASSERT_TRUE(follower_->RollBack(3).ok());
  EXPECT_THAT(follower_->RollBack(5).message(), HasSubstr("at the earlier version 3; resume first"));
}

// Would catch a journal of a version that has lost rows and is taken for a whole one.
TEST_F(UndoTest, WhatDoesNotFitIsDroppedAsAWhole) {
  options_.undo.bytes = 1500;
  Open();
  Publish(1);
  for (Key key = 0; key < 5; ++key) Change(0, key);
  Publish(2);
  for (Key key = 0; key < 40; ++key) Change(0, key);
  Publish(3);
  EXPECT_EQ(Targets().front(), 2u) << "the oldest goes first";
  for (int round = 0; round < 3; ++round) {
    for (Key key = 0; key < kKeys; ++key) Change(0, key), Change(1, key);
    CatchUp();
  }
  EXPECT_EQ(Targets(), std::vector<uint64_t>());
  EXPECT_THAT(follower_->RollBack(3).message(), HasSubstr("need more than --undo-bytes 1500"));
  ExpectEqual();
  Publish(4);
  EXPECT_EQ(Targets(), std::vector<uint64_t>{4});
  EXPECT_EQ(Report()["undo_error"], "");
}

TEST_F(UndoTest, OnlyTheDenseWeightsGoBackIfAsked) {
  Open();
  Publish(1);
  Publish(2);
  ASSERT_TRUE(follower_->RollBackDense(Named(1)).ok());
  EXPECT_EQ(writer_->version().number, 1u);
  Change(0, 3);
  CatchUp();
  ExpectEqual();
  Kill();
  ASSERT_TRUE(follower_->Offer(Named(3), Positions()).ok());
  CatchUp();
  EXPECT_EQ(writer_->version().number, 1u) << "it stays, after a restart too";
  ASSERT_TRUE(follower_->Resume().ok());
  Publish(3);
}

// Would catch a block that was half written, and taken for the beginning of one.
TEST_F(UndoTest, ACutBlockIsCutOff) {
  Open(1);
  Publish(1);
  Change(0, 3);
  CatchUp();
  const std::string path = Live() + "/undo-1.journal";
  const uint64_t whole = std::filesystem::file_size(path);
  Change(0, 4);
  CatchUp();
  follower_.reset();
  const uint64_t size = std::filesystem::file_size(path);
  for (uint64_t cut = whole + 1; cut < size; cut += 3) {
    std::filesystem::resize_file(path, cut);
    auto undo = Undo::Open(writer_.get(), UndoLimits());
    ASSERT_TRUE(undo.ok());
    EXPECT_EQ(std::filesystem::file_size(path), whole);
    ASSERT_TRUE(undo.value()->RollBack(1).ok());
    ASSERT_TRUE(undo.value()->Restore().ok());
    EXPECT_EQ(Served(0, 3), moments_[1].at({0, 3}));
    ASSERT_TRUE(undo.value()->Resume().ok());
    undo.value().reset();
    break;  // Resume has made a new journal
  }
}

// Would catch a journal that lacks the rows of a failed write, and rows that wait for the disk.
TEST_F(UndoTest, AFullDiskEndsTheJournalsAndNotTheRows) {
  Open(1);
  Publish(1);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 1024;
  signal(SIGXFSZ, SIG_IGN);
  for (Key key = 0; key < kKeys; ++key) Change(0, key), Change(1, key);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  CatchUp();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  ExpectEqual();
  EXPECT_EQ(Targets(), std::vector<uint64_t>());
  EXPECT_THAT(std::string(Report()["undo_error"]), HasSubstr("cannot write an undo journal"));
  EXPECT_EQ(follower_->RollBack(1).code(), Code::kFailedPrecondition);
  Publish(2);
  EXPECT_EQ(Targets(), std::vector<uint64_t>{2});
}

class RandomUndoTest : public UndoTest {
 protected:
  void ChangeTheStore() {
    const auto table = static_cast<size_t>(random_->Below(2));
    const uint64_t what = random_->Below(100);
    if (what < 60) {
      for (uint64_t i = random_->Below(4); i < 4; ++i) Change(table, SomeKey());
    } else if (what < 85) {
      Remove(table, {SomeKey(), SomeKey()});
    } else if (what < 90) {
      const auto partition = static_cast<uint32_t>(random_->Below(service_->partitions()));
      Restart(partition, Snapshot(partition));
    } else {
      std::vector<Key> all;
      for (Key key = 0; key < kKeys; ++key) all.push_back(key);
      Remove(table, all);
    }
  }
  Key SomeKey() { return random_->Between(0, kKeys - 1); }

  void Play(uint64_t seed) {
    random_ = std::make_unique<Random>(seed);
    options_.max_page_bytes = 40 + random_->Below(300);
    options_.undo.versions = 1 + random_->Below(6);
    const uint32_t partitions[] = {1, 3, 24};
    Open(partitions[random_->Below(3)]);
    source_->late = random_->Unit() * 0.5;
    uint64_t number = 0;
    for (int round = 0; round < 12; ++round) {
      for (uint64_t i = random_->Below(3); i < 3; ++i) {
        for (uint64_t j = random_->Below(6); j > 0; --j) ChangeTheStore();
        StepFor(random_->Unit() * 0.2);
        if (random_->Chance(0.1)) Kill();
        ASSERT_NO_FATAL_FAILURE(Publish(++number));
      }
      for (uint64_t j = random_->Below(6); j > 0; --j) ChangeTheStore();
      StepFor(random_->Unit() * 0.2);
      ASSERT_NO_FATAL_FAILURE(GoBack());
      if (random_->Chance(0.3)) {
        ASSERT_NO_FATAL_FAILURE(GoBack());
      }
      if (random_->Chance(0.3)) ChangeTheStore();
      if (random_->Chance(0.3)) Kill();
      ASSERT_TRUE(follower_->Resume().ok());
      if (random_->Chance(0.3)) Kill();
      CatchUp();
      ExpectEqual();
    }
  }
  // To a version that can be reached from here.
  void GoBack() {
    std::vector<uint64_t> targets = Targets();
    const nlohmann::json back = Report()["rolled_back"];
    if (!back.is_null()) {
      const uint64_t at = back["version"];
      targets.erase(std::upper_bound(targets.begin(), targets.end(), at), targets.end());
    }
    ASSERT_FALSE(targets.empty());
    const uint64_t to = targets[random_->Below(targets.size())];
    SCOPED_TRACE("back to version " + std::to_string(to));
    ASSERT_TRUE(follower_->RollBack(to).ok());
    if (random_->Chance(0.3)) Kill();
    StepFor(0.7);
    if (random_->Chance(0.3)) Kill();
    StepFor(random_->Unit());
    follower_->Step();
    ASSERT_EQ(ServedRows(), moments_[to]);
    ASSERT_EQ(writer_->version().number, to);
  }

  std::unique_ptr<Random> random_;
};

class RandomUndo : public RandomUndoTest, public ::testing::WithParamInterface<uint64_t> {};

TEST_P(RandomUndo, RowsAreThoseOfTheMomentAndThenTheStores) { Play(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Seeds, RandomUndo, ::testing::Range<uint64_t>(0, Scaled(60)));

// Kills the process at each write of Restore: the rows lie between, and the next process ends it.
class KilledInRestoreTest : public UndoTest, public ::testing::WithParamInterface<int> {};

TEST_P(KilledInRestoreTest, TheNextProcessEndsIt) {
  Open();
  Publish(1);
  for (Key key = 0; key < 40; key += 2) Change(0, key);
  Remove(0, {1, 3, 5});
  Publish(2);
  for (Key key = 0; key < 40; key += 3) Change(0, key);
  CatchUp();
  ASSERT_TRUE(follower_->RollBack(1).ok());
  follower_.reset();
  // The part of Restore before the kill: the first rows of the newest journals.
  int left = GetParam();
  std::vector<uint32_t> row_bytes = {writer_->row_bytes(0), writer_->row_bytes(1)};
  for (uint64_t number : {2, 1}) {
    auto journal = UndoJournal::Open(writer_->folder(), writer_->run(), number, row_bytes);
    ASSERT_TRUE(journal.ok());
    const auto visit = [&](uint32_t table, Key key, const uint8_t* row) {
      return left-- > 0 ? writer_->Restore(table, key, row) : Status();
    };
    ASSERT_TRUE(journal.value()->ForEach(row_bytes, visit).ok());
  }
  EXPECT_LE(left, 0) << "no such row";
  Kill();
  EXPECT_EQ(writer_->version().number, 1u);
  follower_->Step();
  EXPECT_EQ(ServedRows(), moments_[1]);
  ASSERT_TRUE(follower_->Resume().ok());
  CatchUp();
  ExpectEqual();
}

INSTANTIATE_TEST_SUITE_P(Rows, KilledInRestoreTest, ::testing::Values(0, 1, 7, 14, 20, 30));

}  // namespace
}  // namespace het::follow
