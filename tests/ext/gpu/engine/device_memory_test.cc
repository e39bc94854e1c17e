// Tables with a cache on a device, when the device's or the host's memory is exhausted, or the device fails.
#include <gmock/gmock.h>

#include <map>

#include "tests/ext/gpu/device/host/streams.h"
#include "tests/testing/device/device_engine.h"
#include "tests/testing/fits_in.h"

namespace het::testing {
namespace {

using ::testing::HasSubstr;

class DeviceEngineMemory : public DeviceEngine {};

// Device memory and page-locked memory: the library counts both.
TEST_F(DeviceEngineMemory, DeviceMemoryThatEndsAnywhereLeavesResultsRight) {
  int failed = 0, locked = 0;
  for (uint64_t n = 1; n <= 60; ++n) {
    Engine engine("oom", 1);
    ASSERT_TRUE(engine.tables().Create(SpecOf("t", 2), CacheOf("gpu", 32, 0, 2)).ok());
    std::map<Key, float> wanted;
    auto train = [&](Key first, size_t size) {
      const std::vector<Key> ids = Range(first, size);
      const Status status = Train(&engine, {{"t", ids}});
      for (const Key id : ids) wanted[id] += status.ok() ? 1.0f : 0.0f;
      return status;
    };
    DeviceOf(&engine)->FailAllocation(n);
    // Larger and larger, since later steps reuse memory.
    for (const auto& [first, size] : {std::pair<Key, size_t>(0, 20), {10, 48}, {20, 300}, {30, 1500}}) {
      const Status status = train(first, size);
      if (status.ok()) continue;
      ++failed;
      ASSERT_EQ(status.code(), Code::kResourceExhausted) << status.message();
      ASSERT_THAT(status.message(), HasSubstr("table 't'"));
      const bool of_host = status.message().find("page-locked") != std::string::npos;
      locked += of_host;
      ASSERT_THAT(status.message(), HasSubstr(of_host ? "smaller batch" : "fewer rows"));
    }
    const Status flushed = engine.caches().Flush();
    if (!flushed.ok()) {
      ++failed;
      ASSERT_EQ(flushed.code(), Code::kResourceExhausted);
    }
    DeviceOf(&engine)->FailAllocation(0);
    std::vector<Key> ids;
    for (const auto& [id, value] : wanted) ids.push_back(id);
    const std::vector<float> values = Values(&engine, "t", ids);
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(values.at(2 * i), wanted[ids[i]]) << "allocation " << n << ", id " << ids[i];
    }
    ASSERT_TRUE(train(5, 90).ok());
    const TableRows rows = engine.tables().Scan("t").value();
    for (size_t i = 0; i < rows.keys.size(); ++i) ASSERT_EQ(rows.rows[2 * i], wanted[rows.keys[i]]);
  }
  EXPECT_GT(failed, 5);
  EXPECT_GT(locked, 2);
}

TEST_F(DeviceEngineMemory, OversizedCacheCreatesNoTable) {
  Create("t", 2, CacheOf("gpu", 32, 0, 2));
  DeviceOf(&engine_)->FailAllocation(1);
  const Status status = engine_.tables().Create(SpecOf("large", 2), CacheOf("gpu", 1 << 20, 0, 2));
  DeviceOf(&engine_)->FailAllocation(0);
  EXPECT_TRUE(
      Fails(status, Code::kResourceExhausted, "cache of table 'large' with 1048576 rows does not fit"));
  EXPECT_EQ(engine_.tables().Names(), std::vector<std::string>{"t"});
  ASSERT_TRUE(Train(&engine_, {{"t", {1}}}).ok());
  Create("large", 2, CacheOf("gpu", 64, 0, 2));
  ASSERT_TRUE(Train(&engine_, {{"t", {1}}, {"large", {1}}}).ok());
  EXPECT_EQ(Value("large", 1), 1);
}

TEST_F(DeviceEngineMemory, HostMemoryThatEndsAnywhereLosesNoUpdate) {
  int failed = 0;
  for (size_t more = 0; more < 60000; more += 371) {
    Engine engine("oom", 1);
    ASSERT_TRUE(engine.tables().Create(SpecOf("t", 2), CacheOf("gpu", 32, 0, 2)).ok());
    const std::vector<Key> ids = Range(0, 100);
    ASSERT_TRUE(Train(&engine, {{"t", ids}}).ok());
    float most = 1, least = 1;  // ticks that a row may have: a step that failed while pushing was made
    for (int i = 0; i < 3; ++i) {
      Status status;
      ASSERT_TRUE(FitsIn(more, [&] { status = Train(&engine, {{"t", ids}}); }));
      ++most;
      least += status.ok() || status.message().find("updates of this step were made") != std::string::npos;
      if (!status.ok()) {
        ++failed;
        ASSERT_EQ(status.code(), Code::kResourceExhausted) << status.message();
      }
    }
    const float value = Values(&engine, "t", {5}).at(0);
    ASSERT_EQ(value, least) << more;
    ASSERT_TRUE(Train(&engine, {{"t", ids}}).ok());
    const TableRows rows = engine.tables().Scan("t").value();
    ASSERT_EQ(rows.keys.size(), ids.size());
    for (const float v : rows.rows) ASSERT_EQ(v, least + 1) << more;
  }
  EXPECT_GT(failed, 5);
}

TEST_F(DeviceEngineMemory, AssignedRowsAreReadThoughMemoryEnds) {
  Create("t", 1, CacheOf("gpu", 4096, kUnbounded, kUnbounded));
  const std::vector<Key> ids = Range(0, 2000);
  ASSERT_TRUE(Train(&engine_, {{"t", ids}}).ok());
  bool assigned = false;
  for (size_t more = 0; !assigned && more < 400000; more += 4000) {
    const std::vector<float> rows(ids.size(), static_cast<float>(more + 7));
    FitsIn(more, [&] { assigned = engine_.tables().Assign("t", ids, rows.data(), false).ok(); });
    const TableRows there = engine_.tables().Scan("t").value();
    const std::vector<float> values = Values(&engine_, "t", there.keys);
    for (size_t i = 0; i < there.keys.size(); ++i) ASSERT_EQ(there.rows[i], values.at(i)) << more;
  }
  EXPECT_TRUE(assigned);
}

TEST_F(DeviceEngineMemory, FailedDeviceLosesItsContents) {
  int gradients = 0;
  for (uint64_t n = 1;; ++n) {
    Engine engine("launch", 1);
    ASSERT_TRUE(engine.tables().Create(SpecOf("t", 2), CacheOf("gpu", 100, kUnbounded, kUnbounded)).ok());
    ASSERT_TRUE(Train(&engine, {{"t", {1, 2, 3}}}).ok());
    HetDevHostFailLaunch(n);
    const Status status = Train(&engine, {{"t", {1, 2}}});
    HetDevHostFailLaunch(0);
    if (status.ok()) {
      EXPECT_GT(n, 3u) << "launches of a step";
      EXPECT_GT(gradients, 0);
      break;
    }
    EXPECT_TRUE(
        Fails(status, Code::kInternal, "of table 't': launching kernel '", "3 ticks that had not been sent"))
        << n;
    gradients += status.message().find("HetApplyGrad of table 't'") == 0;
    EXPECT_EQ(Train(&engine, {{"t", {1}}}).message(), status.message()) << "no later step works";
    EXPECT_EQ(engine.caches().Flush().message(), status.message());
    EXPECT_EQ(engine.tables().Find("t").value()->applies.load(), 1);
    const nlohmann::json stats = CacheStats(&engine, "t");
    EXPECT_EQ(stats["lost_ticks"], 3) << stats;
    EXPECT_EQ(stats["ticks"], 3);
    EXPECT_EQ(stats["unsent_rows"], 0);
  }
}

}  // namespace
}  // namespace het::testing
