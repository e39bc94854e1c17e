// Options of a table as JSON: every field, what is refused, and that what is written is read again.
#include "het_tf/core/engine/table_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace het {
namespace {

using ::testing::HasSubstr;

Result<TableOptions> Cache(const std::string& fields) {
  return ParseTableOptions("{\"cache\": {" + fields + "}}");
}

TEST(TableOptionsJson, NoCacheIsADirectTable) {
  for (const char* text : {"", "{}", "{\"cache\": null}"}) {
    EXPECT_FALSE(ParseTableOptions(text).value().cache.has_value()) << text;
  }
  EXPECT_EQ(ToJson(TableOptions()), "{}");
}

TEST(TableOptionsJson, EveryFieldIsReadAndWritten) {
  const auto parsed = Cache(
      "\"capacity\": 7, \"policy\": \"lfu\", \"admit_after\": 3, \"pull_bound\": 5, \"push_bound\": null, "
      "\"write_back_rows\": 9, \"wire\": \"float16\", \"checks\": \"told\", \"device\": \"cpu\"");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const CacheConfig& cache = *parsed.value().cache;
  EXPECT_EQ(cache.capacity, 7u);
  EXPECT_EQ(cache.policy, "lfu");
  EXPECT_EQ(cache.admit_after, 3u);
  EXPECT_EQ(cache.pull_bound, 5);
  EXPECT_EQ(cache.push_bound, kUnbounded);
  EXPECT_EQ(cache.write_back_rows, 9u);
  EXPECT_EQ(cache.wire, RowFormat::kFloat16);
  EXPECT_EQ(cache.checks, "told");
  EXPECT_EQ(ToJson(ParseTableOptions(ToJson(parsed.value())).value()), ToJson(parsed.value()));
}

TEST(TableOptionsJson, StalenessComesWithTheNumberOfWorkers) {
  const auto parsed = Cache("\"staleness\": 7, \"workers\": 4");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed.value().cache->staleness, 7);
  EXPECT_EQ(parsed.value().cache->workers, 4u);
  EXPECT_EQ(ToJson(ParseTableOptions(ToJson(parsed.value())).value()), ToJson(parsed.value()));
  EXPECT_EQ(Cache("\"staleness\": null").value().cache->staleness, kUnbounded);
}

TEST(TableOptionsJson, MissingFieldsHaveTheirDefaults) {
  EXPECT_EQ(ToJson(Cache("").value()), ToJson(TableOptions{CacheConfig()}));
}

TEST(TableOptionsJson, LargeAdmitAfterIsCutToItsCounter) {
  EXPECT_EQ(Cache("\"admit_after\": 100000").value().cache->admit_after, 255u);
}

TEST(TableOptionsJson, RefusalsNameFieldValueAndRemedy) {
  const struct {
    const char* fields;
    const char* message;
  } cases[] = {
      {"\"capacity\": -1", "capacity is -1; it must be an integer >= 0"},
      {"\"capacity\": null", "capacity is null; it must be an integer >= 0"},
      {"\"capacity\": 9223372036854775807", "capacity is 9223372036854775807"},
      {"\"pull_bound\": 1.5", "pull_bound is 1.5; it must be an integer >= 0, or null for unbounded"},
      {"\"policy\": \"best\"", "best"},
      {"\"wire\": 8", "cache option wire"},
      {"\"checks\": \"never\"", "checks is 'never'"},
      {"\"device\": \"tpu\"", "device is 'tpu'; it must be \"cpu\" or \"gpu\""},
      {"\"device\": \"gpu\", \"capacity\": 0", "at least 1 row"},
      {"\"device\": \"gpu\", \"wire\": \"float16\"", "travel as float32"},
      {"\"device\": \"gpu\", \"checks\": \"told\"", "asked about"},
      {"\"staleness\": -1", "staleness is -1; it must be an integer >= 0, or null for unbounded"},
      {"\"workers\": 0", "workers is 0; it must be an integer >= 1"},
      {"\"staleness\": 3, \"pull_bound\": 2", "both bounds follow staleness"},
      {"\"size\": 3", "unknown field 'size'"},
  };
  for (const auto& c : cases) {
    const Status status = Cache(c.fields).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << c.fields;
    EXPECT_THAT(status.message(), HasSubstr(c.message));
  }
  EXPECT_THAT(ParseTableOptions("{\"cash\": 1}").status().message(), HasSubstr("unknown field 'cash'"));
  EXPECT_THAT(ParseTableOptions("{").status().message(), HasSubstr("not valid JSON"));
}

}  // namespace
}  // namespace het
