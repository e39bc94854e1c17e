// Criteo's format, against a plain parser. test_data_criteo.py tests values, messages and parts.
#include "het_tf/inputs/criteo/criteo.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <set>

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

struct Rows {
  Status status;
  std::vector<float> labels, numeric;
  std::vector<int64_t> ids;
};

// The rows of a text in batches of `batch`, without parts and shards.
Rows Parse(const std::string& text, uint64_t first, size_t batch, std::optional<uint64_t> seed = {}) {
  CriteoLines lines(text);
  if (seed) lines.Shuffle(*seed);
  Rows rows;
  rows.labels.resize(lines.size());
  rows.numeric.resize(lines.size() * kCriteoIntegers);
  rows.ids.resize(lines.size() * kCriteoCategories);
  rows.status = lines.Parse({}, {}, first, {batch, rows.labels.data(), rows.numeric.data(), rows.ids.data()});
  return rows;
}

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
    const Rows rows = Parse(line, 6, 1);
    ASSERT_EQ(rows.status.ok(), good) << line << rows.status.message();
    EXPECT_EQ(IsCriteoLine(line.substr(0, line.find('\n'))), good);
    if (!good) {
      EXPECT_EQ(rows.status.message().rfind("line 7: ", 0), 0u) << rows.status.message();
      continue;
    }
    EXPECT_EQ(rows.labels[0], fields[0] == "1" ? 1 : 0);
    for (size_t i = 0; i < 13; ++i) {
      const long long x = fields[1 + i].empty() ? 0 : std::stoll(fields[1 + i]);
      EXPECT_EQ(rows.numeric[i], x <= 0 ? 0 : std::log1p(static_cast<float>(x))) << line;
    }
    // Equal categories of a field have equal ids in any form; different ones have different ids.
    for (size_t c = 14; c < 40; ++c) fields[c] = fields[c].empty() ? "0" : "0" + fields[c];
    std::string again = fields[0];
    for (size_t f = 1; f < 40; ++f)
      again += "\t" + (fields[f].size() > 15 && f > 13 ? fields[f].substr(1) : fields[f]);
    const Rows other = Parse(again, 0, 1);
    ASSERT_TRUE(other.status.ok()) << again;
    for (size_t c = 0; c < 26; ++c) {
      EXPECT_EQ(rows.ids[c] == other.ids[c], fields[14 + c] != "0") << c << " of " << line;
    }
  }
}

std::string Line(int number) {
  std::string line = "0";
  for (size_t i = 0; i < kCriteoIntegers; ++i) line += "\t" + std::to_string(number);
  for (size_t c = 0; c < kCriteoCategories; ++c) {
    char hex[9];
    std::snprintf(hex, sizeof hex, "%08x", static_cast<unsigned>(number));
    line += std::string("\t") + hex;
  }
  return line + "\n";
}

// Batches have columns of ids; shuffling loses no row, and keeps each row's fields together.
TEST(CriteoTest, RowsOfBatches) {
  constexpr size_t kRows = 24, kBatch = 8;
  std::string text;
  for (size_t r = 0; r < kRows; ++r) text += Line(static_cast<int>(r));
  const Rows alone = Parse(text, 0, 1), rows = Parse(text, 0, kBatch), shuffled = Parse(text, 0, kBatch, 5);
  ASSERT_TRUE(rows.status.ok() && shuffled.status.ok());
  EXPECT_EQ(rows.numeric, alone.numeric);
  EXPECT_NE(shuffled.numeric, alone.numeric);
  std::set<int64_t> first_ids;
  for (size_t r = 0; r < kRows; ++r) {
    const auto number = static_cast<size_t>(std::lround(std::expm1(shuffled.numeric[r * kCriteoIntegers])));
    ASSERT_LT(number, kRows);
    for (size_t c = 0; c < kCriteoCategories; ++c) {
      const size_t at = (r / kBatch * kCriteoCategories + c) * kBatch + r % kBatch;
      EXPECT_EQ(rows.ids[at], alone.ids[r * kCriteoCategories + c]);
      EXPECT_EQ(shuffled.ids[at], alone.ids[number * kCriteoCategories + c]);
    }
    first_ids.insert(alone.ids[number * kCriteoCategories]);
  }
  EXPECT_EQ(first_ids.size(), kRows);
}

TEST(CriteoTest, ShuffledTextsReportTheFirstBadLine) {
  std::string text;
  for (int r = 0; r < 40; ++r) text += r == 11 || r == 30 ? "oops\n" : Line(r);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    EXPECT_EQ(Parse(text, 100, 8, seed).status.message().rfind("line 112: has 1 fields", 0), 0u);
  }
}

}  // namespace
}  // namespace het
