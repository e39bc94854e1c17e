// Work on streams, on the host executor: its streams work late and in any legal order (host/streams.h). The
// operations of a step are counted, launches and page-locked memory fail.
#include "tests/ext/gpu/device/host/streams.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "het_tf/core/wire/layout.h"
#include "tests/ext/gpu/device/library_fixture.h"

namespace het::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DeviceStreamsTest : public LibraryFixture {
 protected:
  void TakeStream(int number) {
    static char names[3];
    stream_ = &names[number % 3];
  }
  HetDevRowState Inspect(int64_t key, std::vector<float>* row = nullptr) {
    HetDevRowState state = {};
    std::vector<float> floats(kDim);
    EXPECT_EQ(HetDevInspect(context_, use_.table, key, stream_, &state, floats.data(), nullptr), HET_DEV_OK)
        << HetDevError();
    if (row != nullptr) *row = floats;
    return state;
  }
  uint64_t CountOperations(const std::function<void()>& call) {
    const uint64_t before = HetDevHostOperations();
    call();
    return HetDevHostOperations() - before;
  }
};

// HetDevTick does not wait, so the next call, on another stream, must come after it.
TEST_F(DeviceStreamsTest, ACallComesAfterTheTickOnAnotherStream) {
  SetBatch({1, 2});
  Lookup();
  Install({1, 2});
  for (uint32_t n = 1; n <= 40; ++n) {
    TakeStream(static_cast<int>(n));
    Sum();
    EXPECT_EQ(Tick(call_), HET_DEV_OK) << HetDevError();
    TakeStream(static_cast<int>(n) + 1);
    std::vector<float> row;
    EXPECT_EQ(Inspect(1, &row).ticks, n);
    EXPECT_EQ(row[0], 1.0f - static_cast<float>(n));
  }
}

// The next call's work waits for the tick, on the device: the host waits once, for its own result.
TEST_F(DeviceStreamsTest, TheHostDoesNotWaitForTheCallBefore) {
  SetBatch({1, 2});
  Lookup();
  Install({1, 2});
  Sum();
  TakeStream(1);
  const uint64_t all = HetDevHostAllWaits(), of_one = HetDevHostWaits(stream_);
  EXPECT_EQ(Tick(call_), HET_DEV_OK) << HetDevError();
  EXPECT_EQ(HetDevHostAllWaits(), all);
  TakeStream(2);
  Lookup();
  EXPECT_EQ(HetDevHostAllWaits(), all + 1);
  TakeStream(1);
  EXPECT_EQ(HetDevHostWaits(stream_), of_one);
}

// Updates that leave with a tick come later, and the host waits only for them.
TEST_F(DeviceStreamsTest, ATickWaitsForNothing) {
  use_.push_bound = 0;
  SetBatch({1, 2});
  Lookup();
  Install({1, 2});
  TakeStream(1);
  for (uint32_t n = 1; n <= 10; ++n) {
    Sum();
    const uint64_t all = HetDevHostAllWaits();
    HetDevExport due = {};
    ASSERT_EQ(HetDevTick(context_, call_, &batch_, stream_, &due), HET_DEV_OK) << HetDevError();
    EXPECT_EQ(HetDevHostAllWaits(), all);
    ASSERT_EQ(HetDevCollect(context_), HET_DEV_OK) << HetDevError();
    EXPECT_EQ(HetDevHostAllWaits(), all + 1);
    ASSERT_EQ(due.n, 1u);
    ASSERT_EQ(due.of->n, 2u);
    EXPECT_EQ(due.of->keys[1], 2);
    EXPECT_EQ(due.of->clocks[1], 5 + n);
    EXPECT_EQ(due.of->updates[0], -1.0f);
    ASSERT_EQ(HetDevCollect(context_), HET_DEV_OK) << HetDevError();
    EXPECT_EQ(HetDevHostAllWaits(), all + 1);
  }
}

