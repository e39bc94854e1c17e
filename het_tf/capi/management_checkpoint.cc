// The management functions of checkpoints.
#include "het_tf/capi/answer.h"
#include "het_tf/capi/management.h"

using het::Engine;
using het::Status;
using het::Text;
using het::WithEngine;

int HetStoreInfo(const char* name_space) {
  return WithEngine(name_space, [](Engine& engine) -> Status {
    HET_ASSIGN_OR_RETURN(const het::StoreInfo info, engine.checkpoints().Info());
    Text() = het::ToJson(info);
    return Status();
  });
}

int HetChangesSince(const char* name_space, const char* request) {
  return WithEngine(name_space, [&](Engine& engine) -> Status {
    HET_ASSIGN_OR_RETURN(const auto parsed, het::ParseSinceRequest(request));
    HET_ASSIGN_OR_RETURN(const auto kinds, engine.checkpoints().KindsSince(parsed));
    Text() = het::ToJson(kinds);
    return Status();
  });
}

int HetSaveRows(const char* name_space, const char* path, const char* request) {
  return WithEngine(name_space, [&](Engine& engine) -> Status {
    HET_ASSIGN_OR_RETURN(const auto parsed, het::ParseSaveRequest(request));
    HET_ASSIGN_OR_RETURN(const auto saved, engine.checkpoints().SaveRows(path, parsed));
    Text() = het::ToJson(saved);
    return Status();
  });
}

int HetLoadBegin(const char* name_space, const char* request) {
  return WithEngine(name_space, [&](Engine& engine) {
    const auto parsed = het::ParseBeginRequest(request);
    return parsed.ok() ? engine.checkpoints().BeginLoad(parsed.value()) : parsed.status();
  });
}

int HetLoadClear(const char* name_space, const char* table) {
  return WithEngine(name_space, [&](Engine& engine) { return engine.checkpoints().ClearForLoad(table); });
}

int HetLoadRows(const char* name_space, const char* path, const char* request) {
  return WithEngine(name_space, [&](Engine& engine) -> Status {
    HET_ASSIGN_OR_RETURN(const auto parsed, het::ParseLoadRequest(request));
    HET_ASSIGN_OR_RETURN(const auto loaded, engine.checkpoints().LoadRows(path, parsed));
    Text() = het::ToJson(loaded);
    return Status();
  });
}

int HetLoadCommit(const char* name_space, const char* request) {
  return WithEngine(name_space, [&](Engine& engine) {
    const auto parsed = het::ParseCommitRequest(request);
    return parsed.ok() ? engine.checkpoints().CommitLoad(parsed.value()) : parsed.status();
  });
}

int HetLoadAbort(const char* name_space) {
  return WithEngine(name_space, [](Engine& engine) { return engine.checkpoints().AbortLoad(); });
}
