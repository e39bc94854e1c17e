// TraceLog: the phases of a lookup and an update, with a store that answers when the test says so.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "het_tf/core/base/trace_log.h"
#include "het_tf/core/engine/engine.h"
#include "het_tf/core/store/local_store.h"
#include "het_tf/core/store/local_transport.h"
#include "tests/testing/keep_and_apply.h"
#include "tests/testing/table_specs.h"

namespace het {
namespace {

using Entry = TraceLog::Entry;

// Holds answers back between two commands.
class LateTransport : public LocalTransport {
 public:
  using LocalTransport::LocalTransport;

  bool Poll(double seconds, std::vector<Event>* events) override {
    std::unique_lock<std::mutex> lock(mutex_);
    if (late_ && seconds == 0) return false;
    if (late_) {
      waiting_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return !late_; });
      waiting_ = false;
    }
    return LocalTransport::Poll(seconds, events);
  }
  void Hold() {
    const std::lock_guard<std::mutex> lock(mutex_);
    late_ = true;
  }
  // Waits until a call waits for answers. Returns a moment in that wait.
  int64_t LetGo() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return waiting_; });
    const int64_t moment = TraceLog::Now();
    late_ = false;
    changed_.notify_all();
    return moment;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool late_ = false;
  bool waiting_ = false;
};