// A tick of 65 features reads them from page-locked memory, which the next call
// must not write meanwhile.
TEST_F(DeviceStreamsTest, ACallLeavesThePageLockedMemoryOfATick) {
  constexpr uint32_t kFeatures = 65;
  Keys keys(kFeatures);
  std::iota(keys.begin(), keys.end(), 1);
  const HetDevTableConfig config = SgdTable(4096, kDim);
  HetDevDestroyTable(context_, use_.table);
  ASSERT_EQ(HetDevCreateTable(context_, &config, &use_.table), HET_DEV_OK) << HetDevError();
  SetBatch(keys);
  std::vector<HetDevFeature> all(kFeatures, feature_);
  for (uint32_t f = 0; f < kFeatures; ++f) {
    all[f].n = 1;
    all[f].ids += f;
    all[f].rows += f * kDim;
    all[f].gradients += f * kDim;
  }
  batch_ = {&use_, 1, all.data(), kFeatures};
  Install(Lookup());
  for (uint64_t turn = 0; turn < 20; ++turn) {
    HetDevHostSeed(turn);
    Sum();
    EXPECT_EQ(Tick(call_), HET_DEV_OK) << HetDevError();
    const Keys absent(20000, 7777);
    uint64_t discarded = 0;
    EXPECT_EQ(HetDevForgetKeys(context_, use_.table, HET_DEV_DROP, absent.data(), absent.size(), stream_,
                               &discarded),
              HET_DEV_OK);
    std::vector<float> row;
    EXPECT_EQ(Inspect(1, &row).ticks, turn + 1);
    EXPECT_EQ(row[0], -static_cast<float>(turn)) << "in turn " << turn;
  }
}

// TensorFlow has queued its model on the stream. A lookup comes behind the tick before, and not behind the
// model, whether or not rows of lookups before it are still to be copied there.
TEST_F(DeviceStreamsTest, ALookupDoesNotWaitForTheModel) {
  SetBatch({1, 2});
  Lookup();
  Install({1, 2});
  Sum();
  TakeStream(1);
  EXPECT_EQ(Tick(call_), HET_DEV_OK) << HetDevError();
  SetBatch({1, 2, 3});
  for (int turn = 0; turn < 8; ++turn) Lookup();  // memory is there
  std::vector<HetDevCall*> calls;
  for (int turn = 0; turn < 3; ++turn) {
    const uint64_t all = HetDevHostAllWaits(), of_stream = HetDevHostWaits(stream_);
    EXPECT_EQ(Lookup(), Keys{3});
    EXPECT_EQ(HetDevHostWaits(stream_), of_stream);
    EXPECT_EQ(HetDevHostAllWaits(), all + 2) << "for counts, and for the list of wanted rows";
    if (turn == 0) HetDevHostHold(stream_, 1);
    calls.push_back(call_);
    ASSERT_EQ(HetDevCreateCall(context_, &call_), HET_DEV_OK);
  }
  HetDevHostHold(stream_, 0);
  ASSERT_EQ(HetDevSynchronize(context_, stream_), HET_DEV_OK) << HetDevError();
  EXPECT_THAT(rows_->Read(), ElementsAre(0, 0.5, 1, 1.5, -999, -999));
  for (HetDevCall* call : calls) HetDevDestroyCall(context_, call);
}

// A lookup on another stream comes after the last one has halved the frequencies, which both change.
TEST_F(DeviceStreamsTest, ALookupComesAfterWhatHasChangedRows) {
  Keys keys(40);
  std::iota(keys.begin(), keys.end(), 1);
  const auto frequency = [&](uint64_t seed, bool wait) {
    TearDown();
    SetUp();
    HetDevHostSeed(seed);
    SetBatch(keys);
    Install(Lookup());
    for (int turn = 0; turn < 40; ++turn) {
      TakeStream(turn);
      EXPECT_THAT(Lookup(), IsEmpty());
      if (wait) HetDevSynchronize(context_, stream_);
    }
    return Inspect(1).frequency;
  };
  const uint32_t wanted = frequency(0, true);
  EXPECT_LT(wanted, 20u);
  for (uint64_t seed = 0; seed < 20; ++seed) EXPECT_EQ(frequency(seed, false), wanted);
}

