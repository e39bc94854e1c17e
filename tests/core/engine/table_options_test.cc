// Users' cache options as JSON: every field, refusals, and the rules for missing fields.
#include "het_tf/core/engine/table_options.h"

#include <gmock/gmock.h>

#include "tests/testing/status.h"
#include "tests/testing/table_specs.h"

namespace het {
namespace {

using ::testing::HasSubstr;

Result<TableOptions> Resolved(const std::string& fields, bool remote = true,
                              const std::string& optimizer = "row_wise_adagrad") {
  const Schema schema = testing::NewSchema("t", 4, optimizer);
  HET_ASSIGN_OR_RETURN(const auto given, ParseCacheOptions("{" + fields + "}"));
  return given.Resolve(*schema, remote);
}

CacheConfig Cache(const std::string& fields, bool remote = true) {
  return *Resolved(fields, remote).value().cache;
}

TEST(CacheOptions, LocalTableHasACacheOnlyIfSized) {
  EXPECT_FALSE(Resolved("", false).value().cache.has_value());
  EXPECT_FALSE(Resolved("\"staleness\": 3, \"policy\": \"lru\"", false).value().cache.has_value());
  EXPECT_EQ(ToJson(TableOptions()), "{}");
  EXPECT_EQ(Cache("\"rows\": 0", false).capacity, 0u);
  EXPECT_EQ(Cache("\"bytes\": 1000000", false).capacity, 1000000u / (5 * 4 + 58));
}

// Defects: bytes that are taken for each table's, and layers whose options depend on their number.
TEST(CacheOptions, BytesAreOfAllTablesOfALayer) {
  const CacheConfig one = Cache("\"bytes\": 10000, \"tables\": 4, \"layer\": 7");
  EXPECT_EQ(one.layer, 7u);
  EXPECT_EQ(one.layer_bytes, 10000u);
  EXPECT_EQ(one.capacity, 2500u / (5 * 4 + 58));
  const CacheConfig other = Cache("\"bytes\": 10000, \"tables\": 2, \"layer\": 8");
  EXPECT_EQ(ToJson(TableOptions{one}), ToJson(TableOptions{other}));
  EXPECT_THAT(ToJson(TableOptions{one}), HasSubstr("\"bytes\":10000"));
  EXPECT_EQ(Cache("\"rows\": 5, \"layer\": 7").layer, 0u);
  const Status few = Resolved("\"bytes\": 100, \"tables\": 4, \"layer\": 7").status();
  EXPECT_THAT(few.message(), HasSubstr("cache.bytes is 100 for 4 tables together; table 't': no cache fits "
                                       "into 25 bytes; the smallest one takes 78"));
}

// A default-constructed CacheConfig equals one worker's options without fields.
TEST(CacheOptions, MissingFieldsHaveCacheConfigsDefaults) {
  const CacheConfig cache = Cache("");
  const CacheConfig standard;
  EXPECT_EQ(cache.capacity, standard.capacity);
  EXPECT_EQ(cache.policy, standard.policy);
  EXPECT_EQ(cache.write_back_rows, standard.write_back_rows);
  EXPECT_EQ(cache.pull_bound, standard.pull_bound);
  EXPECT_EQ(cache.push_bound, standard.push_bound);
  EXPECT_EQ(cache.checks, standard.checks);
  EXPECT_EQ(cache.staleness, CacheConfig::kStaleness);
}

TEST(CacheOptions, EveryFieldIsReadAndWritten) {
  const CacheConfig cache = Cache(
      "\"rows\": 7, \"policy\": \"lru\", \"pull_bound\": 5, \"push_bound\": null, "
      "\"write_back_rows\": 9, \"wire\": \"float16\", \"checks\": \"notified\", \"push_max_age\": 0.5, "
      "\"device\": \"cpu\"");
  EXPECT_EQ(cache.capacity, 7u);
  EXPECT_EQ(cache.policy, Policy::kLru);
  EXPECT_EQ(cache.pull_bound, 5);
  EXPECT_EQ(cache.push_bound, kUnbounded);
  EXPECT_EQ(cache.write_back_rows, 9u);
  EXPECT_EQ(cache.wire, RowFormat::kFloat16);
  EXPECT_EQ(cache.checks, Checks::kNotified);
  EXPECT_EQ(
      ToJson(TableOptions{cache}),
      "{\"cache\":{\"checks\":\"notified\",\"device\":\"cpu\",\"policy\":\"lru\","
      "\"pull_bound\":5,\"push_bound\":null,\"push_max_age\":0.5,\"rows\":7,\"wire\":\"float16\",\"write_"
      "back_rows\":9}}");
  EXPECT_THAT(ToJson(Resolved("").value()), HasSubstr("\"staleness\":30"));
}

TEST(CacheOptions, BoundsFollowStalenessAgeAndWorkers) {
  const CacheConfig cache = *Resolved("\"workers\": 3", true, "adagrad").value().cache;
  const StalenessBounds bounds = StalenessBounds::Of(/*decay_steps=*/1, CacheConfig::kStaleness, 3);
  EXPECT_EQ(cache.pull_bound, bounds.pull);
  EXPECT_EQ(cache.push_bound, bounds.push);
  EXPECT_GT(cache.pull_bound.every, 0u);
  const CacheConfig standard = *Resolved("\"workers\": 3", true, "row_wise_adagrad").value().cache;
  EXPECT_EQ(standard.pull_bound, StalenessBounds::Of(20, CacheConfig::kStaleness, 3).pull);
  EXPECT_EQ(Resolved("\"workers\": 3", true, "sgd").value().cache->pull_bound.from, kBirthGap);
}

TEST(CacheOptions, TheBoundThatIsNotGivenIsStaleness) {
  const CacheConfig pull = Cache("\"pull_bound\": 4, \"workers\": 3");
  EXPECT_EQ(pull.pull_bound, 4);
  EXPECT_EQ(pull.push_bound, CacheConfig::kStaleness);
  EXPECT_FALSE(pull.staleness.has_value()) << "the number of workers would change it";
  EXPECT_EQ(Cache("\"push_bound\": 4, \"staleness\": 7").pull_bound, 7);
  EXPECT_EQ(Cache("\"staleness\": null").pull_bound, kUnbounded);
}

TEST(CacheOptions, StaleCopiesAtAParameterServerAreRounded) {
  EXPECT_EQ(Cache("").wire, RowFormat::kInt4);
  EXPECT_EQ(Cache("\"pull_bound\": 0, \"push_bound\": 1").wire, RowFormat::kInt4);
  EXPECT_EQ(Cache("\"staleness\": 0").wire, RowFormat::kFloat32);
  EXPECT_EQ(Cache("\"staleness\": \"synchronous\"").wire, RowFormat::kInt4);
  EXPECT_EQ(Cache("\"staleness\": \"synchronous\"").pull_bound, Bound(0));
  EXPECT_EQ(Cache("\"staleness\": \"synchronous\"").push_bound, Bound(0));
  EXPECT_EQ(Cache("\"staleness\": \"synchronous\", \"wire\": \"int8\"").wire, RowFormat::kInt8);
  EXPECT_FALSE(Resolved("\"staleness\": \"synchronous\"", false).value().cache.has_value());
  EXPECT_EQ(Cache("\"rows\": 0").wire, RowFormat::kFloat32);
  EXPECT_EQ(Cache("\"rows\": 5", false).wire, RowFormat::kFloat32);
  EXPECT_EQ(Cache("\"staleness\": 0, \"wire\": \"int8\"").wire, RowFormat::kInt8);
}

TEST(CacheOptions, ChecksAreNotifiedFromABoundOfThree) {
  EXPECT_EQ(Cache("").checks, Checks::kNotified);
  EXPECT_EQ(Cache("\"staleness\": 2").checks, Checks::kAsked);
  EXPECT_EQ(Cache("\"pull_bound\": 3, \"push_bound\": 0").checks, Checks::kNotified);
  EXPECT_EQ(Cache("\"staleness\": 2, \"checks\": \"notified\"").checks, Checks::kNotified);
}

// Defect: a table in this process, whose client has no thread, claims a limit that nothing keeps.
TEST(CacheOptions, UpdatesHaveAnAgeAtAParameterServerAlone) {
  EXPECT_EQ(Cache("").push_max_age, std::nullopt);
  EXPECT_EQ(Cache("\"push_max_age\": 2").push_max_age, 2.0);
  EXPECT_EQ(Cache("\"push_max_age\": null").push_max_age, std::nullopt);
  EXPECT_EQ(Cache("\"push_max_age\": 2, \"rows\": 5", false).push_max_age, std::nullopt);
}

// layer/test_errors.py has those that its own checks do not come before.
TEST(CacheOptions, RefusalsNameFieldValueAndRemedy) {
  const struct {
    const char* fields;
    const char* message;
  } cases[] = {
      {"\"rows\": null", "cache.rows is null"},
      {"\"bytes\": 10",
       "cache.bytes is 10; table 't': no cache fits into 10 bytes; the smallest one takes 78"},
      {"\"pull_bound\": 1.5", "cache.pull_bound is 1.5; it must be a number of updates >= 0"},
      {"\"staleness\": \"sync\"", "\"synchronous\" for 0"},
      {"\"device\": \"tpu\"", "cache.device is \"tpu\"; it must be \"cpu\" or \"gpu\""},
      {"\"device\": \"gpu\", \"wire\": \"float16\"", "travel as float32"},
      {"\"workers\": 0", "cache.workers is 0"},
      {"\"size\": 3", "unknown field 'size'"},
  };
  for (const auto& c : cases) {
    EXPECT_TRUE(Fails(Resolved(c.fields), Code::kInvalidArgument, c.message)) << c.fields;
  }
  EXPECT_THAT(ParseCacheOptions("{").status().message(), HasSubstr("not valid JSON"));
  EXPECT_THAT(ParseCacheOptions("[1]").status().message(), HasSubstr("unknown field '0'"));
}

}  // namespace
}  // namespace het
