#include "het_tf/capi/tools/files.h"

#include <nlohmann/json.hpp>

#include "het_tf/core/base/answer.h"
#include "het_tf/ext/checkpoint/cc/requests.h"
#include "het_tf/ext/placement/cc/location.h"

using het::Status;
using het::Text;

int HetMergeRows(const char* path, const char* request) {
  return het::Answer([&]() -> Status {
    HET_ASSIGN_OR_RETURN(const auto parsed, het::ParseMergeRequest(request));
    HET_ASSIGN_OR_RETURN(const auto merged, het::MergeRows(path, parsed));
    Text() = het::ToJson(merged);
    return Status();
  });
}

int HetVerifyRows(const char* path, const char* request) {
  return het::Answer([&]() -> Status {
    HET_ASSIGN_OR_RETURN(const auto parsed, het::ParseVerifyRequest(request));
    HET_ASSIGN_OR_RETURN(const auto verified, het::VerifyRows(path, parsed));
    Text() = het::ToJson(verified);
    return Status();
  });
}

int HetTablePlace(const char* table, int64_t partitions) {
  return het::Answer([&] {
    const uint64_t id = het::HashName(table);
    const het::TableLayout place = het::Layout(static_cast<uint32_t>(partitions), 0).OfTable(id);
    Text() = nlohmann::json({{"id", id}, {"first", place.first}, {"group", place.group}}).dump();
    return Status();
  });
}

int HetPlaceByLocation(int64_t workers, int64_t batch, int64_t number, const uint64_t* keys, size_t width,
                       uint32_t* slots, int64_t* owners) {
  return het::Answer([&]() -> Status {
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
