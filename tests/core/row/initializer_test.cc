#include "het_tf/core/row/initializer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <tuple>

#include "tests/testing/status.h"

namespace het {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Row = std::vector<float>;

Initializer Make(const InitializerSpec& spec, uint64_t seed = 1, uint64_t table = HashName("item"),
                 size_t dim = 8) {
  return ValueOf(Initializer::Create(spec, seed, table, dim));
}

Row Fill(const Initializer& initializer, Key key, size_t dim) {
  Row row(dim + 1, 77.0f);
  initializer.Fill(key, row.data());
  EXPECT_EQ(row[dim], 77.0f) << "wrote beyond dim";
  row.pop_back();
  return row;
}

std::string Refusal(const InitializerSpec& spec, size_t dim = 8) {
  auto made = Initializer::Create(spec, 1, 2, dim);
  EXPECT_FALSE(made.ok()) << spec.name;
  EXPECT_EQ(made.status().code(), Code::kInvalidArgument);
  return made.status().message();
}

TEST(InitializerCreate, RefusesAndSaysWhatIsLegal) {
  EXPECT_THAT(Refusal({"glorot", 0, 1}),
              AllOf(HasSubstr("'glorot'"), HasSubstr("zeros, constant, uniform, normal")));
  EXPECT_THAT(Refusal({"uniform", 0, 1}, 0), HasSubstr("dim is 0"));
  EXPECT_THAT(Refusal({"uniform", 1, -1}), AllOf(HasSubstr("low = 1"), HasSubstr("above high = -1")));
  EXPECT_THAT(Refusal({"uniform", -3e38, 3e38}), HasSubstr("narrower"));
  EXPECT_THAT(Refusal({"normal", 0, -1}), HasSubstr("stddev is -1"));
}

TEST(InitializerCreate, RefusesWhatIsNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (double bad : {nan, inf, -inf, 1e39}) {
    for (const std::string& name : Initializer::Names()) {
      if (name == "zeros") continue;
      Refusal({name, bad, 1.0});
      if (name == "uniform" || name == "normal") Refusal({name, 0.0, bad});
    }
  }
}

// Parameters that the initializer does not use are ignored.
TEST(InitializerCreate, IgnoresTheParametersItDoesNotTake) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(Fill(Make({"zeros", nan, nan}), 5, 8), ::testing::Each(0.0f));
  EXPECT_THAT(Fill(Make({"constant", 0.25, nan}), 5, 8), ::testing::Each(0.25f));
}

// Rows without updates are not stored: these numbers must never change, on any compiler or machine.
TEST(Initializer, GoldenValues) {
  constexpr Key kMinKey = std::numeric_limits<Key>::min(), kMaxKey = std::numeric_limits<Key>::max();
  const std::tuple<InitializerSpec, Key, Row> golden[] = {
      {{"uniform", -0.05, 0.05},
       0,
       {-0.00565826893f, 0.00430496922f, -0.0349830464f, -0.0479541495f, -0.0171486568f}},
      {{"uniform", -0.05, 0.05}, -1, {-0.0249082278f, -0.00980064925f, -0.0184532758f, -0.00704648485f}},
      {{"uniform", -1, 3}, kMaxKey, {-0.868197441f, 2.12320757f, 1.19792485f, -0.793180704f}},
      {{"normal", 0, 0.01},
       0,
       {-0.00142310618f, 0.00108119973f, -0.0103570633f, -0.0204436891f, -0.00444021635f, 0.00879597198f,
        -0.0236630235f, -0.0168221965f}},
      {{"normal", 1, 2}, kMinKey, {2.22311378f, 1.07791042f, -0.510392666f, 2.03787088f, 1.65659213f}},
  };
  for (const auto& [spec, key, values] : golden) {
    const Row row = Fill(Make(spec, 42, HashName("item"), values.size()), key, values.size());
    EXPECT_EQ(row, values) << spec.name << " key " << key;
  }
}

TEST(Initializer, DependsOnSeedTableKeyAndElement) {
  const InitializerSpec spec{"uniform", -1, 1};
  std::set<float> seen;
  size_t drawn = 0;
  for (uint64_t seed : {0, 1}) {
    for (uint64_t table : {0, 1}) {
      for (Key key :
           {Key{0}, Key{1}, Key{-1}, std::numeric_limits<Key>::min(), std::numeric_limits<Key>::max()}) {
        for (float x : Fill(Make(spec, seed, table), key, 8)) seen.insert(x);
        drawn += 8;
      }
    }
  }
  EXPECT_EQ(seen.size(), drawn);
  EXPECT_EQ(Fill(Make(spec), 3, 8), Fill(Make(spec), 3, 8));
}

TEST(Initializer, AnElementDoesNotDependOnTheWidth) {
  for (const char* name : {"uniform", "normal"}) {
    const Row wide = Fill(Make({name, 0, 1}, 1, 2, 33), 9, 33);
    for (size_t dim = 1; dim < 33; ++dim) {
      const Row row = Fill(Make({name, 0, 1}, 1, 2, dim), 9, dim);
      EXPECT_TRUE(std::equal(row.begin(), row.end(), wide.begin())) << name << " " << dim;
    }
  }
}

TEST(Initializer, UniformNeverReachesTheOpenEnd) {
  // One float32 step wide: every draw must be the low end. Wider by little: rounding up would reach `high`.
  const float low = 1.0f, next = std::nextafter(low, 2.0f);
  EXPECT_THAT(Fill(Make({"uniform", low, next}), 3, 8), ::testing::Each(low));
  const float high = std::nextafter(std::nextafter(next, 2.0f), 2.0f);
  for (Key key = 0; key < 1000; ++key) {
    for (float x : Fill(Make({"uniform", low, high}), key, 8)) {
      ASSERT_GE(x, low);
      ASSERT_LT(x, high);
    }
  }
}

TEST(Initializer, AnEmptyIntervalIsItsLimit) {
  EXPECT_THAT(Fill(Make({"uniform", 0.5, 0.5}), 3, 8), ::testing::Each(0.5f));
  EXPECT_THAT(Fill(Make({"normal", 0.5, 0}), 3, 8), ::testing::Each(0.5f));
}

}  // namespace
}  // namespace het
