// The bytes of packed rows, and malformed bytes.
#include <gtest/gtest.h>

#include <cfloat>

#include "tests/core/row/row_format_fixture.h"

namespace het::row_format {
namespace {

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
  const uint8_t expected_four[] = {126, 0xc2, 115, 0, 0x68, 0, 0x74, 0x40, 0x40};
  EXPECT_EQ(four, Bytes(std::begin(expected_four), std::end(expected_four)));
}

// A single float to which no upper half is near is sent whole, after a NaN. Defect: it becomes infinite.
TEST(RowFormatBytes, SingleFloatIsUpperHalfOrWhole) {
  const Bytes whole = Pack({RowFormat::kInt8}, {2, 3}, {0, 0, FLT_MAX});
  EXPECT_EQ(Bytes(whole.end() - 6, whole.end()), (Bytes{0xff, 0xff, 0xff, 0xff, 0x7f, 0x7f}));
  EXPECT_EQ(Round(RowFormat::kInt8, {2, 3}, {0, 0, 0.1f})[2], 0.10009765625f);
  EXPECT_EQ(Round(RowFormat::kInt8, {2, 3}, {0, 0, FLT_MAX})[2], FLT_MAX);
  EXPECT_EQ(Round(RowFormat::kInt8, {2, 3}, {0, 0, kInf})[2], kInf);
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
    bytes[0] = 0;
    EXPECT_TRUE(Unpack(format, {2, 2}, bytes).empty());
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
  for (RowFormat format : kFormats) EXPECT_EQ(ParseRowFormat(RowFormatName(format)).value(), format);
  const Status refused = ParseRowFormat("bfloat16").status();
  EXPECT_NE(refused.message().find("'bfloat16'"), std::string::npos);
  EXPECT_NE(refused.message().find("\"float16\", \"int8\" or \"int4\""), std::string::npos);
}

}  // namespace
}  // namespace het::row_format
