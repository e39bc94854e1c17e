// The executor: the primitives that kernels are written with.
//
// A *tile* is a group of kWidth lanes that works on one item (a key, a bucket) together. A kernel is a struct
// of arguments with
//
//   template <typename Tile> HET_DEV void operator()(const Tile& tile, uint64_t item) const;
//
// and Launch<kWidth>(context, "name", items, kernel) runs it for every item in [0, items), concurrently and
// in any order. All lanes of a tile run the body and share its work by:
//
//   tile.ForEach(n, f)      f(i) for i < n, each on one lane
//   tile.Once(f)            f() on one lane
//   tile.One(f)             the same, and returns f's result to all lanes
//   tile.Any(n, f)          returns to all lanes whether f(i) is true for any i < n
//   tile.Sum8(f)            returns to all lanes the float sum of f(0) .. f(7), in core's order for mean
//                           squares: ((0+4) + (2+6)) + ((1+5) + (3+7))
//   tile.Sync()             makes the lanes' earlier writes visible to all lanes of the tile
//   tile.Match32(d, digest) bit i: d[i] == digest; 32 bytes, aligned to 32
//   tile.ArgMin32(mask, f)  the i among the bits of mask with the smallest f(i), which has <;
//                           ties give the smallest i. mask != 0
//   tile.Copy(to, from, n)  n floats, 16 bytes at a time if both are aligned
//   tile.CopyRows(to, n, records, stride, rows)
//                           tiles of 32 lanes: n floats to to + lane * n, from records + rows[lane] * stride;
//                           kNoRow: none, kZeros: zeros. `rows` is a Lanes<uint32_t>
//   tile.Append(counter)    counter += 1 for this lane; returns the old value; inside Once and ForEach
//   tile.Last(counter, n)   returns to all lanes of the last of n tiles true, and to the others false. The
//   last one
//                           sees what the others have written, and the counter is 0 again
//   tile.LastOfAll(counter, n)
//                           as Last, quicker if all tiles of the kernel have this counter
//
// A tile of 32 lanes may also have a variable in each lane, Tile::Lanes<T>, which only its lane sees:
//
//   tile.ForLanes(f)        f(lane) on each lane; within, lanes[lane] is the lane's own
//   tile.CountLanes(f)      returns to all lanes the number of lanes for which f(lane) is true
//
//   Match32(d, digest)      as the tile's, on one lane
//
// ForEach, Once and Copy do not wait for other lanes. Lambdas capture by reference. Variables outside
// them are equal in all lanes if they were computed outside or come from One, Any, Match32 or ArgMin32. A
// branch around any of these must go the same way in all lanes.
//
// Tiles communicate only by atomics, all relaxed; a later launch sees all writes of an earlier one:
//
//   AtomicLoad(p)  AtomicStore(p, v)  AtomicAdd(p, v)  AtomicExchange(p, v)  AtomicCas(p, expected, v)
//   AtomicMax(p, v)    uint32_t, and all others also uint64_t; they return the old value
//
//   LoadFresh<V>(p)  V floats (pack.h) that another tile has written, seen by Tile::Last
//   OldLoad(p)  a value since the launch, possibly stale: for data that the whole device reads, which one
//               place in memory cannot serve
//
// (AtomicLoad and AtomicStore also take int64_t and float.) Use these for all data that one tile writes and
// another accesses in the same launch: ThreadSanitizer checks this with the host executor on several threads
// (HET_DEV_HOST_THREADS).
#pragma once

#ifdef __CUDACC__
#include "het_tf/kernels/cuda/cuda_executor.cuh"
#else
#include "tests/ext/gpu/device/host/executor.h"
#endif