// A cached table with 2 floats a row, whose updates are sent and applied at the end of each step.
class TraceTest : public ::testing::Test {
 protected:
  TraceTest() {
    auto transport = std::make_unique<LateTransport>(&service_);
    transport_ = transport.get();
    engine_ = std::make_unique<Engine>("", 1, std::make_unique<LocalStore>(&service_), std::move(transport),
                                       ClientConfig());
    TableOptions options;
    options.cache = CacheConfig();
    options.cache->capacity = 100;
    options.cache->push_bound = 0;
    EXPECT_TRUE(engine_->tables().Create(testing::NewSpec("t", 2, "row_wise_adagrad"), options).ok());
    table_ = engine_->tables().Find("t").value();
  }
  BatchCall call() const { return {Span<const TablePtr>(&table_, 1), Span<const FeatureIds>(&feature_, 1)}; }
  void Lookup() {
    float* const out[] = {rows_};
    const Status status = engine_->steps().Lookup(call(), Span<float* const>(out, 1), &token_);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  void Apply() {
    const float* const gradients[] = {rows_};
    const float rate = 0.1f;
    ApplyArgs args;
    args.token = token_;
    args.gradients = Span<const float* const>(gradients, 1);
    args.learning_rates = Span<const float>(&rate, 1);
    const Status status = testing::KeepAndApply(&engine_->steps(), call(), args);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  // The log of a call that waits for its answer, and a moment in that wait.
  std::vector<Entry> LateAnswer(const std::function<void()>& run, int64_t* moment) {
    transport_->Hold();
    engine_->trace()->Begin();
    std::thread runs(run);
    *moment = transport_->LetGo();
    runs.join();
    const TraceLog::Entries entries = engine_->trace()->End();
    EXPECT_EQ(entries.left_out, 0u);
    return {entries.kept.begin(), entries.kept.end()};
  }
  static std::vector<Entry> Of(const std::vector<Entry>& entries, TraceKind kind) {
    std::vector<Entry> found;
    std::copy_if(entries.begin(), entries.end(), std::back_inserter(found),
                 [&](const Entry& entry) { return entry.kind == kind; });
    return found;
  }
  // Every call has an entry, and one of them contains each other entry; only a wait contains the moment.
  static void ExpectWait(const std::vector<Entry>& entries, TraceKind of_call, size_t count, int64_t moment) {
    const auto calls = Of(entries, of_call);
    ASSERT_EQ(calls.size(), count);
    size_t waits = 0;
    for (const Entry& entry : entries) {
      EXPECT_EQ(entry.thread, calls[0].thread);
      EXPECT_TRUE(std::any_of(calls.begin(), calls.end(), [&](const Entry& call) {
        return call.begin <= entry.begin && entry.begin <= entry.end && entry.end <= call.end;
      })) << TraceKindName(entry.kind);
      if (entry.kind == of_call || entry.begin > moment || entry.end < moment) continue;
      EXPECT_EQ(entry.kind, TraceKind::kWait) << TraceKindName(entry.kind);
      ++waits;
    }
    EXPECT_EQ(waits, 1u);
  }

  LocalService service_{2, 1, [] { return 0; }};
  LateTransport* transport_ = nullptr;
  std::unique_ptr<Engine> engine_;
  TablePtr table_;
  const std::vector<int64_t> ids_ = {3, 4, 3, 5};
  const FeatureIds feature_{0, Span<const int64_t>(ids_.data(), ids_.size()), std::nullopt};
  float rows_[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  uint64_t token_ = 0;
};

TEST_F(TraceTest, LateAnswerIsAWaitOfItsCall) {
  int64_t moment = 0;
  auto entries = LateAnswer([this] { Lookup(); }, &moment);
  ExpectWait(entries, TraceKind::kLookup, 1, moment);
  const auto plans = Of(entries, TraceKind::kPlan), answers = Of(entries, TraceKind::kAnswers),
             copies = Of(entries, TraceKind::kCopy);
  ASSERT_TRUE(!plans.empty() && !answers.empty() && copies.size() == 1);
  for (const Entry& plan : plans) EXPECT_LE(plan.end, moment);
  EXPECT_LE(Of(entries, TraceKind::kSend).at(0).end, moment);
  for (const Entry& answer : answers) EXPECT_TRUE(answer.begin >= moment && answer.end <= copies[0].begin);

  entries = LateAnswer([this] { Apply(); }, &moment);
  ExpectWait(entries, TraceKind::kUpdate, 2, moment);  // the gradient, and its apply
  std::vector<Entry> in_order;
  for (TraceKind kind : {TraceKind::kSum, TraceKind::kTick, TraceKind::kPush, TraceKind::kSend}) {
    const auto found = Of(entries, kind);
    ASSERT_EQ(found.size(), 1u) << TraceKindName(kind);
    EXPECT_TRUE(in_order.empty() || in_order.back().end <= found[0].begin) << TraceKindName(kind);
    in_order.push_back(found[0]);
  }
  EXPECT_LE(in_order.back().end, moment);
}

TEST_F(TraceTest, NothingIsLoggedUnlessItIsOn) {
  const auto train = [this] {
    Lookup();
    Apply();
  };
  train();
  EXPECT_FALSE(engine_->trace()->on());
  EXPECT_TRUE(engine_->trace()->End().kept.empty());
  engine_->trace()->Begin();
  train();
  EXPECT_FALSE(engine_->trace()->End().kept.empty());
  train();
  const TraceLog::Entries entries = engine_->trace()->End();
  EXPECT_TRUE(entries.kept.empty());
  EXPECT_EQ(entries.kept.capacity(), 0u);
}

TEST_F(TraceTest, BeginClearsTheLogWhichIsBounded) {
  TraceLog log;
  log.Begin();
  log.Add(TraceKind::kPlan, 1, 2, /*keep=*/true);
  log.Begin();
  for (size_t i = 0; i < TraceLog::kMost + 3; ++i) log.Add(TraceKind::kPlan, 1, 2, /*keep=*/true);
  const TraceLog::Entries entries = log.End();
  EXPECT_EQ(entries.kept.size(), TraceLog::kMost);
  EXPECT_EQ(entries.left_out, 3u);
  // A scope counts if the log is on at both of its ends.
  {
    const TraceScope before(&log, TraceKind::kPlan), nowhere(nullptr, TraceKind::kPlan);
    log.Begin();
  }
  EXPECT_TRUE(log.End().kept.empty());
  log.Begin();
  {
    const TraceScope after(&log, TraceKind::kPlan);
    EXPECT_TRUE(log.End().kept.empty());
  }
  EXPECT_TRUE(log.End().kept.empty());
}

TEST_F(TraceTest, TotalsCountPhasesByTheirLengthAlsoWhileTheLogIsOff) {
  TraceLog log;
  const int64_t us = 1000, longest = int64_t{1} << 40;  // 18 minutes
  for (const int64_t length : {-5 * us, int64_t{0}, us, us + 1, 4 * us, 4 * us + 1, longest}) {
    log.Add(TraceKind::kPush, 7, 7 + length, /*keep=*/false);
  }
  const TraceLog::Total& total = log.total(TraceKind::kPush);
  EXPECT_EQ(total.counts[0], 3u) << "at most a microsecond; a clock that was set back counts as none";
  EXPECT_EQ(total.counts[1], 2u) << "more than one, at most four";
  EXPECT_EQ(total.counts[2], 1u);
  EXPECT_EQ(total.counts[TraceLog::Total::kBuckets], 1u);
  EXPECT_EQ(total.nanoseconds, static_cast<uint64_t>(us + us + 1 + 4 * us + 4 * us + 1 + longest));
  EXPECT_EQ(log.total(TraceKind::kPlan).nanoseconds, 0u);
  EXPECT_TRUE(log.End().kept.empty());
}

TEST_F(TraceTest, IsTurnedOnAndOffWhileOthersTrain) {
  std::thread trains([this] {
    for (int i = 0; i < 200; ++i) {
      Lookup();
      Apply();
    }
  });
  for (int i = 0; i < 50; ++i) {
    engine_->trace()->Begin();
    for (const Entry& entry : engine_->trace()->End().kept) EXPECT_LE(entry.begin, entry.end);
  }
  trains.join();
}

}  // namespace
}  // namespace het
