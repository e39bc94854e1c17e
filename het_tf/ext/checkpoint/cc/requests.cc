#include "het_tf/ext/checkpoint/cc/requests.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "het_tf/core/base/checksum.h"
#include "het_tf/core/row/schema_json.h"
#include "het_tf/core/store/shard.h"

namespace het {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostPartitions = 65536;  // core/base/hash.h

// Calls fill(json) -> Status, which may throw nlohmann's exceptions: a field is missing or has another type.
template <typename T, typename Fill>
Result<T> Parse(const char* what, const std::string& text, Fill fill) {
  T request;
  try {
    const Json json = Json::parse(text);
    HET_RETURN_IF_ERROR(fill(json, &request));
  } catch (const Json::exception& error) {
    return InvalidArgument(std::string("the ") + what + " is malformed: " + error.what());
  }
  return request;
}

Status ReadNumbers(const Json& json, const char* field, int64_t most,
                   std::map<std::string, int64_t>* numbers) {
  if (!json.contains(field)) return Status();
  for (const auto& [name, number] : json.at(field).items()) {
    const int64_t value = number.is_number_integer() ? number.get<int64_t>() : -1;
    if (value < 0 || value > most) {
      return InvalidArgument(std::string(field) + " of table '" + name + "' is " + number.dump() +
                             "; it must be an integer from 0 to " + std::to_string(most));
    }
    (*numbers)[name] = value;
  }
  return Status();
}

Status ReadPartitions(const Json& json, std::vector<uint32_t>* partitions) {
  for (const Json& partition : json) {
    if (!partition.is_number_unsigned() || partition.get<uint64_t>() > UINT32_MAX) {
      return InvalidArgument("partitions has " + partition.dump() + "; it must list numbers of partitions");
    }
    partitions->push_back(partition.get<uint32_t>());
  }
  std::sort(partitions->begin(), partitions->end());
  partitions->erase(std::unique(partitions->begin(), partitions->end()), partitions->end());
  return Status();
}

Status ReadPositions(const Json& json, std::map<std::string, std::vector<Position>>* since) {
  for (const auto& [name, positions] : json.at("tables").items()) {
    std::vector<Position>& of_table = (*since)[name];
    for (const Json& position : positions) {
      if (ParsePosition(position.get<std::string>(), &of_table.emplace_back())) continue;
      return InvalidArgument("a position of table '" + name + "' is " + position.dump() +
                             "; it must be \"INCARNATION:NUMBER\"");
    }
  }
  return Status();
}

// Reads an unsigned number from `least` to `most`.
template <typename T>
Status ReadNumber(const Json& json, const char* field, uint64_t least, uint64_t most, T* out) {
  const Json& number = json.at(field);
  if (!number.is_number_unsigned() || number.get<uint64_t>() < least || number.get<uint64_t>() > most) {
    return InvalidArgument(std::string(field) + " is " + number.dump() + "; it must be an integer from " +
                           std::to_string(least) + " to " + std::to_string(most));
  }
  *out = number.get<T>();
  return Status();
}

Status ReadLayout(const Json& store, Layout* layout) {
  uint32_t partitions = 0;
  uint64_t hash_seed = 0;
  HET_RETURN_IF_ERROR(ReadNumber(store, "partitions", 1, kMostPartitions, &partitions));
  HET_RETURN_IF_ERROR(ReadNumber(store, "hash_seed", 0, UINT64_MAX, &hash_seed));
  *layout = Layout(partitions, hash_seed);
  return Status();
}

Json AsJson(const StoreInfo::OfTable& table) {
  Json slots = Json::array();
  const Optimizer& optimizer = table.schema->optimizer();
  for (size_t i = 0; i < optimizer.slots().size(); ++i) {
    slots.push_back(Json::array({optimizer.slots()[i].name, optimizer.slot_floats(i)}));
  }
  const TableState& state = table.state;
  Json positions = Json::array();
  for (const Position& position : state.positions) positions.push_back(ToString(position));
  return {{"spec", SpecAsJson(table.schema->spec())},
          {"limits", LimitsAsJson(state.limits)},
          {"applies", table.applies},
          {"rows", std::accumulate(state.rows.begin(), state.rows.end(), uint64_t{0})},
          {"clock_floor", state.clock_floor},
          {"positions", positions},
          {"row_floats", table.schema->row_floats()},
          {"slots", slots}};
}

}  // namespace

Result<SaveRequest> ParseSaveRequest(const std::string& text) {
  return Parse<SaveRequest>("save request", text, [](const Json& json, SaveRequest* request) -> Status {
    request->tables = json.at("tables").get<std::vector<std::string>>();
    HET_RETURN_IF_ERROR(ReadPartitions(json.at("partitions"), &request->partitions));
    const Json since = json.value("since", Json());
    return since.is_null() ? Status() : ReadPositions(since, &request->since);
  });
}

