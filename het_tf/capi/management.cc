#include "het_tf/capi/management.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "het_tf/capi/answer.h"
#include "het_tf/capi/string_ids.h"
#include "het_tf/core/base/alloc.h"
#include "het_tf/ext/ps/client/remote_engine.h"
#include "het_tf/ext/ps/client/remote_options.h"

namespace het {
namespace {

// Runs f(table) for the table of that name.
template <typename F>
int WithTable(const char* name_space, const char* table, const F& f) {
  return WithEngine(name_space, [&](Engine& engine) {
    auto found = engine.tables().Find(table);
    if (found.ok()) f(*found.value());
    return found.status();
  });
}

}  // namespace
}  // namespace het

using het::Answer;
using het::Engine;
using het::Give;
using het::Key;
using het::Span;
using het::Status;
using het::Text;
using het::WithEngine;

const char* HetBuildInfo() {
  static const std::string* const info = new std::string(nlohmann::json({{"version", HET_VERSION},
                                                                         {"compiler", HET_COMPILER},
                                                                         {"march", HET_MARCH},
                                                                         {"tf_headers", HET_TF_HEADERS},
                                                                         {"build_type", HET_BUILD_TYPE}})
                                                             .dump());
  return info->c_str();
}

int HetCheckSpec(const char* spec) {
  return Answer([&]() -> Status {
    HET_ASSIGN_OR_RETURN(auto parsed, het::ParseTableSpec(spec));
    HET_ASSIGN_OR_RETURN(auto schema, het::TableSchema::Create(parsed));
    Text() = schema->ToJson();
    return Status();
  });
}

int HetCheckCache(const char* cache) {
  return Answer([&]() -> Status {
    HET_ASSIGN_OR_RETURN(auto given, het::ParseCacheOptions(cache));
    if (given.bytes) given.rows = 1;
    given.bytes.reset();
    het::TableSpec any;
    any.name = "any";
    any.dim = 1;
    HET_ASSIGN_OR_RETURN(auto schema, het::TableSchema::Create(any));
    HET_ASSIGN_OR_RETURN(auto options, given.Resolve(*schema, /*remote=*/true));
    Text() = ToJson(options);
    return Status();
  });
}

int HetCreateTable(const char* name_space, const char* spec, const char* cache) {
  return WithEngine(name_space, [&](Engine& engine) -> Status {
    HET_ASSIGN_OR_RETURN(auto parsed, het::ParseTableSpec(spec));
    HET_ASSIGN_OR_RETURN(auto schema, het::TableSchema::Create(parsed));
    HET_ASSIGN_OR_RETURN(auto given, het::ParseCacheOptions(cache));
    HET_ASSIGN_OR_RETURN(auto options, given.Resolve(*schema, engine.remote()));
    return engine.tables().Create(parsed, options);
  });
}

int HetDropTable(const char* name_space, const char* table) {
  return WithEngine(name_space, [&](Engine& engine) { return engine.tables().Drop(table); });
}

int HetLeaveTable(const char* name_space, const char* table) {
  return WithEngine(name_space, [&](Engine& engine) { return engine.tables().Leave(table); });
}

int HetFindTable(const char* name_space, const char* table) {
  return het::WithTable(name_space, table, [](const het::Table& found) {
    Text() = "{\"spec\": " + found.schema->ToJson() + ", \"options\": " + ToJson(found.options) + "}";
  });
}

int HetTableNames(const char* name_space) {
  return WithEngine(name_space, [&](Engine& engine) {
    Text() = nlohmann::json(engine.tables().Names()).dump();
    return Status();
  });
}

int HetSize(const char* name_space, const char* table, int64_t* rows) {
  return WithEngine(name_space, [&](Engine& engine) { return Give(engine.tables().Size(table), rows); });
}

int HetBytes(const char* name_space, const char* table, int64_t* bytes) {
  return WithEngine(name_space, [&](Engine& engine) { return Give(engine.tables().Bytes(table), bytes); });
}

int HetApplies(const char* name_space, const char* table, int64_t* applies) {
  return het::WithTable(name_space, table, [&](const het::Table& found) { *applies = found.applies.load(); });
}

int HetSetApplies(const char* name_space, const char* table, int64_t applies) {
  return het::WithTable(name_space, table, [&](het::Table& found) { found.applies.store(applies); });
}

int HetRowFloats(const char* name_space, const char* table, int64_t* floats) {
  return het::WithTable(name_space, table, [&](const het::Table& found) {
    *floats = static_cast<int64_t>(found.schema->row_floats());
  });
}

int HetHashIds(const char* text, const uint64_t* ends, size_t count, int64_t* ids) {
  uint64_t begin = 0;
  for (size_t i = 0; i < count; begin = ends[i++]) ids[i] = het::IdOfString({text + begin, ends[i] - begin});
  return 0;
}

int HetRead(const char* name_space, const char* table, const int64_t* ids, size_t count, int stored,
            float* values) {
  return WithEngine(name_space, [&](Engine& engine) {
    const Span<const Key> keys(ids, count);
    return stored != 0 ? engine.tables().ReadStored(table, keys, values)
                       : engine.tables().Read(table, keys, values);
  });
}

int HetAssign(const char* name_space, const char* table, const int64_t* ids, size_t count, const float* rows,
              int with_slots, const int64_t* clocks) {
  return WithEngine(name_space, [&](Engine& engine) {
    return engine.tables().Assign(table, Span<const Key>(ids, count), rows, with_slots != 0, clocks);
  });
}

