// The allowed staleness of a copy of a row: a number of ticks, which may follow the row's age.
//
// A row's age is the number of its ticks. With an optimizer whose steps shrink with a row's age, as in
// Adagrad's family, a tick of an old row changes little and a tick of a young one much. So staleness costs
// accuracy only in young rows (docs/adr/core.md, 46), and a bound that grows with the age spends
// as many bytes as a bound for all rows at a fraction of the loss.
//
//   Bound{30}               30 ticks of any row: HET's bound
//   Bound{30, 10}           a tenth of the row's age, at most 30 ticks: 0 below an age of 10, 30 from 300 on
//   Bound{30, 10, 3, 200}   the same, but at most 3 ticks below an age of 200
#pragma once

#include <algorithm>
#include <cstdint>

#include "het_tf/core/row/row_store.h"
#include "het_tf/core/wire/ids.h"

namespace het {

struct Bound {
  int64_t most = kUnbounded;
  uint32_t every = 0;  // 0: `most` for all rows; else a row's age / every, at most `most`
  uint32_t early = 0;  // with `every`: the most below an age of `from`
  uint32_t from = 0;

  Bound() = default;
  Bound(int64_t most, uint32_t every = 0, uint32_t early = 0,
        uint32_t from = 0)  // NOLINT: a number is a bound
      : most(most), every(every), early(early), from(from) {}
  int64_t Of(Clock clock) const {
    if (every == 0) return most;
    const Clock age = AgeOf(clock);
    return std::min<int64_t>({most, age / every, age < from ? early : most});
  }
  friend bool operator==(const Bound& a, const Bound& b) {
    return a.most == b.most && a.every == b.every && a.early == b.early && a.from == b.from;
  }
  friend bool operator!=(const Bound& a, const Bound& b) { return !(a == b); }
};

}  // namespace het
