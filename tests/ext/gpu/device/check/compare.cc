#include "tests/ext/gpu/device/check/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace het::device_check {
namespace {

template <typename T>
void ExpectEqual(T tested, T reference, const std::string& what) {
  if (tested == reference) return;
  throw Different(what + ": " + std::to_string(tested) + ", the reference has " + std::to_string(reference));
}

std::string Text(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  char text[48];
  std::snprintf(text, sizeof text, "%.9g (%08x)", static_cast<double>(x), bits);
  return text;
}

}  // namespace

void Expect(bool holds, const std::string& what) {
  if (!holds) throw Different(what);
}

bool SameFloat(float a, float b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b));
}

void ExpectSame(const std::vector<float>& tested, const std::vector<float>& reference,
                const std::string& what) {
  ExpectEqual(tested.size(), reference.size(), what + ": floats");
  for (size_t i = 0; i < tested.size(); ++i) {
    if (!SameFloat(tested[i], reference[i])) {
      throw Different(what + ": float " + std::to_string(i) + " is " + Text(tested[i]) +
                      ", the reference has " + Text(reference[i]));
    }
  }
}

void ExpectSameCode(const Reply& tested, const Reply& reference, const std::string& what) {
  if (tested.code == reference.code) {
    Expect(tested.code == HET_DEV_OK || !tested.error.empty(), what + " fails without a message");
    return;
  }
  throw Different(what + " answers " + std::to_string(tested.code) + " (" + tested.error +
                  "), the reference " + std::to_string(reference.code) + " (" + reference.error + ")");
}

void ExpectSameWanted(const Reply& tested, const Reply& reference) {
  const size_t n = std::min(tested.wanted.size(), reference.wanted.size());
  for (size_t i = 0; i < n; ++i) {
    const Wanted &a = tested.wanted[i], &b = reference.wanted[i];
    if (a.use == b.use && a.key == b.key && a.base == b.base) continue;
    throw Different("wanted " + std::to_string(i) + " is use " + std::to_string(a.use) + " key " +
                    std::to_string(a.key) + " base " + std::to_string(a.base) + ", the reference has use " +
                    std::to_string(b.use) + " key " + std::to_string(b.key) + " base " +
                    std::to_string(b.base));
  }
  ExpectEqual(tested.wanted.size(), reference.wanted.size(), "number of wanted keys");
  Expect(tested.reads == reference.reads, "reads differ");
  Expect(tested.hits == reference.hits, "hits differ");
}

void ExpectSameUpdates(const Reply& tested, const Reply& reference, const std::string& what) {
  ExpectEqual(tested.updates.size(), reference.updates.size(), what + ": tables");
  for (size_t t = 0; t < tested.updates.size(); ++t) {
    const Updates &a = tested.updates[t], &b = reference.updates[t];
    const std::string of = what + " of use " + std::to_string(a.use);
    ExpectEqual(a.use, b.use, what + ": use");
    for (size_t i = 0; i < std::min(a.keys.size(), b.keys.size()); ++i) {
      ExpectEqual(a.keys[i], b.keys[i], of + ", key number " + std::to_string(i));
      ExpectEqual(a.ticks[i], b.ticks[i], of + ", ticks of key " + std::to_string(a.keys[i]));
      ExpectEqual(a.clocks[i], b.clocks[i], of + ", clock of key " + std::to_string(a.keys[i]));
    }
    ExpectEqual(a.keys.size(), b.keys.size(), of + ": keys");
    ExpectSame(a.floats, b.floats, of);
  }
  Expect(tested.left == reference.left, what + ": subscribed rows that have left differ");
}

void ExpectSameSums(const Reply& tested, const Reply& reference) {
  ExpectEqual(tested.non_finite, reference.non_finite, "Sum: non_finite");
  ExpectEqual(tested.bad_use, reference.bad_use, "Sum: use of the first sum that is not finite");
  ExpectEqual(tested.bad_key, reference.bad_key, "Sum: key of the first sum that is not finite");
  Expect(tested.active == reference.active, "Sum: active features differ");
  ExpectEqual(tested.uniques, reference.uniques, "Sum: uniques");
  Expect(tested.ticks == reference.ticks, "Sum: ticks of uses differ");
  ExpectEqual(tested.due, reference.due, "Sum: due");
  ExpectEqual(tested.overdue, reference.overdue, "Sum: overdue");
}

void ExpectSameState(const Reply& tested, const Reply& reference, const std::string& table) {
  ExpectEqual(tested.state.capacity, reference.state.capacity, table + ": capacity");
  ExpectEqual(tested.state.rows, reference.state.rows, table + ": rows");
  ExpectEqual(tested.state.dirty, reference.state.dirty, table + ": dirty");
  ExpectEqual(tested.state.invalid, reference.state.invalid, table + ": invalid");
  ExpectEqual(tested.state.subscribed, reference.state.subscribed, table + ": subscribed");
  ExpectEqual(tested.state.inserts, reference.state.inserts, table + ": inserts");
  ExpectEqual(tested.state.evictions, reference.state.evictions, table + ": evictions");
  Expect(tested.state.rows <= tested.state.capacity, table + " has more rows than its capacity");
}

void ExpectSameRow(const Reply& tested, const Reply& reference, const std::string& table, int64_t key) {
  const std::string of = table + ", row of key " + std::to_string(key);
  const HetDevRowState &a = tested.row, &b = reference.row;
  ExpectEqual(a.found, b.found, of + ": found");
  if (!a.found) return;
  ExpectEqual(a.invalid != 0, b.invalid != 0, of + ": invalid");
  ExpectEqual(a.subscribed != 0, b.subscribed != 0, of + ": subscribed");
  ExpectEqual(a.moved != 0, b.moved != 0, of + ": moved");
  if (!a.invalid) ExpectEqual(a.base, b.base, of + ": base");
  ExpectEqual(a.ticks, b.ticks, of + ": ticks");
  ExpectEqual(a.stamp, b.stamp, of + ": stamp");
  ExpectEqual(a.frequency, b.frequency, of + ": frequency");
  ExpectSame(tested.value, reference.value, of);
  ExpectSame(tested.update, reference.update, of + ", its update");
}

}  // namespace het::device_check
