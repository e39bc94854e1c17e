// The next planned batch that uses a row, compared with a search through all batches.
#include "het_tf/ext/streams/cc/next_uses.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <set>

#include "tests/testing/random.h"

namespace het {
namespace {

constexpr uint64_t kTable = 7;

struct Batch {
  uint32_t number = 0;
  BatchPlan plan;
  Vector<uint32_t> next;

  explicit Batch(const std::vector<int64_t>& ids, NextUses* uses) {
    const FeatureIds feature{0, ids, std::nullopt};
    plan.Build({&feature, 1}, {&kTable, 1}, {0, 3, 0}, nullptr);
    number = uses->Add(plan, {kTable}, &next);
  }
  std::map<Key, uint32_t> Next() const {
    std::map<Key, uint32_t> found;
    for (const BatchPlan::Group& group : plan.groups()) {
      for (size_t u = 0; u < group.uniques; ++u) found[plan.keys(group)[u]] = next[group.first + u];
    }
    return found;
  }
};

// Batches end in order, or out of order: next uses and late keys equal those of a search.
TEST(NextUsesTest, AreThoseOfASearch) {
  NextUses uses;
  testing::Random random(3);
  std::deque<std::unique_ptr<Batch>> waiting;
  for (int i = 0; i < 500; ++i) {
    std::vector<int64_t> ids;
    for (int n = 0; n < 20; ++n) ids.push_back(random.Between(0, 60));
    std::set<Key> unseen(ids.begin(), ids.end());
    for (const auto& batch : waiting) {
      for (const auto& [key, next] : batch->Next()) unseen.erase(key);
    }
    waiting.push_back(std::make_unique<Batch>(ids, &uses));
    std::set<Key> late;
    for (const NextUses::Late& one : uses.TakeLate()) late.insert(one.key);
    ASSERT_EQ(late, unseen);
    for (size_t b = 0; b < waiting.size(); ++b) {
      for (const auto& [key, next] : waiting[b]->Next()) {
        uint32_t expected = 0;
        for (size_t later = b + 1; later < waiting.size() && expected == 0; ++later) {
          if (waiting[later]->Next().count(key) != 0) expected = waiting[later]->number;
        }
        ASSERT_EQ(next, expected) << "batch " << b << ", key " << key;
      }
    }
    if (waiting.size() < 6) continue;
    const size_t gone = random.Chance(0.8) ? 0 : 1;
    uses.End(waiting[gone]->number);
    // A batch that ended before an older one may have been the next use of its keys: these only fetch a row
    // too early or too late.
    if (gone == 1) {
      while (!waiting.empty()) {
        uses.End(waiting.front()->number);
        waiting.pop_front();
      }
    } else {
      waiting.pop_front();
    }
  }
}

TEST(NextUsesTest, MemoryFollowsTheWindow) {
  NextUses uses;
  size_t before = 0;
  for (int i = 0; i < 400; ++i) {
    std::vector<int64_t> ids;
    for (int n = 0; n < 1000; ++n) ids.push_back(1000 * i + n);
    const Batch batch(ids, &uses);
    uses.End(batch.number);
    if (i == 100) before = AllocatedBytes();
  }
  EXPECT_LE(AllocatedBytes(), 2 * before);
}

}  // namespace
}  // namespace het
