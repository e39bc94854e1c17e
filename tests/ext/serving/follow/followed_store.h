// A store that trains, a follower of it, and a reader of the live files; the store's history says what the
// reader may serve.
#pragma once

#include <algorithm>
#include <optional>

#include "het_tf/core/store/local_store.h"
#include "het_tf/ext/serving/cc/follow/follower.h"
#include "tests/ext/serving/follow/live_files.h"
#include "tests/ext/serving/follow/local_changes.h"
#include "tests/testing/partition_bytes.h"
#include "tests/testing/stored_rows.h"

namespace het::follow {

// The values that each row has had, and when. A row's floats are equal; absent: it did not exist.
class History {
 public:
  using Value = std::optional<float>;
  using Place = std::pair<size_t, Key>;

  void Note(uint64_t time, const Place& place, Value value) {
    auto& states = states_[place];
    if (states.empty() || states.back().second != value) states.push_back({time, value});
  }
  // Whether the row had the value at `since` or later.
  bool HadSince(uint64_t since, const Place& place, Value value) const {
    const auto& states = states_.at(place);
    for (size_t i = 0; i < states.size(); ++i) {
      if (states[i].second == value && (i + 1 == states.size() || states[i + 1].first > since)) return true;
    }
    return false;
  }
  // Whether the row had the value up to `time`.
  bool HadBy(uint64_t time, const Place& place, Value value) const {
    const auto& states = states_.at(place);
    return std::any_of(states.begin(), states.end(),
                       [&](const auto& state) { return state.second == value && state.first <= time; });
  }
  // Whether the row had the value after, or in, the state that was served last.
  bool MovesForward(const Place& place, Value value) {
    const auto& states = states_.at(place);
    size_t& at = served_[place];
    while (at < states.size() && states[at].second != value) ++at;
    return at < states.size();
  }
  std::string Text(const Place& place) const {
    std::string text;
    for (const auto& [time, value] : states_.at(place)) {
      text += std::to_string(value.value_or(-1)) + " from " + std::to_string(time) + ", ";
    }
    return text;
  }

 private:
  std::map<Place, std::vector<std::pair<uint64_t, Value>>> states_;
  std::map<Place, size_t> served_;
};

class FollowedStore : public LiveFilesTest {
 protected:
  static constexpr Key kKeys = 60;
  static constexpr Key kBaseKeys = 30;
  static constexpr float kBaseValue = 0.5f;

  // `same`: the store begins with the base's rows and no others, as an export has left it.
  void Start(uint32_t partitions, uint64_t seed, bool same = false) {
    service_ = std::make_unique<LocalService>(partitions, 11);
    store_ = std::make_unique<LocalStore>(service_.get());
    source_ = std::make_unique<LocalChanges>(service_.get(), seed);
    for (const std::string& name : names_) {
      const auto stored = static_cast<het::Stored>((seed + schemas_.size()) % 3);
      WriteBase(name, Dim(), kBaseKeys, kBaseValue, serve::RowType::kFloat32, stored);
      schemas_.push_back(MakeSchema(name, Dim(), stored));
      ASSERT_TRUE(store_->CreateTable(schemas_.back()).ok());
    }
    foreign_ = MakeSchema("of another model", 3);
    ASSERT_TRUE(store_->CreateTable(foreign_).ok());
    for (size_t table = 0; table < schemas_.size(); ++table) {
      for (Key key = 0; key < kKeys; ++key) {
        const bool in_base = key < kBaseKeys;
        history_.Note(0, {table, key}, in_base ? History::Value(kBaseValue) : std::nullopt);
        if (same ? in_base : key % 3 == 0) Set(table, key, kBaseValue);
      }
    }
    Configure();
    Observe();
  }
  uint32_t Dim() const { return 2; }
  const Schema& schema(size_t table) const { return schemas_[table]; }

  void OpenFollower() {
    if (writer_ == nullptr) writer_ = OpenWriter(names_);
    options_.clock = [this] { return now_; };
    follower_ = ValueOf(Follower::Create(source_.get(), writer_.get(), options_));
    if (reader_ == nullptr) reader_ = OpenReader(names_);
  }

