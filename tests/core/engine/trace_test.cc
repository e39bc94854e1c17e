// The phases of a lookup and an update are counted, and their times summed.

#include <memory>

#include "het_tf/core/base/trace_log.h"
#include "het_tf/core/store/local_store.h"
#include "tests/testing/engine_step.h"
#include "tests/testing/lazy_transport.h"
#include "tests/testing/table_specs.h"

namespace het {
namespace {

uint64_t CountOf(const TraceLog& log, TraceKind kind) {
  uint64_t count = 0;
  for (const auto& of_bucket : log.total(kind).counts) count += of_bucket;
  return count;
}

TEST(TraceTest, PhasesOfALookupAndAnUpdateAreCounted) {
  LocalService service(2, 1, [] { return 0; });
  Engine engine("", 1, std::make_unique<LocalStore>(&service),
                std::make_unique<testing::LazyTransport>(&service), ClientConfig());
  TableOptions options = testing::Cached(100, CacheConfig().pull_bound);
  options.cache->push_bound = 0;
  ASSERT_TRUE(engine.tables().Create(testing::NewSpec("t", 2, "row_wise_adagrad"), options).ok());
  testing::StepOf step(&engine, {{"t", {3, 4, 3, 5}}});
  const TraceLog& log = *engine.trace();
  ASSERT_TRUE(step.Lookup(true).ok());
  for (const auto kind : {TraceKind::kLookup, TraceKind::kCopy}) EXPECT_EQ(CountOf(log, kind), 1u);
  for (const auto kind : {TraceKind::kPlan, TraceKind::kSend, TraceKind::kWait, TraceKind::kAnswers}) {
    EXPECT_GE(CountOf(log, kind), 1u) << TraceKindName(kind);
  }
  EXPECT_EQ(CountOf(log, TraceKind::kUpdate), 0u);

  const uint64_t sent = CountOf(log, TraceKind::kSend), waited = CountOf(log, TraceKind::kWait);
  ASSERT_TRUE(step.Apply(step.rows).ok());
  EXPECT_EQ(CountOf(log, TraceKind::kUpdate), 2u) << "the gradient, and its apply";
  for (const auto kind : {TraceKind::kSum, TraceKind::kTick, TraceKind::kPush}) {
    EXPECT_EQ(CountOf(log, kind), 1u) << TraceKindName(kind);
  }
  EXPECT_EQ(CountOf(log, TraceKind::kSend), sent + 1);
  EXPECT_GE(CountOf(log, TraceKind::kWait), waited + 1);
  EXPECT_EQ(CountOf(log, TraceKind::kLookup), 1u);
}

TEST(TraceTest, TotalsCountPhasesByTheirLength) {
  TraceLog log;
  const int64_t us = 1000, longest = int64_t{1} << 40;  // 18 minutes
  for (const int64_t length : {int64_t{0}, us, us + 1, 4 * us, 4 * us + 1, longest}) {
    log.Add(TraceKind::kPush, length);
  }
  const TraceLog::Total& total = log.total(TraceKind::kPush);
  EXPECT_EQ(total.counts[0], 2u) << "at most a microsecond";
  EXPECT_EQ(total.counts[1], 2u) << "more than one, at most four";
  EXPECT_EQ(total.counts[2], 1u);
  EXPECT_EQ(total.counts[TraceLog::Total::kBuckets], 1u);
  EXPECT_EQ(total.nanoseconds, static_cast<uint64_t>(us + us + 1 + 4 * us + 4 * us + 1 + longest));
  const TraceScope nowhere(nullptr, TraceKind::kPlan);
  EXPECT_EQ(CountOf(log, TraceKind::kPlan), 0u);
}

}  // namespace
}  // namespace het
