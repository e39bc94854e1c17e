// Rounding and packing of rows: the definition, the bytes, and malformed bytes.
#include "het_tf/core/row/row_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "het_tf/core/base/half.h"
#include "tests/testing/packed_rows.h"
#include "tests/testing/random.h"

namespace het::row_format {
namespace {

using testing::Random;
using testing::Scaled;

constexpr RowFormat kFormats[] = {RowFormat::kFloat32, RowFormat::kFloat16, RowFormat::kInt8,
                                  RowFormat::kInt4, RowFormat::kInt5};
// Bits of an integer in the first block; 0: no integers.
int IntegerBits(RowFormat format) {
  constexpr int kBits[] = {0, 0, 8, 4, 5};
  return kBits[static_cast<int>(format)];
}
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Row = std::vector<float>;

struct Shape {
  size_t block;
  size_t floats;
};

// Value only, with a slot of one float, with slots of dim floats; widths that suit SIMD code, and others.
Shape RandomShape(Random* r) {
  const size_t block = r->Pick<size_t>({1, 2, 3, 7, 8, 9, 16, 17, 64, 100, 128, 131});
  const size_t tail = block > 1 ? r->Below(2) : 0;
  return {block, block * r->Pick<size_t>({1, 2, 3}) + tail};
}

float RandomFloat(Random* r) {
  switch (r->Below(12)) {
    case 0:
      return r->Pick<float>({0.0f, -0.0f, 1.0f, -1.0f, 65504.0f, 65520.0f, 127.5f, -63.75f});
    case 1:  // of any size, including denormal
      return std::ldexp(static_cast<float>(r->Unit() - 0.5), static_cast<int>(r->Between(-150, 127)));
    case 2:  // much smaller than the others
      return std::ldexp(static_cast<float>(r->Unit() - 0.5), static_cast<int>(r->Between(-45, 0)));
    default:
      return static_cast<float>(r->Unit() - 0.5);
  }
}

Row RandomRow(size_t floats, Random* r) {
  Row row(floats);
  for (float& x : row) x = RandomFloat(r);
  return row;
}

Bytes Pack(const Rounding& rounding, const Shape& shape, const Row& row) {
  Bytes bytes;
  Writer writer(&bytes);
  const float* const rows[] = {row.data()};
  PackRows(rounding, shape.block, shape.floats, rows, 1, &writer);
  return bytes;
}

// Empty: it was refused, or did not end with the bytes.
Row Unpack(RowFormat format, const Shape& shape, const Bytes& bytes) {
  Reader reader(bytes);
  Vector<float> rows;
  if (!UnpackRows(format, shape.block, shape.floats, 1, &reader, &rows) || reader.left() > 0) return {};
  return Row(rows.begin(), rows.end());
}

Row Round(RowFormat format, const Shape& shape, const Row& row, size_t down_from = SIZE_MAX) {
  Row out(row.size());
  testing::RoundRow({format, down_from}, shape.block, shape.floats, row.data(), out.data());
  return out;
}

bool SameBits(const Row& a, const Row& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

float Largest(const float* x, size_t n) {
  float largest = 0;
  for (size_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

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
    int power = exponent - (integers - 1);  // the largest is 64 to 128 units, or 4 to 8, or 8 to 16
    if (largest >= std::ldexp(std::ldexp(1, integers - 1) - 0.5, power)) ++power;
    power = std::max(power, integers < 8 ? -96 : -126);
    if (power > (integers < 8 ? 29 : 121)) return;
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

// Eight bits; the float itself if that is not finite. `term`: three bits, if it is in [2^-48, 1.75 2^15].
float ReferenceSingle(float x, bool down, bool term) {
  int own = 0;
  std::frexp(x, &own);
  if (term && !std::signbit(x)) {
    const double few = std::ldexp(Whole(std::ldexp(x, 3 - own), down), own - 3);
    if (few < std::ldexp(1, -48)) return 0;
    if (few <= std::ldexp(1.25, 15)) return static_cast<float>(few);
  }
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
    if (IntegerBits(format) > 0) out[at] = ReferenceSingle(row[at], at >= down_from, IntegerBits(format) < 8);
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
      for (const Rounding& rounding :
           {Rounding{format, 0}, Rounding{format, shape.block}, Rounding{format},
            Rounding{format, SIZE_MAX, r.Next() | 1}, Rounding{format, shape.block, 0, /*coarse=*/true}}) {
        const Bytes bytes = Pack(rounding, shape, row);
        const Row once = Unpack(format, shape, bytes);
        const Row again = Unpack(format, shape, Pack({format}, shape, once));
        ASSERT_TRUE(SameBits(again, once)) << RowFormatName(format);
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
    Row row = RandomRow(shape.floats, &r);
    if (shape.floats % shape.block != 0) row.back() = std::fabs(row.back());
    if (Largest(row.data(), row.size()) > 1e4f) continue;
    for (RowFormat format : kFormats) {
      const size_t least = LeastRowBytes(format, shape.block, shape.floats);
      // 4 bits in place of 2.
      const size_t fine = format == RowFormat::kInt4 ? (shape.block + 1) / 2 - (shape.block + 3) / 4 : 0;
      ASSERT_EQ(Pack({format}, shape, row).size(), least + fine);
      ASSERT_EQ(Pack({format, shape.block}, shape, row).size(), least + fine);
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
  EXPECT_EQ(LeastRowBytes(RowFormat::kInt4, 16, 17), 1u + 4 + 1);
  EXPECT_EQ(LeastRowBytes(RowFormat::kInt4, 7, 7), 1u + 2);
  EXPECT_EQ(MostRowBytes(RowFormat::kInt4, 8, 25), 3u + 96 + 7);
  EXPECT_EQ(LeastRowBytes(RowFormat::kInt5, 16, 17), 1u + 10 + 1);
  EXPECT_EQ(LeastRowBytes(RowFormat::kInt5, 9, 9), 1u + 6);
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

// Four steps about zero, the half step a power of two next to .62 of the mean magnitude. What 4 bits hold
// exactly, zeros among them, keeps its 4 bits.
TEST(RowFormat, CoarseIntegersAreThoseOfTheMeanMagnitude) {
  Random r(10);
  const Shape shape{16, 16};
  double error = 0;
  double all = 0;
  for (uint64_t i = 0; i < Scaled(1000); ++i) {
    Row row(16);
    for (float& x : row) {  // about normal, of any deviation
      for (int k = 0; k < 12; ++k) x += static_cast<float>(r.Unit() - 0.5);
      x = std::ldexp(x, static_cast<int>(i % 40) - 20);
    }
    const Bytes bytes = Pack({RowFormat::kInt4, 16, 0, /*coarse=*/true}, shape, row);
    ASSERT_EQ(bytes.size(), 5u);
    const Row back = Unpack(RowFormat::kInt4, shape, bytes);
    const float half = *std::min_element(back.begin(), back.end(),
                                         [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    for (size_t k = 0; k < 16; ++k) {
      const float steps = std::fabs(back[k] / half);
      ASSERT_TRUE(steps == 1 || steps == 3);
      ASSERT_EQ(std::signbit(back[k]), std::signbit(row[k]));
      error += std::pow((back[k] - row[k]) / half, 2);
      all += std::pow(row[k] / half, 2);
    }
  }
  EXPECT_LT(error / all, 0.18) << "0.119 with a step that is no power of two";
  for (const Row& exact : {Row(16), Row(16, 3.0f)}) {
    EXPECT_EQ(Unpack(RowFormat::kInt4, shape, Pack({RowFormat::kInt4, 16, 0, true}, shape, exact)), exact);
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
    if (exponent < -96) continue;
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

// --- the bytes

// Files and servers of other versions read these bytes.
TEST(RowFormatBytes, TheBytesThemselves) {
  const Row row = {1, -2, 0.5f, 4, 3};
  const Shape shape{2, 5};
  // 2 is 16384 units of 2^-13, so the byte is 114; 1 is 0x7000 and -2 is 0xf400 among 16-bit floats.
  const Bytes halves = Pack({RowFormat::kFloat16}, shape, row);
  const uint8_t expected_halves[] = {114, 0, 0x70, 0, 0xf4, 115, 0, 0x68, 0, 0x74, 0, 0, 0x40, 0x40};
  EXPECT_EQ(halves, Bytes(std::begin(expected_halves), std::end(expected_halves)));
  // -2 is 64 units of 2^-5.
  const Bytes integers = Pack({RowFormat::kInt8}, shape, row);
  const uint8_t expected_integers[] = {122, 32, 0xc0, 115, 0, 0x68, 0, 0x74, 0x40, 0x40};
  EXPECT_EQ(integers, Bytes(std::begin(expected_integers), std::end(expected_integers)));
  // -2 is 4 units of 2^-1, 1 is 2 of them.
  const Bytes four = Pack({RowFormat::kInt4}, shape, row);
  const uint8_t expected_four[] = {96, 0xc2, 115, 0, 0x68, 0, 0x74, 199};
  EXPECT_EQ(four, Bytes(std::begin(expected_four), std::end(expected_four)));
  // -2 is 8 units of 2^-2, 1 is 4 of them.
  const Bytes five = Pack({RowFormat::kInt5}, shape, row);
  const uint8_t expected_five[] = {95, 0x04, 0x03, 115, 0, 0x68, 0, 0x74, 199};
  EXPECT_EQ(five, Bytes(std::begin(expected_five), std::end(expected_five)));
  const Bytes nine = Pack({RowFormat::kInt5}, {9, 9}, {1, 2, 3, 4, 5, 6, 7, 8, -8});
  EXPECT_EQ(nine, (Bytes{97, 0x41, 0x0c, 0x52, 0xcc, 0x41, 0x18}));
  EXPECT_EQ(Pack({RowFormat::kInt5}, {2, 2}, {100, -1}), (Bytes{225, 100, 0xff}));  // exact in 8 bits alone
  // The mean magnitude is 1.4, so these become 1, -3, 1 and -1.
  const Bytes two = Pack({RowFormat::kInt4, 4, 0, /*coarse=*/true}, {4, 4}, {1.2f, -3.1f, 0.4f, -0.9f});
  EXPECT_EQ(two, (Bytes{225, 0xc8}));
  EXPECT_EQ(Unpack(RowFormat::kInt4, {4, 4}, two), (Row{1, -3, 1, -1}));
}

// A single float to which no upper half is near is sent whole, after a NaN. Defect: it becomes infinite.
TEST(RowFormatBytes, SingleFloatIsUpperHalfOrWhole) {
  const Bytes whole = Pack({RowFormat::kInt8}, {2, 3}, {0, 0, FLT_MAX});
  EXPECT_EQ(Bytes(whole.end() - 6, whole.end()), (Bytes{0xff, 0xff, 0xff, 0xff, 0x7f, 0x7f}));
  EXPECT_EQ(Round(RowFormat::kInt8, {2, 3}, {0, 0, 0.1f})[2], 0.10009765625f);
  EXPECT_EQ(Round(RowFormat::kInt8, {2, 3}, {0, 0, FLT_MAX})[2], FLT_MAX);
  EXPECT_EQ(Round(RowFormat::kInt8, {2, 3}, {0, 0, kInf})[2], kInf);
  for (const float odd : {-0.1f, kInf, 1e30f}) {
    EXPECT_EQ(Round(RowFormat::kInt4, {2, 3}, {0, 0, odd})[2],
              Round(RowFormat::kInt8, {2, 3}, {0, 0, odd})[2]);
  }
  EXPECT_TRUE(std::isnan(Round(RowFormat::kInt4, {2, 3}, {0, 0, -kNan})[2]));
}

TEST(RowFormatBytes, DamagedBytesAreRefused) {
  Random r(8);
  for (uint64_t i = 0; i < Scaled(300); ++i) {
    const Shape shape = RandomShape(&r);
    for (RowFormat format : kFormats) {
      Bytes bytes = Pack({format}, shape, RandomRow(shape.floats, &r));
      bytes.resize(r.Below(bytes.size()));
      ASSERT_TRUE(Unpack(format, shape, bytes).empty());
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(r.Below(256));
      static_cast<void>(Unpack(format, shape, bytes));  // any result is fine, but no crash
    }
  }
  const Row row = {1, 2};
  for (RowFormat format : {RowFormat::kFloat16, RowFormat::kInt8, RowFormat::kInt4}) {
    Bytes bytes = Pack({format}, {2, 2}, row);
    for (const uint8_t byte : {0, 127, 128, 200}) {
      bytes[0] = byte;
      EXPECT_EQ(Unpack(format, {2, 2}, bytes).empty(), byte == 0 || format == RowFormat::kInt4) << int{byte};
    }
  }
}

TEST(RowFormatBytes, ManyRowsOneBehindTheOther) {
  Random r(9);
  const Shape shape{16, 33};
  Vector<float> rows;
  std::vector<const float*> pointers;
  for (int i = 0; i < 50; ++i) {
    for (float x : RandomRow(shape.floats, &r)) rows.push_back(x);
  }
  for (int i = 0; i < 50; ++i) pointers.push_back(rows.data() + i * 33);
  for (RowFormat format : kFormats) {
    Bytes bytes;
    Writer writer(&bytes);
    PackRows({format}, 16, 33, pointers.data(), 50, &writer);
    Reader reader(bytes);
    Vector<float> rounded;
    ASSERT_TRUE(UnpackRows(format, 16, 33, 50, &reader, &rounded));
    EXPECT_EQ(reader.left(), 0u);
    for (int i = 0; i < 50; ++i) {
      const Row row(pointers[i], pointers[i] + 33);
      EXPECT_EQ(Row(rounded.data() + i * 33, rounded.data() + (i + 1) * 33), Round(format, shape, row));
    }
  }
}

TEST(RowFormatBytes, Names) {
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(ParseRowFormat(RowFormatName(kFormats[i])).value(), kFormats[i]);
  EXPECT_FALSE(ParseRowFormat(RowFormatName(RowFormat::kInt5)).ok()) << "it comes with int4";
  const Status refused = ParseRowFormat("bfloat16").status();
  EXPECT_NE(refused.message().find("'bfloat16'"), std::string::npos);
  EXPECT_NE(refused.message().find("\"float16\", \"int8\" or \"int4\""), std::string::npos);
}

}  // namespace
}  // namespace het::row_format