// Rows of two lookups, on two streams, are copied before a call changes them on a third.
TEST_F(DeviceStreamsTest, ACallComesAfterTheRowsOfTwoLookups) {
  SetBatch({1, 2});
  Install(Lookup());
  HetDevCall* first = nullptr;
  ASSERT_EQ(HetDevCreateCall(context_, &first), HET_DEV_OK);
  TakeStream(1);
  HetDevHostHold(stream_, 1);
  std::swap(call_, first);
  Lookup();
  std::swap(call_, first);
  TakeStream(2);
  Lookup();
  EXPECT_DEATH(Install({1, 2}), "waits for work that is held back");
  TakeStream(1);
  HetDevHostHold(stream_, 0);
  HetDevDestroyCall(context_, first);
}

// A lookup while rows of the one before are still to be copied: from the places that its call has kept, which
// the same call would write, and by features in scratch memory: 65 do not fit into a kernel's parameters.
TEST_F(DeviceStreamsTest, ALookupLeavesTheRowsOfTheOneBefore) {
  Keys keys(130);
  std::iota(keys.begin(), keys.end(), 1);
  const HetDevTableConfig config = SgdTable(4096, kDim);
  HetDevDestroyTable(context_, use_.table);
  ASSERT_EQ(HetDevCreateTable(context_, &config, &use_.table), HET_DEV_OK) << HetDevError();
  SetBatch(keys);
  Install(Lookup());
  HetDevCall* other = nullptr;
  ASSERT_EQ(HetDevCreateCall(context_, &other), HET_DEV_OK);
  for (uint64_t turn = 0; turn < 20; ++turn) {
    HetDevHostSeed(turn);
    const uint32_t features = turn % 2 == 0 ? 1 : 65;
    const auto look = [&](int stream) {
      TakeStream(stream);
      std::vector<HetDevFeature> all(features, feature_);
      for (uint32_t f = 0; f < features; ++f) {
        all[f].n = keys.size() / features;
        all[f].ids += f * all[f].n;
        all[f].rows += f * all[f].n * kDim;
      }
      batch_ = {&use_, 1, all.data(), features};
      EXPECT_THAT(Lookup(), IsEmpty());
    };
    SetBatch(keys);
    const auto rows = std::exchange(rows_, nullptr);
    feature_.rows = rows->get();
    const DeviceArray<float> others(context_, std::vector<float>(keys.size() * kDim));
    look(1);
    ids_ = Keys(keys.rbegin(), keys.rend());
    feature_.ids = ids_.data();
    feature_.rows = others.get();
    if (features > 1) std::swap(call_, other);
    look(2);
    const std::vector<float> read = rows->Read();
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(read[i * kDim], static_cast<float>(keys[i])) << "in turn " << turn;
    }
  }
  HetDevDestroyCall(context_, other);
}