Result<std::map<std::string, std::vector<Position>>> ParseSinceRequest(const std::string& text) {
  return Parse<std::map<std::string, std::vector<Position>>>("request of changes", text, ReadPositions);
}

Result<VerifyRequest> ParseVerifyRequest(const std::string& text) {
  return Parse<VerifyRequest>(
      "request to verify", text, [](const Json& json, VerifyRequest* request) -> Status {
        const Json& entry = json.at("entry");
        request->bytes = entry.at("bytes").get<uint64_t>();
        request->header_checksum = entry.at("header_xxh3").get<std::string>();
        for (const auto& [name, tensor] : entry.at("tensors").items()) {
          request->tensors[name] = {tensor.at("rows").get<uint64_t>(), tensor.at("xxh3").get<std::string>()};
        }
        request->contents = json.contains("store");
        if (!request->contents) return Status();
        HET_RETURN_IF_ERROR(ReadLayout(json.at("store"), &request->layout));
        return ReadPartitions(entry.at("partitions"), &request->partitions);
      });
}

Result<LoadRequest> ParseLoadRequest(const std::string& text) {
  return Parse<LoadRequest>("load request", text, [](const Json& json, LoadRequest* request) {
    for (const auto& [name, target] : json.at("tables").items()) {
      request->tables[name] = {target.at("to").get<std::string>(), target.value("slots", true)};
    }
    return Status();
  });
}

Result<BeginRequest> ParseBeginRequest(const std::string& text) {
  return Parse<BeginRequest>(
      "request to begin a load", text, [](const Json& json, BeginRequest* request) -> Status {
        request->loader = json.at("loader").get<std::string>();
        if (request->loader.empty() || request->loader.find_first_of(" \r\n") != std::string::npos) {
          return InvalidArgument("loader is '" + request->loader +
                                 "'; give the loader's name, without spaces");
        }
        return ReadNumber(json, "seconds", 1, TableLimits::kDay, &request->seconds);
      });
}

Result<CommitRequest> ParseCommitRequest(const std::string& text) {
  return Parse<CommitRequest>("commit request", text, [](const Json& json, CommitRequest* request) -> Status {
    HET_RETURN_IF_ERROR(ReadNumbers(json, "clock_floors", Shard::kMaxClock, &request->clock_floors));
    return ReadNumbers(json, "applies", INT64_MAX, &request->applies);
  });
}

std::string ToJson(const RowFileSummary& summary) {
  Json tensors = Json::object();
  Json tables = Json::object();
  for (const auto& [t, column] : InOrder(summary.tables)) {
    const RowTable& table = summary.tables[t];
    tensors[table.TensorName(column)] = {{"rows", table.tensors[column].rows},
                                         {"xxh3", Checksum::Text(summary.checksums[t][column])}};
  }
  for (const RowTable& table : summary.tables) {
    tables[table.name] = {{"rows", table.rows}, {"removed", table.removed}, {"complete", !table.increment}};
  }
  return Json({{"bytes", summary.bytes},
               {"header_xxh3", Checksum::Text(summary.header_checksum)},
               {"tensors", tensors},
               {"tables", tables}})
      .dump();
}

std::string ToJson(const VerifiedFile& verified) {
  Json tables = Json::object();
  for (const RowTable& table : verified.tables) {
    tables[table.name] = {{"rows", table.rows},
                          {"removed", table.removed},
                          {"dim", table.dim},
                          {"slot_floats", table.slot_floats}};
  }
  return Json({{"faults", verified.faults}, {"tables", tables}}).dump();
}

std::string ToJson(const std::map<std::string, LoadedRows>& loaded) {
  Json tables = Json::object();
  for (const auto& [name, rows] : loaded) tables[name] = {{"rows", rows.rows}, {"removed", rows.removed}};
  return Json({{"tables", tables}}).dump();
}

std::string ToJson(const std::map<std::string, ChangesCount>& counts) {
  Json tables = Json::object();
  for (const auto& [name, count] : counts) tables[name] = NameOf(count.kind);
  return Json({{"tables", tables}}).dump();
}

std::string ToJson(const StoreInfo& info) {
  Json tables = Json::object();
  for (const auto& [name, table] : info.tables) tables[name] = AsJson(table);
  return Json({{"partitions", info.partitions},
               {"hash_seed", std::to_string(info.hash_seed)},
               {"remote", info.remote},
               {"tables", tables}})
      .dump();
}

}  // namespace het
