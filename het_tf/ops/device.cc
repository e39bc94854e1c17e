#include "het_tf/ops/device.h"

#include "het_tf/ops/answer.h"

namespace {

int NotYet() {
  return het::Answer([] { return het::Status(het::Code::kUnimplemented, "caches on a device: not yet"); });
}

}  // namespace

struct HetNode {};

int HetLoadDeviceLibrary(const char*) { return NotYet(); }
int HetDescribeDevice() { return NotYet(); }
int HetCacheRows(const char*, const char*, int64_t, int64_t*) { return NotYet(); }
int HetNodeCreate(const char* const*, size_t, const char*, HetNode**) { return NotYet(); }
void HetNodeDelete(HetNode* node) { delete node; }
int HetNodeDim(const HetNode*, size_t, int64_t*) { return NotYet(); }
int HetNodeTables(const HetNode*, size_t*) { return NotYet(); }
int HetDeviceLookup(HetNode*, const int64_t* const*, const int64_t*, size_t, float* const*, int, void*,
                    int64_t*) {
  return NotYet();
}
int HetDeviceApply(HetNode*, const int64_t* const*, const int64_t*, size_t, const float* const*, int64_t,
                   const float*, size_t, float, float, void*, int*) {
  return NotYet();
}