int HetRemove(const char* name_space, const char* table, const int64_t* ids, size_t count, int64_t* removed) {
  return WithEngine(name_space, [&](Engine& engine) {
    size_t gone = 0;
    Status status = engine.tables().Remove(table, Span<const Key>(ids, count), &gone);
    *removed = static_cast<int64_t>(gone);
    return status;
  });
}

int HetClear(const char* name_space, const char* table) {
  return WithEngine(name_space, [&](Engine& engine) { return engine.tables().Clear(table); });
}

int HetStats(const char* name_space, const char* table) {
  return WithEngine(name_space, [&](Engine& engine) -> Status {
    HET_ASSIGN_OR_RETURN(const het::TableStats stats, engine.tables().Stats(table));
    Text() = het::ToJson(stats);
    return Status();
  });
}

int HetReport() {
  return Answer([] {
    auto report = nlohmann::json::object();
    for (const std::string& name : het::EngineNames()) {
      const std::shared_ptr<Engine> engine = het::FindEngine(name);
      if (engine != nullptr) report[name] = het::AsJson(engine->tables().StatsHere(), *engine->trace());
    }
    Text() = report.dump();
    return Status();
  });
}

int HetSample(const char* name_space, const char* table, size_t count, uint64_t seed, int64_t* ids,
              float* values, int64_t* rows) {
  return WithEngine(name_space, [&](Engine& engine) -> Status {
    HET_ASSIGN_OR_RETURN(auto found, engine.tables().Find(table));
    const size_t dim = found->schema->dim();
    het::RowBatch batch(dim, found->schema->row_floats() - dim, count);
    HET_RETURN_IF_ERROR(engine.tables().Sample(table, seed, &batch));
    std::copy_n(batch.keys(), batch.size(), ids);
    std::copy_n(batch.values(), batch.size() * dim, values);
    *rows = static_cast<int64_t>(batch.size());
    return Status();
  });
}

int HetScan(const char* name_space, const char* table, void** scan, int64_t* count, int64_t* row_floats) {
  return WithEngine(name_space, [&](Engine& engine) -> Status {
    HET_ASSIGN_OR_RETURN(auto found, engine.tables().Find(table));
    HET_ASSIGN_OR_RETURN(auto rows, engine.tables().Scan(table));
    *count = static_cast<int64_t>(rows.keys.size());
    *row_floats = static_cast<int64_t>(found->schema->row_floats());
    *scan = new het::TableRows(std::move(rows));
    return Status();
  });
}

int HetScanCopy(const void* scan, int64_t* ids, int64_t* clocks, uint32_t* last_used, uint16_t* counts,
                float* rows) {
  return Answer([&] {
    const auto& all = *static_cast<const het::TableRows*>(scan);
    std::copy(all.keys.begin(), all.keys.end(), ids);
    std::copy(all.clocks.begin(), all.clocks.end(), clocks);
    std::copy(all.last_used.begin(), all.last_used.end(), last_used);
    std::copy(all.counts.begin(), all.counts.end(), counts);
    std::copy(all.rows.begin(), all.rows.end(), rows);
    return Status();
  });
}

void HetScanFree(void* scan) { delete static_cast<het::TableRows*>(scan); }

int HetFlush(const char* name_space) {
  return WithEngine(name_space, [&](Engine& engine) { return engine.caches().Flush(); });
}

int HetSettle(const char* name_space) {
  return WithEngine(name_space, [&](Engine& engine) {
    engine.caches().Settle();
    return Status();
  });
}

int HetRefresh(const char* name_space) {
  return WithEngine(name_space, [&](Engine& engine) { return engine.caches().Refresh(); });
}

int HetConnectWith(const char* address, const char* options, HetPassword password) {
  return Answer([&]() -> Status {
    const std::string text = address;
    HET_ASSIGN_OR_RETURN(auto config, het::ParseRemoteOptions(options));
    if (text.empty()) return het::SetEngineFactory(nullptr);
    HET_ASSIGN_OR_RETURN(auto parsed, het::ReadAddress(address, password));
    return het::SetEngineFactory([server = parsed, config = config](const std::string& name, size_t threads) {
      return het::OpenRemoteEngine(server, name, threads, config);
    });
  });
}

int HetCheckOptions(const char* options) {
  return Answer([&]() -> Status {
    HET_ASSIGN_OR_RETURN(const auto config, het::ParseRemoteOptions(options));
    Text() = het::RemoteOptionsJson(config);
    return Status();
  });
}

int HetMarkDurable(const char* name_space) {
  return Answer([&] {
    if (const std::shared_ptr<Engine> engine = het::FindEngine(name_space)) engine->caches().MarkDurable();
    return Status();
  });
}

int HetFlushRemote(const char* name_space, int interrupted) {
  const het::Interrupts interrupts(het::Interrupts::By::kFunction);
  if (interrupted != 0) het::Interrupts::Now();
  return Answer([&] {
    const std::shared_ptr<Engine> engine = het::FindEngine(name_space);
    return engine == nullptr || !engine->remote() ? Status() : engine->caches().Flush();
  });
}

int HetPassInterruptOn() { return het::Interrupts::PassOn() ? 1 : 0; }

int HetReset(const char* name_space) {
  return Answer([&] {
    het::ResetEngine(name_space);
    return Status();
  });
}

int HetSetThreads(size_t threads) {
  return Answer([&] {
    het::SetEngineThreads(threads);
    return Status();
  });
}

int HetSetAllocLimit(size_t bytes) {
  het::SetAllocLimit(bytes);
  return 0;
}

int HetAllocatedBytes(int64_t* bytes) {
  *bytes = static_cast<int64_t>(het::AllocatedBytes());
  return 0;
}
