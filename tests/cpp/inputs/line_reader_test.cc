#include "het_tf/inputs/criteo/line_reader.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <zlib.h>

#include <cstdio>
#include <filesystem>

namespace het {
namespace {

using ::testing::HasSubstr;

class LineReaderTest : public ::testing::TestWithParam<const char*> {
 protected:
  LineReaderTest() {
    for (int i = 0; i < 3000; ++i) text_ += std::string(static_cast<size_t>(i % 97), 'x') + "\n";
    text_ += "the last one has no end";
    path_ = ::testing::TempDir() + "line_reader_test" + GetParam();
    gzFile file = gzopen(path_.c_str(), *GetParam() != 0 ? "wb" : "wT");  // T: uncompressed
    EXPECT_EQ(gzwrite(file, text_.data(), static_cast<unsigned>(text_.size())),
              static_cast<int>(text_.size()));
    gzclose(file);
  }
  ~LineReaderTest() override { std::filesystem::remove(path_); }

  std::string text_, path_;
};

TEST_P(LineReaderTest, TwoReadersInTurnsReadAllLinesOnce) {
  LinePosition at[2];
  std::string all[2], text;
  for (bool more = true; more;) {
    more = false;
    for (int reader = 0; reader < 2; ++reader) {
      const LineLimits limits = {reader == 0 ? size_t{1000} : size_t{4096}, 1 << 20};
      LinesWanted want;
      want.most = 70;
      const LinePosition before = at[reader];
      ASSERT_TRUE(ReadLines(path_, limits, want, &at[reader], &text).ok());
      more |= !text.empty();
      all[reader] += text;
      EXPECT_EQ(at[reader].offset, before.offset + static_cast<int64_t>(text.size()));
      const bool open_end = !all[reader].empty() && all[reader].back() != '\n';
      EXPECT_EQ(at[reader].line, std::count(all[reader].begin(), all[reader].end(), '\n') + open_end);
    }
  }
  EXPECT_EQ(all[0], text_);
  EXPECT_EQ(all[1], text_);
}

TEST_P(LineReaderTest, ContinuesAtAPosition) {
  LinePosition at = {static_cast<int64_t>(text_.find('\n', 50000)) + 1, 7};
  std::string text;
  const auto from = static_cast<size_t>(at.offset);
  ASSERT_TRUE(ReadLines(path_, {1000, 1 << 20}, {}, &at, &text).ok());
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(text, text_.substr(from, text.size()));
}

// Reads as many wanted lines as asked for, a multiple of a number, with fewer at the end; each line comes
// exactly once for every read size.
TEST_P(LineReaderTest, WantedLinesByTheBatch) {
  LinesWanted want;
  want.multiple = 7;
  want.most = 21;
  want.wanted = [](uint64_t number, std::string_view line) {
    EXPECT_EQ(line.find('\n'), std::string_view::npos);
    return number % 3 == 1;
  };
  std::string all;
  std::vector<int64_t> counts;
  LinePosition at;
  for (std::string text; counts.empty() || !text.empty();) {
    ASSERT_TRUE(ReadLines(path_, {500, 1 << 20}, want, &at, &text).ok());
    counts.push_back(std::count(text.begin(), text.end(), '\n'));
    all += text;
  }
  std::string wanted;
  for (int i = 1; i < 3000; i += 3) wanted += std::string(static_cast<size_t>(i % 97), 'x') + "\n";
  EXPECT_EQ(all, wanted);
  // 1,000 lines: 47 times 21, then 7, then the rest.
  ASSERT_EQ(counts.size(), 50u);
  EXPECT_EQ(std::count(counts.begin(), counts.end(), 21), 47);
  EXPECT_THAT(std::vector<int64_t>(counts.end() - 3, counts.end()), ::testing::ElementsAre(7, 6, 0));
  EXPECT_EQ(at.line, 3001);
}

INSTANTIATE_TEST_SUITE_P(Files, LineReaderTest, ::testing::Values("", ".gz"));

TEST(LineReaderErrorTest, AFileThatIsGone) {
  LinePosition at;
  std::string text;
  const Status status = ReadLines("/nonexistent/day.tsv", {}, {}, &at, &text);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr("/nonexistent/day.tsv, after line 0: cannot be read (No such file"));
}

TEST(LineReaderErrorTest, FifoIsRefusedAtOnce) {
  for (const char* name : {"fifo", "fifo.gz"}) {
    const std::string path = ::testing::TempDir() + "line_reader_" + name;
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    LinePosition at;
    std::string text;
    EXPECT_THAT(ReadLines(path, {}, {}, &at, &text).message(),
                HasSubstr("cannot be read (not a regular file)"));
    std::filesystem::remove(path);
  }
}

}  // namespace
}  // namespace het
