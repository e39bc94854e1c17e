#include "het_tf/core/cache/check_choice.h"

#include <gtest/gtest.h>

namespace het {
namespace {

// What each lookup sees.
struct Stream {
  const char* name;
  int trusted;
  int moved;  // fetched, since they were named
  int questions;
  int left;  // rows, in each question
  int named;
  bool told;  // in the end
};

const Stream kStreams[] = {
    {"a cache that is hit", 1000, 50, 64, 5, 100, true},
    {"one that is never hit", 0, 0, 64, 20, 0, false},
    {"rows that move often, and are used", 400, 600, 64, 5, 600, true},
    {"rows that move often, in vain", 100, 50, 64, 5, 1000, false},
    {"few rows of many partitions", 10, 2, 20, 1, 3, false},
    {"few rows of one partition", 10, 2, 1, 1, 3, true},
    {"nothing at all", 0, 0, 0, 0, 0, true},
};

void Lookup(const Stream& stream, CheckChoice* choice) {
  choice->OnLookup();
  if (!choice->told()) return;
  for (int i = 0; i < stream.trusted; ++i) choice->Trusted();
  for (int i = 0; i < stream.moved; ++i) choice->Refetched();
  for (int i = 0; i < stream.questions; ++i) choice->Asked(static_cast<size_t>(stream.left));
  choice->Named(static_cast<size_t>(stream.named));
}

// In how many of so many lookups the table is told.
int Told(const Stream& stream, CheckChoice* choice, uint32_t lookups) {
  int told = 0;
  for (uint32_t i = 0; i < lookups; ++i) {
    Lookup(stream, choice);
    told += choice->told();
  }
  return told;
}

TEST(CheckChoice, TakesWhatCostsLess) {
  for (const Stream& stream : kStreams) {
    CheckChoice choice;
    EXPECT_EQ(Told(stream, &choice, CheckChoice::kWindow), CheckChoice::kWindow) << stream.name;
    Lookup(stream, &choice);
    EXPECT_EQ(choice.told(), stream.told) << stream.name;
  }
}

TEST(CheckChoice, TriesAgainEverMoreRarely) {
  CheckChoice choice;
  const Stream& bad = kStreams[1];
  constexpr int kLookups = 100'000;
  EXPECT_LT(Told(bad, &choice, kLookups), kLookups / 100);
  EXPECT_GT(Told(bad, &choice, kLookups), 0);
  Told(kStreams[0], &choice, CheckChoice::kLongestPause + CheckChoice::kWindow);
  EXPECT_TRUE(choice.told()) << "the stream has changed";
  Told(bad, &choice, CheckChoice::kWindow);
  EXPECT_GT(Told(bad, &choice, 2 * CheckChoice::kFirstPause), 0) << "the pauses begin short again";
}

}  // namespace
}  // namespace het