// A call that fails after it has waited once leaves work behind, which the next call, on another stream, must
// not meet: HetDevInstall reads its plan and then needs memory for victims.
TEST_F(DeviceStreamsTest, ACallComesAfterTheWorkOfOneThatFailed) {
  Keys old(24), others(640), many(20000);
  std::iota(old.begin(), old.end(), 1);
  std::iota(others.begin(), others.end(), 10001);
  std::iota(many.begin(), many.end(), 100001);
  int failed = 0;
  for (uint64_t turn = 0; turn < 30; ++turn) {
    TearDown();
    SetUp();
    HetDevHostSeed(turn);
    SetBatch(many);
    Lookup();  // takes all memory that it needs later
    SetBatch(old);
    Lookup();
    EXPECT_EQ(TryInstall({old}), HET_DEV_OK) << HetDevError();
    Sum();
    EXPECT_EQ(Tick(call_), HET_DEV_OK) << HetDevError();
    HetDevResetCall(context_, call_);
    use_.stamp = use_.pinned_from = 2;
    SetBatch(others);
    Lookup();
    TakeStream(0);
    HetDevFailAllocation(context_, 1 + turn % 3);
    failed += TryInstall({others}) != HET_DEV_OK;
    HetDevFailAllocation(context_, 0);
    TakeStream(1);
    feature_.n = many.size();  // its scratch memory is where the install's was
    feature_.ids = many.data();
    feature_.rows = nullptr;
    Keys wanted = Lookup();
    std::sort(wanted.begin(), wanted.end());
    EXPECT_EQ(wanted, many) << "in turn " << turn;
    EXPECT_EQ(std::count(wanted_.use, wanted_.use + wanted_.n, 0u), 20000) << "in turn " << turn;
  }
  EXPECT_EQ(failed, 20) << "the call's rows, and their floats";
}

TEST_F(DeviceStreamsTest, VictimsLeaveWithTheirUpdates) {
  Keys old(24), others(100);
  std::iota(old.begin(), old.end(), 1);
  std::iota(others.begin(), others.end(), 1001);
  SetBatch(old);
  Lookup();
  Install(old);
  Sum();
  EXPECT_EQ(Tick(call_), HET_DEV_OK) << HetDevError();
  HetDevResetCall(context_, call_);
  use_.stamp = use_.pinned_from = 2;
  SetBatch(others);
  Lookup();
  Install(others);
  ASSERT_EQ(victims_.n, 1u);
  ASSERT_EQ(victims_.of->n, old.size());
  for (uint64_t i = 0; i < old.size(); ++i) {
    EXPECT_EQ(victims_.of->keys[i], old[i]);
    EXPECT_EQ(victims_.of->clocks[i], 6);
    EXPECT_EQ(victims_.of->ticks[i], 1u);
    EXPECT_EQ(victims_.of->updates[kDim * i], -1.0f);
  }
}

// Each call with its n-th launch failing, for every n: HET_DEV_FAILED names the kernel, and no row has
// changed.
TEST_F(DeviceStreamsTest, LaunchesThatFailNameTheirKernelAndChangeNoRow) {
  SetBatch({1, 2});
  HetDevSummed summed;
  HetDevExport due;
  const std::pair<const char*, std::function<int()>> calls[] = {
      {"lookup", [&] { return TryLookup(); }},
      {"install",
       [&] {
         return TryInstall({{1, 2}});
       }},
      {"gather", [&] { return HetDevGather(context_, call_, &batch_, stream_); }},
      {"sum", [&] { return HetDevSum(context_, call_, &batch_, 1, nullptr, stream_, &wanted_, &summed); }},
      {"tick", [&] { return HetDevTick(context_, call_, &batch_, stream_, &due); }},
  };
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    const HetDevRowState before = Inspect(1);
    if (std::string(name) == "tick") Sum();  // Inspect was another call
    for (uint64_t n = 1;; ++n) {
      HetDevHostFailLaunch(n);
      const int code = call();
      HetDevHostFailLaunch(0);
      if (code == HET_DEV_OK) {
        EXPECT_GT(n, 1u) << "nothing was launched";
        break;
      }
      EXPECT_EQ(code, HET_DEV_FAILED);
      EXPECT_THAT(HetDevError(), AllOf(HasSubstr("launching kernel '"), HasSubstr("HetDevHostFailLaunch")));
      const HetDevRowState after = Inspect(1);
      EXPECT_EQ(after.found, before.found);
      EXPECT_EQ(after.ticks, before.ticks);
      EXPECT_EQ(after.base, before.base);
      if (std::string(name) == "tick") Sum();
    }
  }
  EXPECT_EQ(Inspect(1).ticks, 1u);
}

