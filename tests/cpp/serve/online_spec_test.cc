// What a graph says of a live table that it reads.
#include "het_tf/core/serve/online_spec.h"

#include <gtest/gtest.h>

#include <string>

namespace het::serve {
namespace {

TEST(OnlineSpec, SaysWhatIsWrong) {
  const auto error = [](const std::string& text) { return ParseOnlineSpec(text).status().message(); };
  auto fine = ParseOnlineSpec(R"({"ps": "unix:///x", "max_age": 1.5, "cache_rows": 7, "stale_ok": true,
                                  "deadline": 0.5, "connections": 2})");
  ASSERT_TRUE(fine.ok()) << fine.status().message();
  EXPECT_EQ(fine.value().ps, "unix:///x");
  EXPECT_EQ(fine.value().config.max_age, 1.5);
  EXPECT_FALSE(fine.value().config.pull_bound.has_value());
  EXPECT_EQ(fine.value().config.cache_rows, 7u);
  EXPECT_TRUE(fine.value().config.stale_ok);
  EXPECT_EQ(fine.value().config.deadline, 0.5);
  EXPECT_EQ(fine.value().config.connections, 2u);
  for (const auto& [text, named] : std::vector<std::pair<std::string, std::string>>{
           {"", "not valid JSON"},
           {"[]", "object"},
           {R"({"max_age": 1})", "ps"},
           {R"({"ps": ""})", "ps is"},
           {R"({"ps": "unix:///x"})", "one of max_age"},
           {R"({"ps": "unix:///x", "max_age": 1, "pull_bound": 1})", "one of max_age"},
           {R"({"ps": "unix:///x", "max_age": -1})", "max_age is -1"},
           {R"({"ps": "unix:///x", "max_age": "1"})", "max_age is"},
           {R"({"ps": "unix:///x", "pull_bound": 1.5})", "pull_bound is 1.5"},
           {R"({"ps": "unix:///x", "pull_bound": -1})", "pull_bound is -1"},
           {R"({"ps": "unix:///x", "max_age": 1, "cache_rows": -1})", "cache_rows is -1"},
           {R"({"ps": "unix:///x", "max_age": 1, "stale_ok": 1})", "stale_ok is 1"},
           {R"({"ps": "unix:///x", "max_age": 1, "deadline": 0})", "deadline is 0"},
           {R"({"ps": "unix:///x", "max_age": 1, "connections": 0})", "connections is 0"},
           {R"({"ps": "unix:///x", "max_age": 1, "speed": 1})", "'speed'"},
       }) {
    EXPECT_NE(error(text).find(named), std::string::npos) << text << ": " << error(text);
  }
}

}  // namespace
}  // namespace het::serve
