#include "het_tf/ext/streams/cc/location.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <random>

#include "het_tf/core/base/hash.h"
#include "tests/testing/status.h"

namespace het {
namespace {

using ::testing::ElementsAre;

struct Pass {
  Pass(size_t workers, size_t batch) : rule(workers, batch), slots(Location::kSlots) {}
  Status Place(uint64_t number, const std::vector<uint64_t>& keys, std::vector<int64_t>* owners) {
    return rule.Place(number, keys, slots, {owners->data(), owners->size()});
  }
  Location rule;
  std::vector<uint32_t> slots;
};

std::vector<int64_t> Place(Pass* pass, uint64_t number, const std::vector<uint64_t>& ids, size_t samples) {
  std::vector<uint64_t> keys(ids.size());
  std::transform(ids.begin(), ids.end(), keys.begin(), [](uint64_t id) { return id == 0 ? 0 : Mix64(id); });
  std::vector<int64_t> owners(samples, -1);
  EXPECT_TRUE(pass->Place(number, keys, &owners).ok());
  return owners;
}

// The header's rule, with a map of all keys.
class Oracle {
 public:
  Oracle(size_t workers, size_t batch) : workers_(workers), batch_(batch) {}

  std::vector<int64_t> Place(uint64_t number, const std::vector<uint64_t>& ids, size_t samples) {
    const size_t width = ids.size() / samples;
    std::vector<std::vector<int>> scores(samples, std::vector<int>(workers_));
    std::vector<std::pair<int, size_t>> turns;
    for (size_t i = 0; i < samples; ++i) {
      for (size_t k = 0; k < width; ++k) {
        const auto found = users_.find(ids[i * width + k]);
        if (found != users_.end() && found->second >= 0) ++scores[i][static_cast<size_t>(found->second)];
      }
      auto sorted = scores[i];
      std::sort(sorted.rbegin(), sorted.rend());
      turns.emplace_back(-(sorted[0] - (workers_ > 1 ? sorted[1] : 0)), i);
    }
    std::sort(turns.begin(), turns.end());
    std::vector<int64_t> owners(samples);
    std::vector<size_t> load(workers_);
    for (const auto& [regret, i] : turns) {
      std::vector<std::tuple<int, size_t, size_t>> ranked;
      for (size_t w = 0; w < workers_; ++w) {
        if (load[w] < batch_)
          ranked.emplace_back(-scores[i][w], (w + workers_ - number % workers_) % workers_, w);
      }
      const size_t owner = std::get<2>(*std::min_element(ranked.begin(), ranked.end()));
      ++load[owner];
      owners[i] = static_cast<int64_t>(owner);
    }
    std::map<uint64_t, int64_t> now;
    for (size_t at = 0; at < ids.size(); ++at) {
      const auto [user, is_new] = now.emplace(ids[at], owners[at / width]);
      if (!is_new && user->second != owners[at / width]) user->second = -1;
    }
    now.erase(0);
    for (const auto& [id, user] : now) users_[id] = user;
    return owners;
  }

 private:
  size_t workers_, batch_;
  std::map<uint64_t, int64_t> users_;  // -1: several
};

// Defects: another order of the samples (no regret, not stable), ties that all go to worker 0, a key that
// keeps its user after several workers used it in one batch, a quota that is exceeded.
TEST(LocationTest, IsTheRuleOnRandomStreams) {
  std::mt19937_64 random(1);
  for (const auto& [workers, batch, width, ids] :
       {std::tuple{1, 5, 3, 40}, {2, 4, 4, 30}, {5, 7, 6, 200}, {8, 16, 13, 4000}, {3, 2, 0, 1}}) {
    Pass pass(static_cast<size_t>(workers), static_cast<size_t>(batch));
    Oracle oracle(static_cast<size_t>(workers), static_cast<size_t>(batch));
    const auto samples = static_cast<size_t>(workers * batch);
    for (uint64_t number = 0; number < 40; ++number) {
      std::vector<uint64_t> of(samples * static_cast<size_t>(width));
      for (uint64_t& id : of)
        id = std::min(random() % static_cast<uint64_t>(ids), random() % 97);  // some are 0
      ASSERT_EQ(Place(&pass, number, of, samples), oracle.Place(number, of, samples)) << number;
    }
  }
}

// Defect: a slot answers for another key, so that the first sample goes to worker 0, where its slot was used.
TEST(LocationTest, NewKeyTakesTheSlotOfAnother) {
  Pass pass(2, 1);
  const uint64_t slot = uint64_t{5} << 42;
  const auto place = [&](uint64_t number, const std::vector<uint64_t>& keys) {
    std::vector<int64_t> owners(2);
    EXPECT_TRUE(pass.Place(number, keys, &owners).ok());
    return owners;
  };
  EXPECT_THAT(place(0, {slot | 1, 9}), ElementsAre(0, 1));
  EXPECT_THAT(place(1, {slot | 2, 0}), ElementsAre(1, 0));
  EXPECT_THAT(place(0, {slot | 2, 0}), ElementsAre(1, 0));
  EXPECT_THAT(place(1, {slot | 1, 0}), ElementsAre(1, 0));  // forgotten: by the turn
}

TEST(LocationTest, WrongNumberOfKeysChangesNothing) {
  Pass pass(2, 2);
  std::vector<uint64_t> keys(7, 1);
  std::vector<int64_t> owners(4, -1);
  EXPECT_TRUE(Fails(pass.Place(0, keys, &owners), Code::kInvalidArgument,
                    "there are 7 keys of 4 samples; 2 workers of 2 take 4 samples"));
  keys.pop_back();
  owners.pop_back();
  EXPECT_FALSE(pass.Place(0, keys, &owners).ok());
  EXPECT_THAT(owners, ElementsAre(-1, -1, -1));
}

}  // namespace
}  // namespace het
