#include "het_tf/ext/checkpoint/capi/tools/files.h"

#include <nlohmann/json.hpp>

#include "het_tf/core/base/answer.h"
#include "het_tf/core/wire/layout.h"
#include "het_tf/ext/checkpoint/cc/requests.h"

using het::Status;
using het::Text;

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
