// Policies against plain models, and the behaviours that their header promises.
#include "het_tf/core/cache/eviction_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>

#include "het_tf/core/cache/hit_watch.h"
#include "tests/testing/random.h"

namespace het::testing {
namespace {

std::unique_ptr<EvictionPolicy> Make(const std::string& name, size_t capacity = 8) {
  return EvictionPolicy::Create(ParsePolicy(name).value(), capacity);
}

std::vector<uint32_t> Victims(const EvictionPolicy& policy, size_t count) {
  Vector<uint32_t> victims;
  policy.Victims(
      count, [](uint32_t) { return true; }, &victims);
  return {victims.begin(), victims.end()};
}

// Lists by frequency, each in order of arrival: what the three policies are, told slowly.
class Model {
 public:
  Model(size_t lists, size_t age_every) : lists_(lists), age_every_(age_every) {}
  void Insert(uint32_t line) {
    lists_[0].push_back(line);
    Count();
  }
  void Touch(uint32_t line) {
    for (size_t f = 0; f < lists_.size(); ++f) {
      auto it = std::find(lists_[f].begin(), lists_[f].end(), line);
      if (it == lists_[f].end()) continue;
      if (f + 1 < lists_.size() || lists_.size() == 1) {
        lists_[f].erase(it);
        lists_[std::min(f + 1, lists_.size() - 1)].push_back(line);
      }
      break;
    }
    Count();
  }
  void Erase(uint32_t line) {
    for (auto& list : lists_) list.erase(std::remove(list.begin(), list.end(), line), list.end());
  }
  std::vector<uint32_t> Order() const {
    std::vector<uint32_t> order;
    for (const auto& list : lists_) order.insert(order.end(), list.begin(), list.end());
    return order;
  }

