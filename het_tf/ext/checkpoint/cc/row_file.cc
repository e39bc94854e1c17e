#include "het_tf/ext/checkpoint/cc/row_file.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "het_tf/core/row/schema.h"

namespace het {

using Json = nlohmann::json;

namespace {

constexpr char kFormat[] = "het_tf rows";
constexpr char kVersion[] = "1";
constexpr uint64_t kAlignment = 64;
// Wider than any optimizer's slots of the widest row.
constexpr uint64_t kMostFloats = uint64_t{16} * TableSchema::kMaxDim;

struct ColumnKind {
  const char* name;
  const char* dtype;
  uint64_t item_bytes;
  bool matrix;
};
constexpr ColumnKind kKinds[kRowColumns] = {
    {"keys", "I64", 8, false},    {"clocks", "I64", 8, false},    {"values", "F32", 4, true},
    {"slots", "F32", 4, true},    {"last_used", "U32", 4, false}, {"counts", "U16", 2, false},
    {"removed", "I64", 8, false},
};

// The beginning of a possibly hostile file's JSON, for an error message.
std::string ShownJson(const Json& json) { return json.dump(-1, ' ', /*ensure_ascii=*/true).substr(0, 200); }

Status Wrong(const std::string& what) { return InvalidArgument("not a file of rows: " + what); }

uint64_t WidthOf(const RowTable& table, RowColumn column) {
  return column == kValuesColumn ? table.dim : column == kSlotsColumn ? table.slot_floats : 1;
}

// "NAME/keys" -> its column. Returns false if the name ends in no column's name.
bool SplitName(const std::string& tensor, std::string* table, RowColumn* column) {
  const size_t slash = tensor.rfind('/');
  if (slash == std::string::npos) return false;
  for (size_t c = 0; c < kRowColumns; ++c) {
    if (tensor.compare(slash + 1, std::string::npos, kKinds[c].name) != 0) continue;
    *table = tensor.substr(0, slash);
    *column = static_cast<RowColumn>(c);
    return true;
  }
  return false;
}

bool Number(const Json& json, uint64_t* number) {
  if (!json.is_number_unsigned()) return false;
  *number = json.get<uint64_t>();
  return true;
}

// Parses one tensor's entry of the header. `data`: offset of the first tensor.
Status ParseTensor(const std::string& name, const Json& entry, uint64_t data, uint64_t file_bytes,
                   RowTable* table, RowColumn column) {
  const ColumnKind& kind = kKinds[column];
  const std::string of = "tensor '" + name + "' ";
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets")) {
    return Wrong(of + "has other fields than dtype, shape and data_offsets");
  }
  if (entry["dtype"] != kind.dtype)
    return Wrong(of + "has dtype " + ShownJson(entry["dtype"]) + ", not " + kind.dtype);
  const Json& shape = entry["shape"];
  const Json& offsets = entry["data_offsets"];
  uint64_t rows = 0;
  uint64_t width = 1;
  uint64_t begin = 0;
  uint64_t end = 0;
  if (!shape.is_array() || shape.size() != (kind.matrix ? 2u : 1u) || !Number(shape[0], &rows) ||
      (kind.matrix && !Number(shape[1], &width)) || width == 0 || width > kMostFloats) {
    return Wrong(of + "has the shape " + ShownJson(shape));
  }
  if (!offsets.is_array() || offsets.size() != 2 || !Number(offsets[0], &begin) ||
      !Number(offsets[1], &end) || begin > end || end > file_bytes - data) {
    return Wrong(of + "has the offsets " + ShownJson(offsets) + ", in " + std::to_string(file_bytes - data) +
                 " bytes of data");
  }
  const uint64_t row_bytes = kind.item_bytes * width;  // no overflow: width is bounded
  if ((end - begin) % row_bytes != 0 || (end - begin) / row_bytes != rows) {
    return Wrong(of + "has the shape " + ShownJson(shape) + ", but " + std::to_string(end - begin) +
                 " bytes");
  }
  if (column == kValuesColumn) table->dim = static_cast<uint32_t>(width);
  if (column == kSlotsColumn) table->slot_floats = static_cast<uint32_t>(width);
  if (column == kRemovedColumn) {
    table->increment = true;
    table->removed = rows;
  }
  table->tensors[column] = {true, data + begin, rows, row_bytes};
  return Status();
}

// Checks that the columns of one table fit together.
Status CheckTable(RowTable* table) {
  for (RowColumn column : {kKeysColumn, kClocksColumn, kValuesColumn, kLastUsedColumn, kCountsColumn}) {
    if (!table->tensors[column].present)
      return Wrong("there is no tensor '" + table->TensorName(column) + "'");
  }
  table->rows = table->tensors[kKeysColumn].rows;
  for (RowColumn column : {kClocksColumn, kValuesColumn, kSlotsColumn, kLastUsedColumn, kCountsColumn}) {
    const RowTensor& tensor = table->tensors[column];
    if (!tensor.present || tensor.rows == table->rows) continue;
    return Wrong("'" + table->TensorName(column) + "' has " + std::to_string(tensor.rows) + " rows, '" +
                 table->TensorName(kKeysColumn) + "' " + std::to_string(table->rows));
  }
  return Status();
}

Status CheckMetadata(const Json& header) {
  const auto metadata = header.find("__metadata__");
  if (metadata == header.end() || !metadata->is_object() || metadata->value("format", Json()) != kFormat) {
    return Wrong(std::string("its __metadata__ does not say \"format\": \"") + kFormat + "\"");
  }
  const Json version = metadata->value("version", Json());
  if (version == kVersion) return Status();
  return InvalidArgument("the file of rows has version " + ShownJson(version) +
                         "; this het_tf reads version " + kVersion + ": upgrade it");
}

}  // namespace

