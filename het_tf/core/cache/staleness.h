// The bounds that `staleness` stands for: HET's dial, spent where it costs no accuracy.
//
//   s = 0      every read is checked, every write is sent and waited for: N workers equal one process
//   N = 1      HET's bounds: nobody misses what one worker holds back
//   s > 0      a copy of a row may lack one tick for every kEvery of the row's age, at most s ticks. All
//              workers together may hold back about as much: each a share, which falls with their number
//
// The share: of a row that every worker ticks at every step, a worker pushes one in push + 1 steps and pulls
// one in pull / (N - 1), and a read misses about 0.3 (N - 1) push + pull / 2 ticks. At equal lag both
// together are fewest where pull is 0.775 (N - 1) (push + 1).
//
// That is for AdaGrad and FTRL, whose steps shrink from a row's first ones on. Where they shrink later
// (Optimizer::decay_steps; 20 by default, infinite with Adam), these bounds hold once a row's steps are a
// small share of its first. Until then nothing is held back, and a copy may lack kMostEarly ticks
// (docs/adr/core.md, 46).
#pragma once

#include "het_tf/core/wire/bound.h"

namespace het {

struct StalenessBounds {
  Bound pull;
  Bound push;

  // `staleness`: s, or kUnbounded. `workers`: N, at least 1.
  static StalenessBounds Of(double decay_steps, int64_t staleness, uint32_t workers);
};

}  // namespace het
