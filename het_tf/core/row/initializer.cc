// The values must never change: rows without updates exist nowhere else, not even in checkpoints. Only
// integer arithmetic and IEEE's exactly rounded + - * / sqrt are used (no libm, no fused multiply-add), so
// all compilers and machines agree to the last bit. tests/core/row/initializer_test.cc pins golden numbers.
#include "het_tf/core/row/initializer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace het {
namespace {

constexpr uint64_t kGoldenGamma =
    0x9e3779b97f4a7c15ULL;  // splitmix64's increment (Steele, Lea and Flood 2014)

// 64 random bits for elements 2 * pair and 2 * pair + 1: splitmix64 from the row's state, by counter.
inline uint64_t Bits(uint64_t state, size_t pair) { return Mix64(state + (pair + 1) * kGoldenGamma); }
inline uint32_t Half(uint64_t bits, size_t element) {
  return static_cast<uint32_t>((element & 1) == 0 ? bits >> 32 : bits);
}

// log(x) for normal x > 0, to about 1e-16 of max(1, |log x|): log(2^e m) = e log 2 + 2 atanh((m - 1) / (m +
// 1)), m in [1/sqrt 2, sqrt 2). Not std::log, which differs between C libraries in the last bit.
double Log(double x) {
  uint64_t u;
  std::memcpy(&u, &x, sizeof u);
  int exponent = static_cast<int>(u >> 52) - 1023;
  u = (u & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL;
  double m;
  std::memcpy(&m, &u, sizeof m);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double t = (m - 1) / (m + 1), t2 = t * t;
  double series = 0;
  for (int k = 21; k >= 1; k -= 2) series = series * t2 + 1.0 / k;
  return exponent * 0.6931471805599453 + 2 * t * series;
}

// The normal quantile, Wichura's PPND7 (algorithm AS 241, Applied Statistics 37, 1988): about 1e-7 relative,
// which is float32's own precision. 0 < p < 1.
double NormalQuantile(double p) {
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * (((5.9109374720e+01 * r + 1.5929113202e+02) * r + 5.0434271938e+01) * r + 3.3871327179e+00) /
           (((6.7187563600e+01 * r + 7.8757757664e+01) * r + 1.7895169469e+01) * r + 1.0);
  }
  double r = std::sqrt(-Log(q < 0 ? p : 1 - p));
  double x;
  if (r <= 5) {
    r -= 1.6;
    x = (((1.7023821103e-01 * r + 1.3067284816e+00) * r + 2.7568153900e+00) * r + 1.4234372777e+00) /
        ((1.2021132975e-01 * r + 7.3700164250e-01) * r + 1.0);
  } else {
    r -= 5;
    x = (((1.7337203997e-02 * r + 4.2868294337e-01) * r + 3.0812263860e+00) * r + 6.6579051150e+00) /
        ((1.2258202635e-02 * r + 2.4197894225e-01) * r + 1.0);
  }
  return q < 0 ? -x : x;
}

// (bits + 1/2) / 2^32: inside (0, 1), symmetric about 1/2, and exact.
inline double Unit(uint32_t bits) { return (bits + 0.5) * 0x1p-32; }

}  // namespace

Result<Initializer> Initializer::Create(const InitializerSpec& spec, uint64_t seed, uint64_t table,
                                        size_t dim) {
  const auto refuse = [&spec](const std::string& why) {
    return InvalidArgument("initializer '" + spec.name + "': " + why);
  };
  if (dim == 0) return refuse("dim is 0; give the row's width, at least 1");

  Initializer made;
  made.dim_ = dim;
  // Mixed twice, so that two different pairs never give one stream, as seed ^ table or seed + table would.
  made.stream_ = Mix64(Mix64(seed + kGoldenGamma) ^ table);

  double a = spec.a, b = spec.b;
  if (spec.name == "zeros") {
    a = b = 0;
  } else if (spec.name == "constant") {
    b = 0;
  } else if (spec.name == "uniform") {
    made.kind_ = Kind::kUniform;
  } else if (spec.name == "normal") {
    made.kind_ = Kind::kNormal;
  } else {
    std::string known;
    for (const std::string& name : Names()) known += (known.empty() ? "" : ", ") + name;
    return InvalidArgument("there is no initializer '" + spec.name + "'; known are: " + known);
  }

  made.a_ = static_cast<float>(a);
  made.b_ = static_cast<float>(b);
  if (!std::isfinite(made.a_) || !std::isfinite(made.b_)) {
    return refuse("a = " + std::to_string(spec.a) + ", b = " + std::to_string(spec.b) +
                  "; give finite values within float32");
  }
  if (made.kind_ == Kind::kUniform) {
    if (made.a_ > made.b_) {
      return refuse("low = " + std::to_string(spec.a) + " is above high = " + std::to_string(spec.b) +
                    "; exchange them");
    }
    if (!std::isfinite(made.b_ - made.a_))
      return refuse("high - low exceeds float32; give a narrower interval");
    if (made.a_ == made.b_) made.kind_ = Kind::kConstant;  // [a, a) is empty: use the limit
  } else if (made.kind_ != Kind::kConstant && !(made.b_ >= 0)) {
    return refuse("stddev is " + std::to_string(spec.b) + "; give a value of 0 or more");
  }
  return made;
}

std::vector<std::string> Initializer::Names() { return {"zeros", "constant", "uniform", "normal"}; }

void Initializer::Fill(Key key, float* value) const {
  const uint64_t state = HashKey(key, stream_);
  switch (kind_) {
    case Kind::kConstant:
      std::fill_n(value, dim_, a_);
      return;
    case Kind::kUniform: {
      // 24 bits times a float32 is exact in double: one rounding, the same with and without a fused
      // multiply-add.
      const double low = a_, step = static_cast<double>(b_ - a_) * 0x1p-24;
      const float last = std::nextafter(b_, a_);  // rounding must not reach the open end
      const auto draw = [&](uint64_t bits, size_t i) {
        const auto u = static_cast<int32_t>(Half(bits, i) >> 8);
        value[i] = std::min(static_cast<float>(low + u * step), last);
      };
      for (size_t i = 0; i + 2 <= dim_; i += 2) {
        const uint64_t bits = Bits(state, i / 2);
        draw(bits, i);
        draw(bits, i + 1);
      }
      if (dim_ % 2 != 0) draw(Bits(state, dim_ / 2), dim_ - 1);
      return;
    }
    case Kind::kNormal:
      for (size_t i = 0; i < dim_; ++i) {
        const double u = Unit(Half(Bits(state, i / 2), i));
        value[i] = static_cast<float>(a_ + b_ * NormalQuantile(u));
      }
      return;
  }
}

}  // namespace het
