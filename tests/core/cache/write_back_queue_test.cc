#include "het_tf/core/cache/write_back_queue.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/testing/random.h"

namespace het {
namespace {

TEST(WriteBackQueue, AgreesWithAMap) {
  testing::Random random(3);
  WriteBackQueue queue;
  std::map<Key, uint32_t> model;
  for (uint32_t i = 1; i < 20000; ++i) {
    const Key key = random.Between(0, 40);
    if (random.Chance(0.01)) {
      const Key odd = random.Between(0, 1);
      queue.RemoveIf([&](const WriteBackQueue::Queued& queued) { return queued.key % 2 == odd; });
      for (auto it = model.begin(); it != model.end();) it = it->first % 2 == odd ? model.erase(it) : ++it;
    } else if (model.count(key) == 0) {
      queue.Push(key, i, i);
      model[key] = i;
    } else {
      queue.Remove(*queue.Find(key));
      model.erase(key);
    }
    ASSERT_EQ(queue.size(), model.size());
    const WriteBackQueue::Queued* const found = queue.Find(key);
    ASSERT_EQ(found != nullptr, model.count(key) != 0);
    if (found == nullptr) continue;
    ASSERT_EQ(found->ticks, model[key]);
  }
}

}  // namespace
}  // namespace het