// A kernel of somebody else has failed: every call says that it was so before, and changes no row.
TEST_F(DeviceStreamsTest, ADeviceThatSomebodyElseHasBroken) {
  SetBatch({1, 2});
  Lookup();
  Install({1, 2});
  Lookup();
  Sum();
  const HetDevRowState before = Inspect(1);
  HetDevSummed summed;
  HetDevExport due;
  HetDevTableState state;
  uint64_t discarded = 0;
  const int64_t key = 1;
  const std::function<int()> calls[] = {
      [&] { return TryLookup(); },
      [&] {
        return TryInstall({{1, 2}}, 9);
      },
      [&] { return HetDevGather(context_, call_, &batch_, stream_); },
      [&] { return HetDevSum(context_, call_, &batch_, 1, nullptr, stream_, &wanted_, &summed); },
      [&] { return HetDevTick(context_, call_, &batch_, stream_, &due); },
      [&] { return HetDevTake(context_, use_.table, 10, stream_, &due); },
      [&] { return HetDevForget(context_, use_.table, HET_DEV_DROP, nullptr, stream_, &discarded); },
      [&] { return HetDevForgetKeys(context_, use_.table, HET_DEV_DROP, &key, 1, stream_, &discarded); },
      [&] { return HetDevState(context_, use_.table, stream_, &state); },
  };
  for (const auto& call : calls) {
    Sum();
    HetDevHostBreak(1);
    EXPECT_EQ(call(), HET_DEV_FAILED);
    HetDevHostBreak(0);
    EXPECT_THAT(HetDevError(), AllOf(HasSubstr("had failed before this call began, in other work"),
                                     HasSubstr("HetDevHostBreak: an illegal memory access")));
  }
  const HetDevRowState after = Inspect(1);
  EXPECT_EQ(after.found, before.found);
  EXPECT_EQ(after.ticks, before.ticks);
  EXPECT_EQ(after.base, before.base);
  Sum();
  EXPECT_EQ(Tick(call_), HET_DEV_OK) << HetDevError();
  HetDevHostBreak(1);
  EXPECT_EQ(TryLookup(), HET_DEV_FAILED);
  HetDevHostBreak(0);
  EXPECT_THAT(HetDevError(), HasSubstr("at or before kernel 'ticks', or in other work"))
      << "it may still run";
}

TEST_F(DeviceStreamsTest, PageLockedMemoryThatEndsChangesNoRow) {
  void* staged = nullptr;
  HetDevFailAllocation(context_, 1);
  EXPECT_EQ(HetDevStage(context_, 1000, &staged), HET_DEV_OUT_OF_HOST_MEMORY);
  EXPECT_THAT(HetDevError(), HasSubstr("page-locked host memory for 1250 bytes"));
  EXPECT_EQ(HetDevStage(context_, 1000, &staged), HET_DEV_OK) << HetDevError();
  Keys many(200000);
  std::iota(many.begin(), many.end(), 0);
  bool host = false, device = false;
  int code = HET_DEV_INVALID;
  for (uint64_t n = 1; code != HET_DEV_OK; ++n) {
    TearDown();
    SetUp();
    SetBatch(many);
    HetDevFailAllocation(context_, n);
    code = TryLookup();
    HetDevFailAllocation(context_, 0);
    EXPECT_THAT(code, AnyOf(int{HET_DEV_OK}, int{HET_DEV_OUT_OF_MEMORY}, int{HET_DEV_OUT_OF_HOST_MEMORY}));
    device |= code == HET_DEV_OUT_OF_MEMORY;
    host |= code == HET_DEV_OUT_OF_HOST_MEMORY;
    EXPECT_EQ(RowsHere(), 0u);
    EXPECT_EQ(Lookup().size(), many.size());
  }
  EXPECT_TRUE(host);
  EXPECT_TRUE(device);
}

