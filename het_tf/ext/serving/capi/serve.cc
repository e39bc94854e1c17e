#include "het_tf/ext/serving/capi/serve.h"

#include <nlohmann/json.hpp>
#include <string>

#include "het_tf/capi/answer.h"
#include "het_tf/core/row/row_batch.h"
#include "het_tf/ext/serving/cc/serve/row_codec.h"
#include "het_tf/ext/serving/cc/serve/serve_file.h"
#include "het_tf/ext/serving/cc/serve/serve_writer.h"

namespace het {
namespace {

using serve::ServeWriter;

struct ServeRequest {
  serve::WriteOptions write;
  uint16_t min_count = 0;
  uint32_t last_used = 0;
};

Result<ServeRequest> ParseRequest(const std::string& text) {
  ServeRequest request;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    for (const auto& [field, value] : json.items()) {
      if (field == "rows") {
        HET_ASSIGN_OR_RETURN(request.write.row_type, serve::ParseRowType(value.get<std::string>()));
      } else if (field == "unknown" && (value == "initial" || value == "zeros")) {
        request.write.unknown = value == "zeros" ? serve::Unknown::kZeros : serve::Unknown::kInitial;
      } else if (field == "min_count" && value.is_number_unsigned() && value <= UINT16_MAX) {
        request.min_count = value.get<uint16_t>();
      } else if (field == "last_used" && value.is_number_unsigned() && value <= UINT32_MAX) {
        request.last_used = value.get<uint32_t>();
      } else {
        return InvalidArgument("a serving file cannot be written with " + field + " = " + value.dump());
      }
    }
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument(std::string("the options of a serving file are not valid JSON: ") + error.what());
  }
  return request;
}

// Adds the rows of `batch` that pass the request's filters, and counts the others.
Status AddRows(const RowBatch& batch, const ServeRequest& request, ServeWriter* writer, uint64_t* dropped) {
  const auto passes = [&](size_t i) {
    return batch.counts()[i] >= request.min_count && batch.last_used()[i] >= request.last_used;
  };
  for (size_t i = 0; i < batch.size();) {  // runs of rows that pass: mostly one
    size_t end = i;
    while (end < batch.size() && passes(end)) ++end;
    HET_RETURN_IF_ERROR(writer->Add(Span<const Key>(batch.keys() + i, end - i),
                                    batch.values() + i * batch.dim(), batch.dim()));
    *dropped += end < batch.size();
    i = end + 1;
  }
  return Status();
}

}  // namespace
}  // namespace het

using het::Status;
using het::serve::ServeFile;
using het::serve::ServeWriter;

int HetServeWrite(const char* name_space, const char* table, const char* path, const char* options) {
  return het::WithEngine(name_space, [&](het::Engine& engine) -> Status {
    HET_ASSIGN_OR_RETURN(auto request, het::ParseRequest(options));
    HET_ASSIGN_OR_RETURN(auto found, engine.tables().Find(table));
    HET_ASSIGN_OR_RETURN(auto writer, ServeWriter::Create(path, found->schema, request.write));
    uint64_t dropped = 0;
    HET_RETURN_IF_ERROR(engine.tables().Visit(table, [&](const het::RowBatch& batch) {
      return het::AddRows(batch, request, writer.get(), &dropped);
    }));
    HET_RETURN_IF_ERROR(writer->Finish());
    HET_ASSIGN_OR_RETURN(const auto file, ServeFile::Open(path));
    het::Text() =
        nlohmann::json({{"rows", file->size()}, {"row_bytes", file->row_bytes()}, {"dropped", dropped}})
            .dump();
    return Status();
  });
}
