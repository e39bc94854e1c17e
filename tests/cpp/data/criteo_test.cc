// Criteo's format, as a plain parser that splits first would read it. Values, messages and parts:
// test_data_criteo.py.
#include "het_tf/core/data/criteo.h"

#include <gtest/gtest.h>

#include <random>

namespace het {
namespace {

constexpr const char* kOdd[] = {"",
                                "-",
                                "-7",
                                "0",
                                "12",
                                "9x",
                                "68fd1e64",
                                "68FD1E6",
                                "g",
                                "1 ",
                                "é",
                                "\xff",
                                "0123456789abcde",
                                "0123456789abcdef",
                                "999999999999999999",
                                "1234567890123456789"};

bool IsInteger(const std::string& text) {
  const size_t sign = text[0] == '-' ? 1 : 0;
  return text.empty() || (text.size() > sign && text.size() - sign <= 18 &&
                          text.find_first_not_of("0123456789", sign) == std::string::npos);
}

bool IsCategory(const std::string& text) {
  return text.size() <= 15 && text.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
}

TEST(CriteoTest, TakesTheLinesThatAPlainParserTakes) {
  std::mt19937 random(1);
  for (int round = 0; round < 4000; ++round) {
    std::vector<std::string> fields = {random() % 2 == 0 ? "0" : "1"};
    for (int i = 0; i < 13; ++i) fields.push_back(std::to_string(random() % 100));
    char hex[9];
    for (int c = 0; c < 26; ++c) {
      std::snprintf(hex, sizeof hex, "%08x", static_cast<unsigned>(random()));
      fields.push_back(hex);
    }
    for (uint32_t odd = random() % 3; odd > 0; --odd)
      fields[random() % 40] = kOdd[random() % std::size(kOdd)];
    if (random() % 20 == 0) fields.resize(39 + 2 * (random() % 2));

    bool good = fields.size() == 40 && (fields[0] == "0" || fields[0] == "1");
    std::string line;
    for (size_t f = 0; f < fields.size(); ++f) {
      good = good && (f < 14 ? IsInteger(fields[f]) : IsCategory(fields[f]));
      line += (f == 0 ? "" : "\t") + fields[f];
    }
    line += round % 3 == 0 ? "\r\n" : round % 3 == 1 ? "\n" : "";
    CriteoRows rows;
    CriteoFormat format;
    const Status status = ParseCriteo(format, line, 6, &rows);
    ASSERT_EQ(status.ok(), good) << line << status.message();
    ASSERT_EQ(rows.labels.size(), good ? 1u : 0u);
    if (!good) {
      EXPECT_EQ(status.message().rfind("line 7: ", 0), 0u) << status.message();
      continue;
    }
    EXPECT_EQ(rows.labels[0], fields[0] == "1" ? 1 : 0);
    for (size_t i = 0; i < 13; ++i) {
      const long long x = fields[1 + i].empty() ? 0 : std::stoll(fields[1 + i]);
      EXPECT_EQ(rows.numeric[i], x <= 0 ? 0 : std::log1p(static_cast<float>(x))) << line;
    }
    // Equal categories of a field have equal ids, whatever their form; different ones different ids.
    CriteoRows other;
    for (size_t c = 14; c < 40; ++c) fields[c] = fields[c].empty() ? "0" : "0" + fields[c];
    std::string again = fields[0];
    for (size_t f = 1; f < 40; ++f)
      again += "\t" + (fields[f].size() > 15 && f > 13 ? fields[f].substr(1) : fields[f]);
    ASSERT_TRUE(ParseCriteo(format, again, 0, &other).ok()) << again;
    for (size_t c = 0; c < 26; ++c) {
      EXPECT_EQ(rows.ids[c] == other.ids[c], fields[14 + c] != "0") << c << " of " << line;
    }
  }
}

}  // namespace
}  // namespace het
