// A follower of a store with random changes between and within its scans: pushes, removals, sweeps, clears,
// dropped tables, restarts from the present and from an older copy; lost and late messages; restarts of the
// follower. After each of its steps the rows that are served are at
// least as new as claimed, and as the cut of the version in force; and no newer than that cut and the claimed
// skew. With max_skew, rows of a version that nothing follows do not get newer than that.
#include <set>

#include "tests/ext/serving/follow/followed_store.h"

namespace het::follow {
namespace {

using testing::Random;
using testing::Scaled;

class RandomFollowerTest : public FollowedStore {
 protected:
  using Rows = std::map<History::Place, History::Value>;

  void ChangeTheStore() {
    Pass(random_->Unit() * 0.004);
    const size_t table = random_->Below(2);
    const uint64_t id = schema(table)->id();
    const auto partition = static_cast<uint32_t>(random_->Below(service_->partitions()));
    const uint64_t what = random_->Below(200);
    if (what < 110) {
      for (uint64_t i = random_->Below(4); i < 4; ++i) Set(table, SomeKey(), ++stamp_);
    } else if (what < 150) {
      std::set<Key> keys;
      for (uint64_t i = random_->Below(5); i < 5; ++i) keys.insert(SomeKey());
      Remove(table, {keys.begin(), keys.end()});
    } else if (what < 160) {
      const Key key = SomeKey();
      Remove(table, {key});
      Set(table, key, ++stamp_);
    } else if (what < 166) {
      service_->WithPartition(partition, [&](Partition& p) {
        TableLimits limits;
        limits.max_rows = 20;
        p.Find(id)->set_limits(limits);
        p.Sweep(2000, 30, nullptr);
        p.Find(id)->set_limits(TableLimits());
      });
    } else if (what < 170) {
      service_->ClearTable(id);
    } else if (what < 174) {
      service_->DropTable(id);
      ASSERT_TRUE(service_->CreateTable(schema(table)).ok());
    } else if (what < 180) {
      testing::AssignRows(store_.get(), *foreign_, SomeKey(), 1);
    } else if (what < 186) {
      Restart(partition, Snapshot(partition));
    } else if (what < 190) {
      if (older_.count(partition) != 0) Restart(partition, older_[partition]);
    } else if (what < 196) {
      older_[partition] = Snapshot(partition);
    } else {  // all rows move to other numbers
      Remove(table, testing::Range(0, kKeys));
      for (int i = 0; i < 10; ++i) Set(table, SomeKey(), ++stamp_);
    }
    Observe();
  }
  void Publish() {
    Version version;
    version.number = published_.size() + 1;
    version.dense_path = std::to_string(version.number);
    published_.push_back({version, Positions(), now_});
  }
  // Offers the versions that were published, late or twice.
  void OfferSome() {
    for (const Published& one : published_) {
      if (random_->Chance(0.2)) {
        ASSERT_TRUE(follower_->Offer(one.version, one.cut).ok());
      }
    }
  }
  void RestartTheFollower() {
    follower_.reset();
    writer_.reset();
    source_ = NewSource();
    OpenFollower();
  }
  std::unique_ptr<LocalChanges> NewSource() {
    auto source = std::make_unique<LocalChanges>(service_.get(), random_->Next());
    source->late = late_;
    source->lost = lost_;
    source->before_answer = [this] {
      Pass(random_->Unit() * 0.05);
      if (random_->Chance(busy_)) ChangeTheStore();
    };
    return source;
  }
  void Check() {
    const uint64_t number = writer_->version().number;
    ASSERT_GE(number, in_force_) << "an older version came into force";
    in_force_ = number;
    const uint64_t cut = number == 0 ? 0 : published_[number - 1].time;
    SCOPED_TRACE("version " + std::to_string(number) + " was cut at " + std::to_string(cut) + ", seen is " +
                 std::to_string(writer_->seen()));
    CheckServed(std::max(writer_->seen(), cut));
    if (const auto skew = reader_->state().value().skew) CheckNotNewer(*skew);
  }
  // No served row is of later than so many seconds after the first change that
  // followed the cut in force.
  void CheckNotNewer(double seconds) {
    const auto& cut = in_force_ == 0 ? options_.base : published_[in_force_ - 1].cut;
    for (const auto& [place, value] : ServedRows()) {
      ASSERT_FALSE(cut.empty()) << "rows of an unknown cut went on";
      const uint32_t partition = PartitionOf(place.first, place.second);
      const uint64_t limit = EndOf(partition, cut[partition]) + static_cast<uint64_t>(seconds * 1e9) + 1;
      ASSERT_TRUE(history_.HadBy(limit, place, value))
          << "key " << place.second << " of table " << place.first << " is newer than " << limit << ": "
          << value.value_or(-1) << "; it was: " << history_.Text(place);
    }
  }
  Rows ServedRows() {
    Rows rows;
    for (size_t table = 0; table < schemas_.size(); ++table) {
      for (Key key = 0; key < kKeys; ++key) rows[{table, key}] = Served(table, key);
    }
    return rows;
  }
  void Play(uint64_t seed) {
    random_ = std::make_unique<Random>(seed);
    late_ = random_->Chance(0.5) ? random_->Unit() * 0.7 : 0;
    lost_ = random_->Chance(0.5) ? random_->Unit() * 0.3 : 0;
    busy_ = random_->Unit();
    const uint32_t partitions[] = {1, 3, 24};
    const bool same = random_->Chance(0.5);
    Start(partitions[random_->Below(3)], seed, same);
    if (same) options_.base = Positions();
    options_.max_page_bytes = 40 + random_->Below(300);
    for (uint64_t i = random_->Below(20); i > 0; --i) ChangeTheStore();
    source_ = NewSource();
    OpenFollower();
    for (int step = 0; step < 120; ++step) {
      Pass(random_->Unit() * 0.06);
      if (random_->Chance(busy_)) ChangeTheStore();
      if (random_->Chance(0.1)) Publish();
      if (random_->Chance(0.3)) OfferSome();
      if (random_->Chance(0.02)) RestartTheFollower();
      follower_->Step();
      ASSERT_NO_FATAL_FAILURE(Check());
    }
    busy_ = 0;
    source_->late = source_->lost = 0;
    Publish();
    for (const Published& one : published_) EXPECT_TRUE(follower_->Offer(one.version, one.cut).ok());
    CatchUp();
    ASSERT_NO_FATAL_FAILURE(Check());
    ExpectEqual();
    EXPECT_EQ(in_force_, published_.size()) << "the newest version is in force";
  }

  Key SomeKey() { return random_->Between(0, kKeys - 1); }

 private:
  struct Published {
    Version version;
    std::vector<Position> cut;
    uint64_t time;
  };

  std::unique_ptr<Random> random_;
  double late_ = 0, lost_ = 0, busy_ = 0;
  float stamp_ = 1;
  std::map<uint32_t, Bytes> older_;
  std::vector<Published> published_;
  uint64_t in_force_ = 0;
};

class RandomFollowers : public RandomFollowerTest, public ::testing::WithParamInterface<uint64_t> {};

TEST_P(RandomFollowers, ServeRowsAsNewAsTheyClaim) { Play(GetParam()); }

INSTANTIATE_TEST_SUITE_P(, RandomFollowers, ::testing::Range<uint64_t>(0, Scaled(100)));
// A row that changed before a scan and was removed before its page.
INSTANTIATE_TEST_SUITE_P(SeedsThatFoundDefects, RandomFollowers, ::testing::Values<uint64_t>(227, 239));

}  // namespace
}  // namespace het::follow