 private:
  void Count() {
    if (age_every_ == 0 || ++touches_ < age_every_) return;
    touches_ = 0;
    for (size_t f = 1; f < lists_.size(); ++f) {
      auto& to = lists_[f / 2];
      to.insert(to.end(), lists_[f].begin(), lists_[f].end());
      lists_[f].clear();
    }
  }
  std::vector<std::deque<uint32_t>> lists_;
  size_t age_every_;
  size_t touches_ = 0;
};

TEST(EvictionPolicy, AgainstModels) {
  struct Case {
    const char* name;
    size_t lists;
    size_t age_every;
  };
  for (const Case& c : {Case{"lru", 1, 0}, Case{"lfu", 255, 12 * 64}}) {
    for (uint64_t seed = 1; seed <= Scaled(20); ++seed) {
      SCOPED_TRACE(std::string(c.name) + " seed " + std::to_string(seed));
      Random r(seed);
      auto policy = Make(c.name);
      Model model(c.lists, c.age_every);
      std::set<uint32_t> in;
      for (int i = 0; i < 2500; ++i) {
        const auto line = static_cast<uint32_t>(std::min(r.Below(40), r.Below(40)));
        if (in.insert(line).second) {
          policy->Insert(line);
          model.Insert(line);
        } else if (r.Chance(0.1)) {
          in.erase(line);
          policy->Erase(line);
          model.Erase(line);
        } else {
          policy->Touch(line);
          model.Touch(line);
        }
        if (i % 50 == 0) {
          ASSERT_EQ(Victims(*policy, 100), model.Order());
        }
      }
      ASSERT_EQ(Victims(*policy, 100), model.Order());
    }
  }
}

// The share of hits falls, of which the policy hears after a window that follows the capacity.
TEST(EvictionPolicy, ACapacityThatIsSetIsAsOneThatThePolicyWasMadeWith) {
  for (const auto& [first, then] : {std::pair<size_t, size_t>{8, 20000}, {20000, 8}}) {
    auto made = Make("lfu", then), set = Make("lfu", first);
    set->SetCapacity(then);
    Random r(1);
    for (uint32_t i = 0; i < 8000; ++i) {
      const auto line = static_cast<uint32_t>(r.Below(40));
      const bool hit = i >= 40 && i % 40 < (i < 4000 ? 36 : 4);
      for (EvictionPolicy* policy : {made.get(), set.get()}) hit ? policy->Touch(line) : policy->Insert(i);
      if (i % 100 == 0) {
        ASSERT_EQ(Victims(*set, 8000), Victims(*made, 8000)) << i;
      }
    }
  }
}

// Reads of 1000 uses, hits before misses; whether any of them tells of a fall.
bool Falls(HitWatch* watch, int reads, int hits) {
  bool fell = false;
  for (int i = 0; i < reads; ++i) {
    for (int use = 0; use < 1000; ++use) fell = watch->Count(use < hits) || fell;
  }
  return fell;
}

TEST(HitWatch, TellsOfAFallAndOfNothingElse) {
  HitWatch watch(16000);
  EXPECT_FALSE(Falls(&watch, 20, 100)) << "a cache that fills";
  EXPECT_FALSE(Falls(&watch, 20, 900));
  EXPECT_FALSE(Falls(&watch, 20, 700)) << "less than a quarter";
  EXPECT_FALSE(Falls(&watch, 20, 550)) << "and less than a quarter again: it has grown used to the last";
  EXPECT_TRUE(Falls(&watch, 6, 50));
  Falls(&watch, 2, 550);  // the last window of the fall ends with the next read
  EXPECT_FALSE(Falls(&watch, 20, 550)) << "a rise";
  EXPECT_TRUE(Falls(&watch, 200, 50));
  EXPECT_FALSE(Falls(&watch, 200, 50)) << "in the end it is no news";
}

// Hits come before misses in each read, and a read may be larger than a window.
TEST(HitWatch, AReadIsCountedWhole) {
  HitWatch watch(64);
  EXPECT_FALSE(Falls(&watch, 100, 500));
  EXPECT_TRUE(Falls(&watch, 2, 100));
}

TEST(HitWatch, ChanceIsNoFall) {
  for (uint64_t seed = 1; seed <= Scaled(50); ++seed) {
    Random r(seed);
    HitWatch watch(64);
    const double share = 0.05 + 0.9 * static_cast<double>(r.Below(100)) / 100;
    bool fell = false;
    for (int read = 0; read < 1000; ++read) {
      int hits = 0;
      for (int use = 0; use < 32; ++use) hits += r.Chance(share);
      for (int use = 0; use < 32; ++use) fell = watch.Count(use < hits) || fell;
    }
    EXPECT_FALSE(fell) << "seed " << seed << ", share " << share;
  }
}

// HET's LFUOpt freezes: lines that are hot stay. After a change of all that is used a cache of ours is as
// good again as an empty one gets in the same time.
TEST(EvictionPolicy, AChangeOfEverythingIsAsSoonOverAsAnEmptyCacheFills) {
  for (const char* name : {"lru", "lfu"}) {
    constexpr size_t kCapacity = 2000;
    constexpr uint32_t kKeys = 16000;
    auto policy = Make(name, kCapacity);
    std::set<uint32_t> in;
    Random r(3);
    auto read = [&](uint32_t first) {  // of 200 keys, some of which are used far more often; its hits
      std::set<uint32_t> keys;
      while (keys.size() < 200) keys.insert(first + static_cast<uint32_t>(r.Below(r.Below(kKeys) + 1)));
      std::vector<uint32_t> misses;
      for (uint32_t key : keys) {
        if (in.count(key) != 0) {
          policy->Touch(key);
        } else {
          misses.push_back(key);
        }
      }
      for (uint32_t key : misses) {
        policy->Insert(key);
        in.insert(key);
      }
      if (in.size() > kCapacity) {
        for (uint32_t line : Victims(*policy, in.size() - kCapacity)) {
          policy->Erase(line);
          in.erase(line);
        }
      }
      return 200 - misses.size();
    };
    auto sum = [&](uint32_t first, int reads) {
      size_t hits = 0;
      for (int i = 0; i < reads; ++i) hits += read(first);
      return static_cast<double>(hits);
    };
    const double empty = sum(0, 40);
    sum(0, 2000);
    const double changed = sum(kKeys, 40);
    EXPECT_GT(changed, 0.9 * empty) << name;
  }
}

}  // namespace
}  // namespace het::testing
