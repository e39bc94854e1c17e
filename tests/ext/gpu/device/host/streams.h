// Streams of the host executor. Work is queued, and done as late as CUDA allows: when somebody waits for it.
// Until then the front of any stream may be next, so waiting plays one of the legal orders, drawn at random.
// A result that is read before its wait is poison or an old one, and work on two streams without an event
// between them comes in either order.
//
// Not part of libhet_cuda.so.
#pragma once

#include <cstdint>
#include <functional>

#include "het_tf/ext/gpu/cc/abi.h"

extern "C" {
// Draws the orders anew from this seed.
HET_DEV_EXPORT void HetDevHostSeed(uint64_t seed);
// The kernels, copies and fills that were put on streams so far. A sort counts as many as CUB's.
HET_DEV_EXPORT uint64_t HetDevHostOperations(void);
// The n-th launch of a kernel from now fails, once; 0: none does.
HET_DEV_EXPORT void HetDevHostFailLaunch(uint64_t n);
// While `broken` is 1 a kernel of somebody else has made the device unusable.
HET_DEV_EXPORT void HetDevHostBreak(int broken);
// How often the host has waited so far: for a stream, or an event that was recorded on it.
HET_DEV_EXPORT uint64_t HetDevHostWaits(HetDevStream stream);
// The same, for any stream.
HET_DEV_EXPORT uint64_t HetDevHostAllWaits(void);
// Does all work that was put on streams so far.
HET_DEV_EXPORT void HetDevHostFinish(void);
// While `hold` is 1, nothing is done that is put on the stream from now on: a model is queued there. A wait
// that needs it ends the process.
HET_DEV_EXPORT void HetDevHostHold(HetDevStream stream, int hold);
}

namespace het::dev::streams {

// Puts work on a stream, which counts as so many operations.
void Put(HetDevStream stream, uint64_t operations, std::function<void()> work);

// A point of a stream: all that is on it now.
struct Point {
  HetDevStream stream = nullptr;
  uint64_t end = 0;
};
Point Here(HetDevStream stream);
// Work that is put on the stream later comes after the point.
void PutWait(HetDevStream stream, const Point& point);
// Works until the point is reached, and whatever else comes first.
void WaitFor(const Point& point);
void WaitForAll();

// False, once, for the launch that must fail; `what` then gets an error from runtime::CheckLaunch.
bool LaunchWorks();
bool TakeFailedLaunch();
bool IsBroken();

// Random numbers for the order of tiles and lanes in a kernel.
uint64_t Draw();

}  // namespace het::dev::streams
