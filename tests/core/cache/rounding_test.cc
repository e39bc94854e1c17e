// Rows that leave are rounded at random: what that loses has no direction, whatever rows, lookups, tables and
// workers it is summed over.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "het_tf/core/cache/table_cache.h"
#include "tests/testing/packed_rows.h"
#include "tests/testing/table_specs.h"

namespace het::testing {
namespace {

constexpr size_t kDim = 16;
constexpr Key kKeys = 60;
constexpr uint64_t kLookups = 25;
constexpr size_t kRoundings = kKeys * kLookups * kDim;  // 24,000
constexpr double kSigmas = 4;

using Errors = std::vector<double>;

// Of the number i of every update.
float Number(size_t i) { return 0.9f - 0.113f * static_cast<float>(i); }

// One update leaves for each of 60 neighbouring ids in each of 25 lookups: what each number gains, by lookup,
// id and number.
Errors ErrorsOf(RowFormat wire, const std::string& table, uint64_t client) {
  CacheConfig config;
  config.wire = wire;
  TableCache cache(NewSchema(table, kDim), config, /*hash_seed=*/3, /*device=*/nullptr, client);
  Vector<uint32_t> lines;
  for (Key key = 0; key < kKeys; ++key) {
    lines.push_back(cache.Insert(key, cache.lines().Hash(key), 0, /*transient=*/true));
  }
  PackedUpdates taken;
  taken.format = wire;
  for (uint64_t lookup = 1; lookup <= kLookups; ++lookup) {
    cache.BeginLookup(lookup);
    for (uint32_t line : lines) {
      float* const update = cache.unsent().UpdateOf(line);
      for (size_t i = 0; i < kDim; ++i) update[i] = Number(i);
      cache.lines().AddTick(line);
      cache.unsent().TakeUpdate(line, &taken);
    }
  }
  const Vector<float> wires = FloatsOf(taken, kDim, kDim);
  Errors errors(kRoundings);
  for (size_t at = 0; at < kRoundings; ++at) errors[at] = double{wires[at]} - double{Number(at % kDim)};
  return errors;
}

// How many standard deviations the sum of products of two series is off zero. Each number's errors have a
// variance of its own.
double Sigmas(const Errors& a, const Errors& b) {
  double sum = 0, variance = 0;
  for (size_t at = 0; at < a.size(); ++at) {
    sum += a[at] * b[at];
    variance += a[at] * a[at] * b[at] * b[at];
  }
  return sum / std::sqrt(variance);
}

// The series from `by` on, beside its beginning.
double SigmasOfShifted(const Errors& errors, size_t by) {
  return Sigmas({errors.begin(), errors.end() - static_cast<std::ptrdiff_t>(by)},
                {errors.begin() + static_cast<std::ptrdiff_t>(by), errors.end()});
}

class RoundingTest : public ::testing::TestWithParam<RowFormat> {};

// Defect: ids and lookups below 2^m have 2^m vectors of random numbers in all, and sums over rows are off.
TEST_P(RoundingTest, SumsOverRowsAndLookupsAreRight) {
  const Errors errors = ErrorsOf(GetParam(), "clicks", 1);
  EXPECT_LT(std::fabs(Sigmas(errors, Errors(kRoundings, 1))), kSigmas);
  for (size_t i = 0; i < kDim; ++i) {
    Errors of_number;
    for (size_t at = i; at < kRoundings; at += kDim) of_number.push_back(errors[at]);
    EXPECT_LT(std::fabs(Sigmas(of_number, Errors(of_number.size(), 1))), kSigmas) << "number " << i;
  }
  // A row beside its neighbours, and beside itself in the next lookups.
  for (size_t by : {size_t{1}, size_t{2}, size_t{7}}) {
    EXPECT_LT(std::fabs(SigmasOfShifted(errors, by * kDim)), kSigmas) << by << " rows away";
    EXPECT_LT(std::fabs(SigmasOfShifted(errors, by * kDim * kKeys)), kSigmas) << by << " lookups away";
  }
  EXPECT_LT(std::fabs(SigmasOfShifted(errors, (kKeys - 1) * kDim)), kSigmas) << "a row less, a lookup more";
}

// Defect: tables with equal updates, or workers in step, err alike, so their errors add up.
TEST_P(RoundingTest, TablesAndWorkersDoNotErrAlike) {
  const struct {
    const char* table;
    uint64_t client;
  } kTwins[] = {{"clicks", 1}, {"orders", 1}, {"clicks", 2}, {"clicks", 3}, {"orders", 2}};
  std::vector<Errors> all;
  for (const auto& twin : kTwins) all.push_back(ErrorsOf(GetParam(), twin.table, twin.client));
  for (size_t a = 0; a < all.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      EXPECT_LT(std::fabs(Sigmas(all[a], all[b])), kSigmas) << "twins " << a << " and " << b;
    }
  }
}

// A run can be repeated: nothing but these decides.
TEST_P(RoundingTest, EqualRunsRoundAlike) {
  EXPECT_EQ(ErrorsOf(GetParam(), "clicks", 5), ErrorsOf(GetParam(), "clicks", 5));
}

INSTANTIATE_TEST_SUITE_P(Formats, RoundingTest, ::testing::Values(RowFormat::kInt8, RowFormat::kInt4),
                         [](const auto& info) { return RowFormatName(info.param); });

}  // namespace
}  // namespace het::testing
