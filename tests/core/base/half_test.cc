#include "het_tf/core/base/half.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/testing/random.h"

#if defined(__F16C__) && defined(__AVX__)
#include <immintrin.h>
#endif

namespace het::testing {
namespace {

TEST(Half, EqualsTheF16cInstructions) {
#if defined(__F16C__) && defined(__AVX__)
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float value = FromHalf(static_cast<uint16_t>(half));
    if (std::isnan(value)) continue;
    ASSERT_EQ(FloatBits(value), FloatBits(_cvtsh_ss(static_cast<uint16_t>(half)))) << half;
  }
  Random r(3);
  for (uint64_t i = 0; i < Scaled(200000); ++i) {
    const float x = std::ldexp(static_cast<float>(r.Unit() - 0.5), static_cast<int>(r.Between(-30, 15)));
    ASSERT_EQ(ToHalf(x), _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT)) << x;
    ASSERT_EQ(ToHalfDown(x), _cvtss_sh(x, _MM_FROUND_TO_ZERO)) << x;
  }
#else
  GTEST_SKIP() << "built without F16C (HET_MARCH)";
#endif
}

}  // namespace
}  // namespace het::testing