// Kernels, copies and fills of a step of 26 features, all hits and nothing due; a sort is 10 of them. On a
// GPU each costs 2.75 us, whatever it does.
TEST_F(DeviceStreamsTest, OperationsOfAStep) {
  HetDevDestroyTable(context_, use_.table);
  HetDevTableConfig config = SgdTable(1 << 17, kDim);
  ASSERT_EQ(HetDevCreateTable(context_, &config, &use_.table), HET_DEV_OK) << HetDevError();
  constexpr uint32_t kFeatures = 26;
  Keys keys(kFeatures * 128);
  std::iota(keys.begin(), keys.end(), 0);
  SetBatch(keys);
  std::vector<HetDevFeature> features;
  for (uint32_t f = 0; f < kFeatures; ++f) {
    HetDevFeature feature = feature_;
    feature.n = 128;
    feature.ids += f * 128;
    feature.rows += f * 128 * kDim;
    feature.gradients += f * 128 * kDim;
    features.push_back(feature);
  }
  batch_ = {&use_, 1, features.data(), kFeatures};
  Keys wanted = Lookup();
  const std::vector<int64_t> bases(wanted.size(), 5);
  const std::vector<uint8_t> admit(wanted.size(), 1);
  const std::vector<float> rows(wanted.size() * kDim, 1.0f);
  const auto install = [&](size_t n) {
    const HetDevAnswer answer = {0, n, wanted.data(), bases.data(), admit.data(), rows.data(), nullptr};
    EXPECT_EQ(HetDevInstall(context_, call_, &batch_, &answer, 1, stream_, &victims_), HET_DEV_OK);
  };
  install(10);  // makes a list of numbers
  EXPECT_EQ(CountOperations([&] { install(100); }), 7u);
  EXPECT_EQ(CountOperations([&] { install(wanted.size()); }), 14u);
  EXPECT_EQ(CountOperations([&] { HetDevGather(context_, call_, &batch_, stream_); }), 1u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(CountOperations([&] { EXPECT_THAT(Lookup(), IsEmpty()); }), 2u);
    EXPECT_EQ(CountOperations([&] { Sum(); }), 11u);
    EXPECT_EQ(CountOperations([&] { EXPECT_EQ(Tick(call_), HET_DEV_OK); }), 1u);
  }
  HetDevResetCall(context_, call_);
  EXPECT_EQ(CountOperations([&] { Sum(); }), 14u) << "without a lookup it has to find the rows";
}

// Partitions are copied to the device only if some have answered and some have not.
TEST_F(DeviceStreamsTest, OperationsOfSubscriptions) {
  SetBatch({1, 2, 3});
  Lookup();
  Install({1, 2, 3});
  const Keys keys = {1, 2, 3};
  std::vector<uint8_t> trusted(16, 1);
  const std::vector<uint8_t> subscribed(3, 1);
  const HetDevAnswer confirmed = {0, 3, keys.data(), nullptr, nullptr, nullptr, subscribed.data()};
  EXPECT_EQ(
      CountOperations([&] { HetDevInstall(context_, call_, &batch_, &confirmed, 1, stream_, &victims_); }),
      2u);
  use_.check = 1;
  use_.trusted = trusted.data();
  EXPECT_EQ(CountOperations([&] { EXPECT_THAT(Lookup(), IsEmpty()); }), 2u);
  uint64_t discarded = 0;
  EXPECT_EQ(CountOperations([&] {
              HetDevForgetKeys(context_, use_.table, HET_DEV_MOVED, keys.data(), 2, stream_, &discarded);
            }),
            2u);
  EXPECT_EQ(CountOperations([&] { EXPECT_EQ(Lookup().size(), 2u); }), 5u) << "the lookup, and three lists";
  trusted[Layout(16, 7).OfKey(0, 3)] = 0;
  EXPECT_EQ(CountOperations([&] { EXPECT_EQ(Lookup().size(), 3u); }), 6u);
}

