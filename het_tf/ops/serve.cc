#include "het_tf/ops/serve.h"

#include <nlohmann/json.hpp>
#include <string>

#include "het_tf/core/serve/row_codec.h"
#include "het_tf/core/serve/serve_file.h"
#include "het_tf/core/serve/serve_writer.h"
#include "het_tf/ops/answer.h"
#include "het_tf/ps/client/online_store.h"

namespace het {
namespace {

using serve::ServeFile;
using serve::ServeWriter;

Result<serve::WriteOptions> ParseOptions(const std::string& text) {
  serve::WriteOptions options;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    for (const auto& [field, value] : json.items()) {
      const std::string given = value.get<std::string>();
      if (field == "rows") {
        auto type = serve::ParseRowType(given);
        if (!type.ok()) return type.status();
        options.row_type = type.value();
      } else if (field == "unknown" && (given == "initial" || given == "zeros")) {
        options.unknown = given == "zeros" ? serve::Unknown::kZeros : serve::Unknown::kInitial;
      } else {
        return InvalidArgument(field + " is '" + given +
                               "'; rows and unknown ('initial', 'zeros') are given");
      }
    }
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument(std::string("the options of a serving file are not valid JSON: ") + error.what());
  }
  return options;
}

Status Inspect(const std::string& path, bool verify) {
  auto file = ServeFile::Open(path);
  if (!file.ok()) return file.status();
  if (verify) HET_RETURN_IF_ERROR(file.value()->Verify());
  const serve::Header& header = file.value()->header();
  Text() = nlohmann::json({{"spec", nlohmann::json::parse(file.value()->schema().ToJson())},
                           {"rows", header.rows},
                           {"row_type", serve::RowTypeName(header.row_type)},
                           {"row_bytes", header.row_bytes},
                           {"unknown", header.unknown == serve::Unknown::kZeros ? "zeros" : "initial"},
                           {"bytes", header.file_bytes}})
               .dump();
  return Status();
}

}  // namespace
}  // namespace het

using het::Answer;
using het::Key;
using het::Span;
using het::Status;
using het::serve::ServeWriter;

int HetServeCreate(const char* path, const char* spec, const char* options, void** writer) {
  return Answer([&]() -> Status {
    auto parsed = het::ParseTableSpec(spec);
    if (!parsed.ok()) return parsed.status();
    auto schema = het::TableSchema::Create(parsed.value());
    if (!schema.ok()) return schema.status();
    auto how = het::ParseOptions(options);
    if (!how.ok()) return how.status();
    auto created = ServeWriter::Create(path, schema.value(), how.value());
    if (created.ok()) *writer = created.value().release();
    return created.status();
  });
}

int HetServeAdd(void* writer, const int64_t* ids, size_t count, const float* rows, size_t stride) {
  return Answer(
      [&] { return static_cast<ServeWriter*>(writer)->Add(Span<const Key>(ids, count), rows, stride); });
}

int HetServeFinish(void* writer) {
  return Answer([&] {
    auto* const of = static_cast<ServeWriter*>(writer);
    HET_RETURN_IF_ERROR(of->Finish());
    return het::Inspect(of->path(), /*verify=*/false);
  });
}

void HetServeFree(void* writer) { delete static_cast<ServeWriter*>(writer); }

int HetServeInspect(const char* path, int verify) {
  return Answer([&] { return het::Inspect(path, verify != 0); });
}

int HetServeOpenFiles(int64_t* files) {
  *files = static_cast<int64_t>(het::serve::OpenServeFiles());
  return 0;
}

int HetOnlineCheck(const char* specs) {
  return Answer([&]() -> Status {
    try {
      const nlohmann::json json = nlohmann::json::parse(specs);
      auto reader = het::OpenOnlineReader(json.at("online").dump(), json.value("namespace", std::string()));
      if (!reader.ok()) return reader.status();
      for (const nlohmann::json& table : json.at("tables")) {
        auto spec = het::ParseTableSpec(table.dump());
        if (!spec.ok()) return spec.status();
        auto schema = het::TableSchema::Create(spec.value());
        if (!schema.ok()) return schema.status();
        HET_RETURN_IF_ERROR(reader.value()->FindTable(schema.value()).status());
      }
    } catch (const nlohmann::json::exception& error) {
      return het::InvalidArgument(std::string("specs is not the JSON of an online lookup: ") + error.what());
    }
    return Status();
  });
}

int HetOnlineStats() {
  return Answer([&] {
    het::Text() = het::OnlineReaderStats();
    return Status();
  });
}
