// The management functions of checkpoints.
#include "het_tf/capi/answer.h"
#include "het_tf/capi/management.h"
#include "het_tf/ext/checkpoint/cc/checkpoints.h"

using het::Engine;
using het::Status;
using het::Text;
using het::WithEngine;

int HetStoreInfo(const char* name_space) {
  return WithEngine(name_space, [](Engine& engine) -> Status {
    HET_ASSIGN_OR_RETURN(const het::StoreInfo info, het::StoreInfoOf(&engine));
    Text() = het::ToJson(info);
    return Status();
  });
}

int HetChangesSince(const char* name_space, const char* request) {
  return WithEngine(name_space, [&](Engine& engine) -> Status {
    HET_ASSIGN_OR_RETURN(const auto parsed, het::ParseSinceRequest(request));
    HET_ASSIGN_OR_RETURN(const auto counts, het::CountChanges(&engine, parsed));
    Text() = het::ToJson(counts);
    return Status();
  });
}

int HetSaveRows(const char* name_space, const char* path, const char* request) {
  return WithEngine(name_space, [&](Engine& engine) -> Status {
    HET_ASSIGN_OR_RETURN(const auto parsed, het::ParseSaveRequest(request));
    HET_ASSIGN_OR_RETURN(const auto saved, het::SaveRows(&engine, path, parsed));
    Text() = het::ToJson(saved);
    return Status();
  });
}

int HetLoadBegin(const char* name_space, const char* request) {
  return WithEngine(name_space, [&](Engine& engine) -> Status {
    HET_ASSIGN_OR_RETURN(const auto parsed, het::ParseBeginRequest(request));
    return engine.loads().Begin(parsed.loader, parsed.seconds);
  });
}

int HetLoadClear(const char* name_space, const char* table) {
  return WithEngine(name_space, [&](Engine& engine) { return engine.loads().Clear(table); });
}

int HetLoadRows(const char* name_space, const char* path, const char* request) {
  return WithEngine(name_space, [&](Engine& engine) -> Status {
    HET_ASSIGN_OR_RETURN(const auto parsed, het::ParseLoadRequest(request));
    HET_ASSIGN_OR_RETURN(const auto loaded, het::LoadRows(&engine, path, parsed));
    Text() = het::ToJson(loaded);
    return Status();
  });
}

int HetLoadCommit(const char* name_space, const char* request) {
  return WithEngine(name_space, [&](Engine& engine) -> Status {
    HET_ASSIGN_OR_RETURN(const auto parsed, het::ParseCommitRequest(request));
    return engine.loads().Commit(parsed.clock_floors, parsed.applies);
  });
}

int HetLoadAbort(const char* name_space) {
  return WithEngine(name_space, [](Engine& engine) { return engine.loads().Abort(); });
}