std::string RowTable::TensorName(RowColumn column) const { return name + "/" + kKinds[column].name; }

std::string LayOut(std::vector<RowTable>* tables, size_t least) {
  std::string json =
      std::string(R"({"__metadata__":{"format":")") + kFormat + R"(","version":")" + kVersion + R"("})";
  uint64_t at = 0;  // from the first tensor
  for (uint64_t item_bytes : {8, 4, 2}) {
    for (RowTable& table : *tables) {
      for (size_t c = 0; c < kRowColumns; ++c) {
        const auto column = static_cast<RowColumn>(c);
        const ColumnKind& kind = kKinds[c];
        if (kind.item_bytes != item_bytes) continue;
        RowTensor& tensor = table.tensors[c];
        tensor.present = (column != kSlotsColumn || table.slot_floats > 0) &&
                         (column != kRemovedColumn || table.increment);
        tensor.rows = column == kRemovedColumn ? table.removed : table.rows;
        const uint64_t width = WidthOf(table, column);
        tensor.row_bytes = width * kind.item_bytes;
        tensor.begin = at;
        if (!tensor.present) continue;
        json += "," + Json(table.TensorName(column)).dump() + R"(:{"dtype":")" + kind.dtype +
                R"(","shape":[)" + std::to_string(tensor.rows) +
                (kind.matrix ? "," + std::to_string(width) : "") + R"(],"data_offsets":[)" +
                std::to_string(at) + "," + std::to_string(at + tensor.bytes()) + "]}";
        at += tensor.bytes();
      }
    }
  }
  json += "}";
  const uint64_t padded = (kLengthBytes + json.size() + kAlignment - 1) / kAlignment * kAlignment;
  const uint64_t head = std::max<uint64_t>(padded, least);
  json.resize(head - kLengthBytes, ' ');
  for (RowTable& table : *tables) {
    for (RowTensor& tensor : table.tensors) tensor.begin += head;
  }
  std::string out(kLengthBytes, '\0');
  for (size_t i = 0; i < kLengthBytes; ++i) out[i] = static_cast<char>((json.size() >> (8 * i)) & 0xff);
  return out + json;
}

uint64_t EndOf(const std::vector<RowTable>& tables) {
  uint64_t end = 0;
  for (const RowTable& table : tables) {
    for (const RowTensor& tensor : table.tensors) {
      if (tensor.present) end = std::max(end, tensor.begin + tensor.bytes());
    }
  }
  return end;
}

std::vector<std::pair<size_t, RowColumn>> InOrder(const std::vector<RowTable>& tables) {
  std::vector<std::pair<size_t, RowColumn>> order;
  for (size_t t = 0; t < tables.size(); ++t) {
    for (size_t c = 0; c < kRowColumns; ++c) {
      if (tables[t].tensors[c].present) order.push_back({t, static_cast<RowColumn>(c)});
    }
  }
  const auto place = [&tables](const std::pair<size_t, RowColumn>& which) {
    const RowTensor& tensor = tables[which.first].tensors[which.second];
    return std::make_pair(tensor.begin, tensor.begin + tensor.bytes());  // empty tensors before neighbours
  };
  std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  return order;
}

Result<std::vector<RowTable>> ParseRowHeader(Span<const uint8_t> json, uint64_t file_bytes) {
  const uint64_t data = kLengthBytes + json.size();
  if (json.size() > kMostHeaderBytes || file_bytes < data)
    return Wrong("its header has an impossible length");
  // Reject duplicate names: readers that keep one entry a name would lose a tensor.
  std::vector<std::set<std::string>> seen;
  bool twice = false;
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    too_deep = too_deep || depth > 4;
    if (event == Json::parse_event_t::object_start) seen.resize(static_cast<size_t>(depth) + 1);
    if (event == Json::parse_event_t::object_start) seen.back().clear();
    if (event == Json::parse_event_t::key && static_cast<size_t>(depth) <= seen.size() && depth > 0) {
      twice = !seen[static_cast<size_t>(depth) - 1].insert(value.get<std::string>()).second || twice;
    }
    return !too_deep;
  };
  const Json header = Json::parse(json.begin(), json.end(), watch, /*allow_exceptions=*/false);
  if (too_deep || twice || header.is_discarded() || !header.is_object()) {
    return Wrong(twice ? "its header has a name twice"
                       : "its header is not the JSON object that it should be");
  }
  HET_RETURN_IF_ERROR(CheckMetadata(header));
  std::map<std::string, RowTable> by_name;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    std::string table;
    RowColumn column{};
    if (!SplitName(name, &table, &column)) return Wrong("tensor '" + name + "' is not a column of a table");
    RowTable& of = by_name[table];
    of.name = table;
    HET_RETURN_IF_ERROR(ParseTensor(name, entry, data, file_bytes, &of, column));
  }
  std::vector<RowTable> tables;
  for (auto& [name, table] : by_name) {
    HET_RETURN_IF_ERROR(CheckTable(&table));
    tables.push_back(std::move(table));
  }
  uint64_t at = data;
  for (const auto& [table, column] : InOrder(tables)) {
    const RowTensor& tensor = tables[table].tensors[column];
    if (tensor.begin != at) {
      return Wrong("tensor '" + tables[table].TensorName(column) + "' begins at byte " +
                   std::to_string(tensor.begin) + " of the file; the one before it ends at " +
                   std::to_string(at));
    }
    at += tensor.bytes();
  }
  if (at != file_bytes) {
    return Wrong("its tensors end at byte " + std::to_string(at) + ", the file at " +
                 std::to_string(file_bytes) + (at > file_bytes ? ": it was cut off" : ""));
  }
  return tables;
}

}  // namespace het
