// The executor: what kernels are written with.
//
// A *tile* is a group of kWidth lanes that works on one item (a key, a bucket) together. A kernel is a struct
// of arguments with
//
//   template <typename Tile> HET_DEV void operator()(const Tile& tile, uint64_t item) const;
//
// and Launch<kWidth>(context, "name", items, kernel) runs it for every item in [0, items), in any order and
// at the same time. All lanes of a tile run the body; work is shared out by:
//
//   tile.ForEach(n, f)      f(i) for i < n, each on one lane
//   tile.Once(f)            f() on one lane
//   tile.One(f)             the same, and all lanes get what f returned
//   tile.Any(n, f)          is f(i) true for any i < n? For all lanes
//   tile.Sum8(f)            the sum of f(0) .. f(7), which are float, in the order of core's mean square:
//                           ((0+4) + (2+6)) + ((1+5) + (3+7)). For all lanes
//   tile.Sync()             what lanes of the tile wrote before it, all of them see after it
//   tile.Match32(d, digest) bit i: d[i] == digest; 32 bytes, aligned to 32
//   tile.ArgMin32(mask, f)  the i, of the bits of mask, with the smallest f(i), which has <;
//                           of equal ones the smallest i. mask != 0
//   tile.Copy(to, from, n)  n floats, 16 bytes at a time where both are aligned
//   tile.Fill(to, value, n)
//   tile.Append(counter)    counter += 1 for this lane, and what it was before; inside Once and ForEach
//
// ForEach, Once, Copy and Fill do not wait for other lanes. Lambdas capture by reference; variables outside
// of them are the same in all lanes when they were computed outside or come from One, Any, Match32 or
// ArgMin32. A branch around any of these must go the same way in all lanes.
//
// Between tiles there are atomics alone, all relaxed; a later launch sees everything of an earlier one:
//
//   AtomicLoad(p)  AtomicStore(p, v)  AtomicAdd(p, v)  AtomicExchange(p, v)  AtomicCas(p, expected, v)
//   AtomicMin(p, v)  AtomicMax(p, v)  AtomicOr(p, v)
//                                                      uint32_t and uint64_t; they return the old value
//
//   OldLoad(p)  what was there at some time since the launch: for what all of the device reads, and one place
//   of
//               memory cannot give to all of it
//
// (AtomicLoad and AtomicStore are for int64_t and float too.) Whatever two tiles may reach in one launch, and
// one of them writes, goes through these: ThreadSanitizer checks it with the host executor on several threads
// (HET_DEV_HOST_THREADS).
#pragma once

#ifdef __CUDACC__
#include "het_tf/kernels/cuda/cuda_executor.cuh"
#else
#include "tests/cpp/device/host/executor.h"
#endif
