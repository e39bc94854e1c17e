#include <gtest/gtest.h>

#include "tests/core/row/row_format_fixture.h"

namespace het::row_format {
namespace {

// Rounds integers to the nearest, ties to even; or towards zero.
double Whole(double x, bool down) { return down ? std::trunc(x) : std::nearbyint(x); }

// The definition, in double and one element at a time.
void ReferenceBlock(int integers, bool down, const float* x, size_t n, float* out) {
  const double largest = Largest(x, n);
  std::copy_n(x, n, out);
  if (largest == 0) {
    for (size_t i = 0; i < n && integers > 0; ++i) out[i] = 0;
    return;
  }
  int exponent = 0;
  std::frexp(largest, &exponent);
  if (integers > 0) {
    int power = exponent - (integers - 1);  // the largest is 64 to 128 units, or 4 to 8
    if (largest >= std::ldexp(std::ldexp(1, integers - 1) - 0.5, power)) ++power;
    power = std::max(power, -126);
    if (power > 129 - integers) return;
    for (size_t i = 0; i < n; ++i) {
      out[i] = static_cast<float>(std::ldexp(Whole(std::ldexp(x[i], -power), false), power)) + 0.0f;
    }
    return;
  }
  std::frexp(std::ldexp(Whole(std::ldexp(largest, 11 - exponent), down), exponent - 11), &exponent);
  if (exponent > 128) return;
  const int unit = std::max(exponent - 15, -126);  // that 16-bit floats are multiplied by
  for (size_t i = 0; i < n; ++i) {
    int own = 0;
    std::frexp(x[i], &own);
    const int last_bit = std::max(own - 11, unit - 24);
    out[i] = std::copysign(static_cast<float>(std::ldexp(Whole(std::ldexp(x[i], -last_bit), down), last_bit)),
                           x[i]);
  }
}

// Eight bits; the float itself if that is not finite.
float ReferenceSingle(float x, bool down) {
  int own = 0;
  std::frexp(x, &own);
  const int last_bit = std::max(own - 8, -133);
  const double rounded = std::ldexp(Whole(std::ldexp(x, -last_bit), down), last_bit);
  return std::fabs(rounded) < std::ldexp(1, 128) ? std::copysign(static_cast<float>(rounded), x) : x;
}

Row Reference(RowFormat format, const Shape& shape, const Row& row, size_t down_from) {
  Row out = row;
  if (format == RowFormat::kFloat32) return out;
  for (size_t at = 0; at + shape.block <= shape.floats; at += shape.block) {
    const int integers = at == 0 ? IntegerBits(format) : 0;
    ReferenceBlock(integers, at >= down_from, row.data() + at, shape.block, out.data() + at);
  }
  for (size_t at = shape.floats / shape.block * shape.block; at < shape.floats; ++at) {
    if (IntegerBits(format) > 0) out[at] = ReferenceSingle(row[at], at >= down_from);
  }
  return out;
}

TEST(RowFormat, RoundingIsWhatItsDefinitionSays) {
  Random r(1);
  for (uint64_t i = 0; i < Scaled(3000); ++i) {
    const Shape shape = RandomShape(&r);
    const Row row = RandomRow(shape.floats, &r);
    const size_t down_from = r.Chance(0.5) ? shape.block : SIZE_MAX;
    for (RowFormat format : kFormats) {
      const Row rounded = Round(format, shape, row, down_from);
      const Row expected = Reference(format, shape, row, down_from);
      for (size_t k = 0; k < row.size(); ++k) {
        ASSERT_EQ(FloatBits(rounded[k]), FloatBits(expected[k]))
            << RowFormatName(format) << " of " << row[k] << " at " << k << " of " << shape.floats
            << ", block " << shape.block << ": " << rounded[k] << ", not " << expected[k];
      }
    }
  }
}

// A server packs what it has read for its replicas. Defect: they then have other numbers.
TEST(RowFormat, ASecondRoundingChangesNothing) {
  Random r(2);
  for (uint64_t i = 0; i < Scaled(3000); ++i) {
    const Shape shape = RandomShape(&r);
    Row row = RandomRow(shape.floats, &r);
    if (r.Chance(0.3))
      row[r.Below(row.size())] = r.Pick<float>({kInf, -kInf, kNan, 3.38e38f, 3.4e38f, 1e-45f});
    for (RowFormat format : kFormats) {
      for (const Rounding& rounding : {Rounding{format, 0}, Rounding{format, shape.block}, Rounding{format},
                                       Rounding{format, SIZE_MAX, r.Next() | 1}}) {
        const Bytes bytes = Pack(rounding, shape, row);
        const Row once = Unpack(format, shape, bytes);
        ASSERT_TRUE(SameBits(Unpack(format, shape, Pack({format}, shape, once)), once))
            << RowFormatName(format);
        ASSERT_LE(bytes.size(), MostRowBytes(format, shape.block, shape.floats));
        ASSERT_GE(bytes.size(), LeastRowBytes(format, shape.block, shape.floats));
      }
    }
  }
}

TEST(RowFormat, RoundedRowsAreSmall) {
  Random r(7);
  for (uint64_t i = 0; i < Scaled(1000); ++i) {
    const Shape shape = RandomShape(&r);
    const Row row = RandomRow(shape.floats, &r);
    if (Largest(row.data(), row.size()) > 1e38f) continue;
    for (RowFormat format : kFormats) {
      const size_t least = LeastRowBytes(format, shape.block, shape.floats);
      ASSERT_EQ(Pack({format}, shape, row).size(), least);
      ASSERT_EQ(Pack({format, shape.block}, shape, row).size(), least);
    }
  }
}

TEST(RowFormat, Sizes) {
  // dim 16 and one slot of one float, as row_wise_adagrad's.
  EXPECT_EQ(LeastRowBytes(RowFormat::kFloat32, 16, 17), 68u);
  EXPECT_EQ(LeastRowBytes(RowFormat::kFloat16, 16, 17), 37u);
  EXPECT_EQ(LeastRowBytes(RowFormat::kInt8, 16, 17), 19u);
  // dim 8, two slots of 8 and one of one, as adam's: slots are never below 16 bits.
  EXPECT_EQ(LeastRowBytes(RowFormat::kInt8, 8, 25), 1u + 8 + 2 * 17 + 2);
  EXPECT_EQ(MostRowBytes(RowFormat::kInt8, 8, 25), 3u + 96 + 6);
  EXPECT_EQ(LeastRowBytes(RowFormat::kInt4, 16, 17), 1u + 8 + 2);
  EXPECT_EQ(LeastRowBytes(RowFormat::kInt4, 7, 7), 1u + 4);
}

// Defect: the random number beside a large integer is rounded up to a whole one, once in 2^18 times.
TEST(RowFormat, DitheredIntegersThatFitAreExact) {
  for (const RowFormat format : {RowFormat::kInt8, RowFormat::kInt4}) {
    const float most = format == RowFormat::kInt8 ? 96 : 6;
    const Row row(64, most);
    for (uint64_t seed = 1; seed <= 40000; ++seed) {
      Row out(row.size());
      testing::RoundRow({format, SIZE_MAX, Mix64(seed)}, row.size(), row.size(), row.data(), out.data());
      ASSERT_EQ(out, row) << "seed " << seed;
    }
  }
}

// Up or down by at most one unit, with the element itself as the mean.
TEST(RowFormat, DitheredIntegersAreRightOnAverage) {
  const struct {
    RowFormat format;
    Row row;
    float unit;
  } cases[] = {
      {RowFormat::kInt8, {100, -0.25f, 0.01f, -99.9f, 3, 126.99f, 50.5f, 0}, 1},
      {RowFormat::kInt4, {6, -0.25f, 0.01f, -5.9f, 3, 6.99f, 2.5f, 0}, 1},
      {RowFormat::kInt4, {6, -0.25f, 0.01f, -5.9f, 4, 7.01f, 2.5f, 0}, 2},  // 7 is the largest in 4 bits
  };
  constexpr int kTimes = 20000;
  for (const auto& [format, row, unit] : cases) {
    Row sum(row.size());
    for (uint64_t seed = 1; seed <= kTimes; ++seed) {
      Row out(row.size());
      testing::RoundRow({format, SIZE_MAX, Mix64(seed)}, row.size(), row.size(), row.data(), out.data());
      ASSERT_TRUE(SameBits(Round(format, {8, 8}, out), out)) << "its bits hold it";
      for (size_t i = 0; i < row.size(); ++i) {
        ASSERT_LT(std::fabs(out[i] - row[i]), unit) << row[i];
        sum[i] += out[i] - row[i];
      }
    }
    EXPECT_EQ(sum[4], 0) << "an integer stays";
    for (size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(sum[i] / kTimes, 0, 0.015 * unit) << row[i];
  }
}

TEST(RowFormat, NothingOverflowsOrBecomesZero) {
  const Shape shape{9, 9};
  for (int exponent = -149; exponent < 128; ++exponent) {
    Row row(9);
    for (size_t i = 0; i < 9; ++i) row[i] = std::ldexp(i % 2 == 0 ? 1.0f : -1.0f, exponent);
    EXPECT_EQ(Round(RowFormat::kFloat16, shape, row), row) << exponent;
    if (exponent < -126) continue;
    EXPECT_EQ(Round(RowFormat::kInt8, shape, row), row) << exponent;
    EXPECT_EQ(Round(RowFormat::kInt4, shape, row), row) << exponent;
  }
  Row largest(9, std::numeric_limits<float>::max());
  largest[1] = -1;
  EXPECT_EQ(Round(RowFormat::kFloat16, shape, largest), largest);
  EXPECT_EQ(Round(RowFormat::kInt8, shape, largest), largest);
}

TEST(RowFormat, WhatIsNotFiniteTravelsAsItIs) {
  const Shape shape{3, 7};
  const Row row = {1.1f, kNan, -kInf, 0.1f, 0.2f, 0.3f, 5.0f};
  for (RowFormat format : {RowFormat::kFloat16, RowFormat::kInt8}) {
    const Row back = Unpack(format, shape, Pack({format}, shape, row));
    ASSERT_EQ(back.size(), 7u);
    EXPECT_EQ(std::memcmp(back.data(), row.data(), 3 * sizeof(float)), 0);
    EXPECT_NE(back[3], row[3]);  // the next block is rounded
    EXPECT_EQ(back[6], 5.0f);
  }
}

TEST(RowFormat, ZerosAreZeros) {
  const Shape shape{17, 35};
  const Row zeros(35);
  for (RowFormat format : kFormats) {
    EXPECT_EQ(Unpack(format, shape, Pack({format}, shape, zeros)), zeros);
  }
}

}  // namespace
}  // namespace het::row_format
