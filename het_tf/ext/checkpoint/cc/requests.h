// Requests and answers, as JSON, of the management calls about checkpoints (capi/management.h shows the
// forms). Parse* returns InvalidArgument with the field's name for malformed input.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "het_tf/ext/checkpoint/cc/load.h"
#include "het_tf/ext/checkpoint/cc/row_writer.h"
#include "het_tf/ext/checkpoint/cc/verify.h"

namespace het {

struct SaveRequest {
  std::vector<std::string> tables;
  std::vector<uint32_t> partitions;                    // ascending
  std::map<std::string, std::vector<Position>> since;  // of tables to be saved as increments
};

struct LoadRequest {
  struct Target {
    std::string to;
    bool slots = true;
  };
  std::map<std::string, Target> tables;  // by the name in the file
};

struct BeginRequest {
  std::string loader;
  uint32_t seconds = 0;
};

struct CommitRequest {
  std::map<std::string, int64_t> clock_floors;
  std::map<std::string, int64_t> applies;
};

Result<SaveRequest> ParseSaveRequest(const std::string& json);
Result<std::map<std::string, std::vector<Position>>> ParseSinceRequest(const std::string& json);
Result<VerifyRequest> ParseVerifyRequest(const std::string& json);
Result<LoadRequest> ParseLoadRequest(const std::string& json);
Result<BeginRequest> ParseBeginRequest(const std::string& json);
Result<CommitRequest> ParseCommitRequest(const std::string& json);

std::string ToJson(const RowFileSummary& summary);
std::string ToJson(const VerifiedFile& verified);
std::string ToJson(const std::map<std::string, LoadedRows>& loaded);
std::string ToJson(const std::map<std::string, ChangesCount>& counts);

// An engine's answer about its store: the store's shape, and facts about each table.
struct StoreInfo {
  struct OfTable {
    Schema schema;
    TableState state;
    int64_t applies = 0;
  };
  uint32_t partitions = 0;
  uint64_t hash_seed = 0;
  bool remote = false;
  std::map<std::string, OfTable> tables;
};
std::string ToJson(const StoreInfo& info);

}  // namespace het