  // Changes of the store, each at its own time.
  void Set(size_t table, Key key, float value) {
    Pass(0.001);
    testing::AssignRows(store_.get(), *schemas_[table], key, 1, value);
    Observe();
  }
  void Remove(size_t table, const std::vector<Key>& keys) {
    Pass(0.001);
    ASSERT_TRUE(store_->Remove(*schemas_[table], keys).ok());
    Observe();
  }
  Bytes Snapshot(uint32_t partition) { return testing::BytesOf(service_.get(), partition); }
  void Restart(uint32_t partition, const Bytes& bytes) {
    Pass(0.001);
    testing::Revive(service_.get(), partition, bytes);
    Configure();
    Observe();
  }
  void Configure() {
    for (uint32_t i = 0; i < service_->partitions(); ++i) {
      service_->WithPartition(i, [](Partition& p) { p.changes().set_most_removals(5); });
    }
  }
  // Notes what has changed in the store.
  void Observe() {
    for (size_t table = 0; table < schemas_.size(); ++table) {
      for (Key key = 0; key < kKeys; ++key) history_.Note(now_, {table, key}, Stored(table, key));
    }
    const std::vector<Position> positions = Positions();
    moves_.resize(positions.size());
    for (size_t i = 0; i < positions.size(); ++i) {
      if (moves_[i].empty() || moves_[i].back().second != positions[i])
        moves_[i].push_back({now_, positions[i]});
    }
  }
  // When a partition changed for the first time after it had this position; now, if it has it still.
  uint64_t EndOf(uint32_t partition, const Position& position) const {
    const auto& moves = moves_[partition];
    for (size_t i = 0; i + 1 < moves.size(); ++i) {
      if (moves[i].second == position) return moves[i + 1].first;
    }
    return now_;
  }
  uint32_t PartitionOf(size_t table, Key key) const {
    return Layout(service_->id(0)).OfKey(schemas_[table]->id(), key);
  }
  History::Value Stored(size_t table, Key key) {
    return service_->WithPartition(PartitionOf(table, key), [&](Partition& p) -> History::Value {
      const Shard* shard = p.Find(schemas_[table]->id());
      const uint32_t row = shard == nullptr ? kNoRow : shard->rows().Find(key);
      return row == kNoRow ? History::Value() : shard->Read(shard->rows().data(row))[0];
    });
  }

  void Pass(double seconds) { now_ += static_cast<uint64_t>(seconds * 1e9); }
  // Goes round until every partition has completed a scan that began after this call.
  void CatchUp() {
    const uint64_t since = now_;
    for (int i = 0; i < 5000 && writer_->seen() <= since; ++i) {
      Pass(0.03);
      follower_->Step();
    }
    EXPECT_GT(writer_->seen(), since) << follower_->Report();
  }
  History::Value Served(size_t table, Key key) {
    const std::vector<float> row = Read(reader_.get(), table, {key});
    if (row == Initial(schemas_[table], key)) return std::nullopt;
    EXPECT_EQ(row[0], row[1]) << "half of one row, half of another";
    return row[0];
  }
  // What is served is not older than the store at `since`, nor than what was served before.
  void CheckServed(uint64_t since) {
    for (size_t table = 0; table < schemas_.size(); ++table) {
      for (Key key = 0; key < kKeys; ++key) {
        const History::Value served = Served(table, key);
        ASSERT_TRUE(history_.HadSince(since, {table, key}, served))
            << "key " << key << " of table " << table << " is older than promised: " << served.value_or(-1)
            << "; it was: " << history_.Text({table, key});
        ASSERT_TRUE(history_.MovesForward({table, key}, served)) << "key " << key << " went back";
      }
    }
  }
  void ExpectEqual() {
    for (size_t table = 0; table < schemas_.size(); ++table) {
      for (Key key = 0; key < kKeys; ++key) {
        EXPECT_EQ(Served(table, key), Stored(table, key)) << "key " << key << " of table " << table;
      }
      EXPECT_EQ(writer_->rows(table), LocalStore(service_.get()).Size(*schemas_[table]).value().rows);
    }
  }
  std::vector<Position> Positions() {
    std::vector<Position> cut;
    for (uint32_t i = 0; i < service_->partitions(); ++i) {
      cut.push_back(service_->WithPartition(i, [](Partition& p) {
        return Position{p.incarnation(), p.changes().now()};
      }));
    }
    return cut;
  }

  const std::vector<std::string> names_{"a", "b"};
  uint64_t now_ = 1'000'000'000;
  std::vector<Schema> schemas_;
  Schema foreign_;
  std::unique_ptr<LocalService> service_;
  std::unique_ptr<LocalStore> store_;
  std::unique_ptr<LocalChanges> source_;
  FollowerOptions options_;
  std::unique_ptr<LiveWriter> writer_;
  std::unique_ptr<Follower> follower_;
  std::unique_ptr<LiveReader> reader_;
  History history_;
  std::vector<std::vector<std::pair<uint64_t, Position>>> moves_;  // by partition: its positions, and when
};

}  // namespace het::follow
