#include "het_tf/ext/streams/capi/tools/location.h"

#include <string>

#include "het_tf/core/base/answer.h"
#include "het_tf/ext/streams/cc/location.h"

int HetPlaceByLocation(int64_t workers, int64_t batch, int64_t number, const uint64_t* keys, size_t width,
                       uint32_t* slots, int64_t* owners) {
  return het::Answer([&]() -> het::Status {
    if (workers < 1 || workers > static_cast<int64_t>(het::Location::kMostWorkers) || batch < 1) {
      return het::InvalidArgument("there are " + std::to_string(workers) + " workers of " +
                                  std::to_string(batch) + " samples; give 1 to " +
                                  std::to_string(het::Location::kMostWorkers) + " workers of at least 1");
    }
    const auto samples = static_cast<size_t>(workers * batch);
    het::Location location(static_cast<size_t>(workers), static_cast<size_t>(batch));
    return location.Place(static_cast<uint64_t>(number), {keys, samples * width},
                          {slots, het::Location::kSlots}, {owners, samples});
  });
}
