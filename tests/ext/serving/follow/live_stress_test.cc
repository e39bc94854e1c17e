// Live files under one writer and several readers: no torn row, no other key's row, none that goes back.
#include <atomic>
#include <thread>

#include "tests/ext/serving/follow/live_files.h"

namespace het::follow {
namespace {

class LiveStress : public LiveFilesTest, public ::testing::WithParamInterface<uint32_t> {};

// Each row's floats are the key and one counter, over and over. A reader that misses the check of the entry
// sees two counters in a row, or another key. The version's number is what all rows had when it was flipped.
TEST_P(LiveStress, ReadersSeeWholeRowsThatOnlyMoveForward) {
  constexpr Key kKeys = 64;  // few, so that slots are soon filled again
  const uint32_t dim = GetParam();
  WriteBase("item", dim, 0, 0);
  auto writer = OpenWriter({"item"});
  auto reader = OpenReader({"item"});
  const auto put = [&](Key key, float counter) {
    std::vector<float> row(dim);
    for (uint32_t d = 0; d < dim; ++d) row[d] = d % 2 == 0 ? static_cast<float>(key) + 1 : counter;
    return writer->Put(0, {&key, 1}, row.data());
  };
  for (Key key = 0; key < kKeys; ++key) ASSERT_TRUE(put(key, 0).ok());

  std::atomic<bool> done{false};
  std::atomic<uint64_t> calls{0};
  std::vector<std::thread> readers;
  for (int r = 0; r < 2; ++r) {
    readers.emplace_back([&] {
      const std::vector<Key> keys = KeysTo(kKeys);
      std::vector<float> newest(kKeys, 0);
      while (!done) {
        const Version in_force = reader->state().value().version;
        const uint64_t version = in_force.number;
        ASSERT_EQ(in_force.dense_path, std::string(version % 200, 'x')) << "two versions in one";
        const std::vector<float> rows = Read(reader.get(), 0, keys);
        for (size_t i = 0; i < keys.size(); ++i) {
          const float* row = &rows[i * dim];
          for (uint32_t d = 0; d < dim; ++d) {
            ASSERT_EQ(row[d], d % 2 == 0 ? static_cast<float>(i) + 1 : row[1]) << "key " << i << ", " << d;
          }
          ASSERT_GE(row[1], newest[i]);
          ASSERT_GE(row[1], static_cast<float>(version)) << "rows older than the version's cut";
          newest[i] = row[1];
        }
        ++calls;
      }
    });
  }
  for (uint64_t counter = 1; counter < 100000 && (counter < 2000 || calls < 500); ++counter) {
    for (Key key = 0; key < kKeys; ++key) ASSERT_TRUE(put(key, static_cast<float>(counter)).ok());
    if (counter % 3 == 0) {
      ASSERT_TRUE(writer->Flip({counter, std::string(counter % 200, 'x'), {}}).ok());
    }
    const Key passing = 1000 + static_cast<Key>(counter);  // makes the file grow, and be made anew
    ASSERT_TRUE(put(passing, 0).ok());
    if (counter % 2 == 0) writer->Remove(0, {&passing, 1});
  }
  done = true;
  for (std::thread& one : readers) one.join();
  EXPECT_GT(calls, 0u);
}

INSTANTIATE_TEST_SUITE_P(Dims, LiveStress, ::testing::Values(2, 34, 1000));

}  // namespace
}  // namespace het::follow