// HetDevSum uses the rows that its lookup has found, as long as they are still there: else it looks again,
// which is two more operations, and wants those that have left.
TEST_F(DeviceStreamsTest, ASumLooksAgainWhenRowsMayHaveMoved) {
  const Keys keys = {1, 2, 3};
  SetBatch(keys);
  Lookup();
  Install(keys);
  ASSERT_EQ(HetDevGather(context_, call_, &batch_, stream_), HET_DEV_OK) << HetDevError();
  const uint64_t kept = CountOperations([&] { Sum(); });
  const auto after = [&](const std::function<void()>& between) {
    Lookup();
    between();
    HetDevSummed summed;
    const uint64_t n = CountOperations([&] {
      ASSERT_EQ(HetDevSum(context_, call_, &batch_, 1, nullptr, stream_, &wanted_, &summed), HET_DEV_OK);
    });
    Keys wanted(wanted_.keys, wanted_.keys + wanted_.n);
    std::sort(wanted.begin(), wanted.end());
    return std::pair(n - kept, wanted);
  };
  uint64_t discarded = 0;
  EXPECT_EQ(after([] {}), std::pair(uint64_t{0}, Keys()));
  EXPECT_EQ(after([&] {
              HetDevForgetKeys(context_, use_.table, HET_DEV_DROP_CLEAN, keys.data(), 0, stream_, &discarded);
            }),
            std::pair(uint64_t{0}, Keys()))
      << "no key";
  EXPECT_EQ(after([&] { TryLookup(); }), std::pair(uint64_t{0}, Keys())) << "the same step again";
  EXPECT_EQ(after([&] { HetDevLookup(context_, call_, &batch_, 0, stream_, &wanted_); }).first, 2u)
      << "a lookup without training does not pin";
  EXPECT_EQ(after([&] {
              HetDevForget(context_, use_.table, HET_DEV_DROP_CLEAN, nullptr, stream_, &discarded);
            }).second,
            keys);
  Install(keys);
  EXPECT_EQ(after([&] {
              HetDevForgetKeys(context_, use_.table, HET_DEV_DROP, &keys[1], 1, stream_, &discarded);
            }).second,
            Keys{2})
      << "three copies of a row";
  Install({2});
  EXPECT_EQ(after([&] {
              HetDevForgetKeys(context_, use_.table, HET_DEV_INVALIDATE, keys.data(), 1, stream_, &discarded);
            }).second,
            Keys{1});
  Install({1});
  // Another step, which no longer pins this one's rows, fills the table.
  EXPECT_EQ(after([&] {
              Keys others(900);
              std::iota(others.begin(), others.end(), 1000);
              HetDevCall* other = nullptr;
              ASSERT_EQ(HetDevCreateCall(context_, &other), HET_DEV_OK);
              std::swap(call_, other);
              use_.stamp = use_.pinned_from = 7;
              TryInstall({others});
              use_.stamp = use_.pinned_from = 1;
              std::swap(call_, other);
              HetDevDestroyCall(context_, other);
            }).second.size(),
            3u);
}

// A row that a lookup did not find, and that another, older step has brought in since, does not have the
// stamp of the later step. Installs that pin only that one may evict it.
TEST_F(DeviceStreamsTest, ARowOfAnOlderStepIsNotKept) {
  HetDevCall* older = nullptr;
  ASSERT_EQ(HetDevCreateCall(context_, &older), HET_DEV_OK);
  SetBatch({1});
  use_.stamp = use_.pinned_from = 5;
  EXPECT_EQ(Lookup(), Keys{1});
  std::swap(call_, older);
  use_.stamp = use_.pinned_from = 4;
  Install({1});
  std::swap(call_, older);
  use_.stamp = use_.pinned_from = 5;
  ASSERT_EQ(HetDevGather(context_, call_, &batch_, stream_), HET_DEV_OK) << HetDevError();
  const uint64_t n = CountOperations([&] { Sum(); });
  HetDevResetCall(context_, call_);
  EXPECT_EQ(CountOperations([&] { Sum(); }), n + 1) << "it looked again as before, and copied the ids";
  HetDevDestroyCall(context_, older);
}

}  // namespace
}  // namespace het::testing
