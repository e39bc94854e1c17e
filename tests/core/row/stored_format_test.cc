// Rows in 16 and 8 bits: the bytes, the rounding and its random bits.
#include "het_tf/core/row/stored_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/testing/random.h"
#include "tests/testing/table_specs.h"

namespace het::testing::stored_format {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Schema NewStored(Stored stored, uint32_t dim, const std::string& optimizer = "sgd") {
  TableSpec spec = NewSpec("t", dim, optimizer);
  spec.stored = stored;
  return TableSchema::Create(spec).value();
}

using Row = std::vector<float>;

Row Written(const StoredFormat& format, const Row& row, uint64_t draw) {
  Row words(format.words(), kNan);  // memory that was used before
  format.Write(row.data(), draw, words.data());
  return words;
}
bool SameBytes(const Row& a, const Row& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

Row RandomRow(size_t floats, Random* r) {
  const int size = static_cast<int>(r->Between(-120, 100));
  Row row(floats);
  for (float& x : row) {
    x = std::ldexp(static_cast<float>(r->Unit() - 0.5), size - static_cast<int>(r->Below(8)));
    if (r->Chance(0.05)) x = r->Pick<float>({0.0f, -0.0f, 1.0f, -127.5f, kNan, std::ldexp(127.5f, size)});
    if (r->Chance(0.002)) x = r->Chance(0.5) ? kInf : -kInf;
  }
  return row;
}

TEST(StoredFormat, BytesOfARow) {
  const auto bytes = [](Stored stored, uint32_t dim, const char* optimizer) {
    return 4 * NewStored(stored, dim, optimizer)->stored().words();
  };
  EXPECT_EQ(bytes(Stored::kFloat32, 16, "row_wise_adagrad"), 68u);
  EXPECT_EQ(bytes(Stored::kBfloat16, 16, "row_wise_adagrad"), 36u);
  EXPECT_EQ(bytes(Stored::kInt8, 16, "row_wise_adagrad"), 24u);
  EXPECT_EQ(bytes(Stored::kBfloat16, 64, "adagrad"), 256u);
  EXPECT_EQ(bytes(Stored::kInt8, 64, "adagrad"), 196u);
  EXPECT_EQ(bytes(Stored::kBfloat16, 3, "sgd"), 8u);
}

// Rounded rows are neighbours in the format, and stay what they are: loads and moves change nothing, and
// equal numbers have equal bytes.
TEST(StoredFormat, RoundsOnce) {
  Random random(1);
  for (int i = 0; i < 20000; ++i) {
    const auto stored = random.Pick<Stored>({Stored::kBfloat16, Stored::kInt8});
    const Schema schema = NewStored(stored, 2 + static_cast<uint32_t>(random.Below(20)),
                                    random.Pick<std::string>({"sgd", "row_wise_adagrad", "adagrad", "adam"}));
    const StoredFormat& format = schema->stored();
    const Row row = RandomRow(schema->row_floats(), &random);
    const uint64_t draw = random.Chance(0.3) ? 0 : random.Next();
    const Row words = Written(format, row, draw);
    Row read(row.size()), rounded = row;
    format.Read(words.data(), read.data());
    format.Round(draw, rounded.data());
    ASSERT_TRUE(SameBytes(Written(format, rounded, 0), words)) << i;
    ASSERT_TRUE(SameBytes(Written(format, read, random.Next()), words)) << i;
    Row value(schema->dim());
    format.ReadValue(words.data(), value.data());
    const bool finite =
        std::none_of(row.begin(), row.begin() + schema->dim(), [](float x) { return std::isinf(x); });
    float largest = 0;
    for (uint32_t k = 0; k < schema->dim(); ++k) {
      if (std::isfinite(row[k])) largest = std::max(largest, std::abs(row[k]));
      ASSERT_TRUE(value[k] == read[k] || std::isnan(read[k]));
    }
    for (size_t k = 0; k < row.size(); ++k) {
      const bool integer = stored == Stored::kInt8 && k < schema->dim();
      if (integer && !finite && std::isfinite(row[k])) {
        ASSERT_EQ(read[k], 0);
        continue;
      }
      if (!std::isfinite(row[k])) {
        ASSERT_TRUE(std::isnan(row[k]) ? std::isnan(read[k]) : read[k] == row[k]) << i << " " << row[k];
        continue;
      }
      const float unit = integer ? largest / 63.5f : std::abs(row[k]) / 128;
      const float most = std::max(unit * (draw == 0 ? 0.5001f : 1), 0x1p-126f);
      ASSERT_LE(std::abs(read[k] - row[k]), most) << i << ", " << k << " " << row[k] << " " << draw;
      ASSERT_TRUE(read[k] == 0 || std::signbit(read[k]) == std::signbit(row[k]) || draw != 0);
    }
  }
}

TEST(StoredFormat, NothingBecomesInfinite) {
  const float most = std::numeric_limits<float>::max();
  for (const Stored stored : {Stored::kBfloat16, Stored::kInt8}) {
    const Schema schema = NewStored(stored, 4, "adagrad");
    for (uint64_t draw = 0; draw < 100; ++draw) {
      Row row = {most, -most, 1, 0, most, 0, 1e-40f, 1};
      schema->stored().Round(draw, row.data());
      for (const float x : row) ASSERT_TRUE(std::isfinite(x));
      for (size_t slot = 4; slot < 8; ++slot) ASSERT_GE(row[slot], 0);
    }
  }
}

// Over many pushes the mean is the number itself, and errors of elements and of pushes are independent: the
// deviation of their sums is that of as many draws.
TEST(StoredFormat, RoundsWithoutBias) {
  constexpr int kPushes = 4096;
  Random random(2);
  for (const Stored stored : {Stored::kBfloat16, Stored::kInt8}) {
    const Schema schema = NewStored(stored, 16, "adagrad");
    Row row(schema->row_floats());
    for (float& x : row) x = static_cast<float>(random.Unit() * 0.5 + 0.25);
    row[3] = 1;  // the largest: the integers' unit is 1/64
    std::vector<double> sum(row.size()), variance(row.size());
    double of_row = 0;  // squares of a row's sum of errors
    for (uint64_t push = 0; push < kPushes; ++push) {
      Row x = row;
      schema->stored().Round(RowDraw(PushDraw(9, 1, 2, push), /*key=*/77, /*clock=*/5), x.data());
      double errors = 0;
      for (size_t k = 0; k < row.size(); ++k) {
        const double error = static_cast<double>(x[k]) - row[k];
        sum[k] += error;
        variance[k] += error * error;
        errors += error;
      }
      of_row += errors * errors;
    }
    double all = 0;
    for (size_t k = 0; k < row.size(); ++k) {
      EXPECT_LE(std::abs(sum[k]), 5 * std::sqrt(variance[k]) + 1e-12) << k;
      EXPECT_EQ(variance[k] > 0, k != 3) << "pushes of one clock draw other bits";
      all += variance[k];
    }
    EXPECT_NEAR(of_row / all, 1, 0.15);
  }
}

// Each part of a draw matters: rows of one push, and of one key in two tables, may be alike.
TEST(StoredFormat, DrawsDiffer) {
  const auto draw = [](uint64_t table, uint64_t high, uint64_t low, uint64_t seq, Key key, Clock clock) {
    return RowDraw(PushDraw(table, high, low, seq), key, clock);
  };
  const uint64_t one = draw(1, 2, 3, 4, 5, 6);
  EXPECT_THAT((std::vector<uint64_t>{draw(9, 2, 3, 4, 5, 6), draw(1, 9, 3, 4, 5, 6), draw(1, 2, 9, 4, 5, 6),
                                     draw(1, 2, 3, 9, 5, 6), draw(1, 2, 3, 4, 9, 6), draw(1, 2, 3, 4, 5, 9)}),
              ::testing::Each(::testing::Ne(one)));
  EXPECT_NE(one, 0u);
}

TEST(StoredFormat, InitialRowsAreRounded) {
  for (const Stored stored : {Stored::kBfloat16, Stored::kInt8}) {
    const Schema schema = NewStored(stored, 16, "adagrad");
    Row row(32), value(16);
    schema->InitRow(5, row.data());
    schema->InitValue(5, value.data());
    EXPECT_TRUE(std::equal(value.begin(), value.end(), row.begin()));
    Row again = row;
    schema->stored().Round(0, again.data());
    EXPECT_EQ(again, row);
  }
}

TEST(StoredFormat, RefusesByName) {
  const auto error = [](const std::string& json) {
    const auto spec = ParseTableSpec(json);
    return spec.ok() ? TableSchema::Create(spec.value()).status().message() : spec.status().message();
  };
  EXPECT_THAT(error(R"({"name": "t", "dim": 4, "stored": "int4"})"),
              ::testing::AllOf(::testing::HasSubstr("'int4'"), ::testing::HasSubstr("'bfloat16'")));
  EXPECT_THAT(error(R"({"name": "t", "dim": 1, "stored": "int8"})"), ::testing::HasSubstr("dim 1"));
  EXPECT_THAT(error(R"({"name": "t", "dim": 4, "optimizer": {"name": "ftrl"}, "stored": "bfloat16"})"),
              ::testing::HasSubstr("another optimizer"));
  EXPECT_EQ(error(R"({"name": "t", "dim": 4, "stored": "int8"})"), "");
}

}  // namespace
}  // namespace het::testing::stored_format
