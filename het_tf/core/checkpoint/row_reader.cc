#include "het_tf/core/checkpoint/row_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "het_tf/core/base/bytes.h"
#include "het_tf/core/checkpoint/checksum.h"
#include "het_tf/core/store/shard.h"

namespace het {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kVerifyBytes = uint64_t{1} << 20;

// A field that is not there or of another type equals nothing that is asked for.
bool Is(const Json& entry, const char* field, const Json& wanted) {
  return entry.is_object() && entry.value(field, Json()) == wanted;
}

}  // namespace

Status RowReader::Damaged(const std::string& what) const {
  return InvalidArgument("'" + path() + "' is damaged: " + what +
                         ". Restore another checkpoint, or get this file again");
}

Result<std::unique_ptr<RowReader>> RowReader::Open(const std::string& path) {
  HET_ASSIGN_OR_RETURN(File file, File::Open(path));
  std::unique_ptr<RowReader> reader(new RowReader(std::move(file)));
  HET_ASSIGN_OR_RETURN(reader->bytes_, reader->file_.Size());
  uint64_t length = 0;
  if (reader->bytes_ < kLengthBytes) {
    return reader->Damaged("it has " + std::to_string(reader->bytes_) + " bytes, no header");
  }
  HET_RETURN_IF_ERROR(reader->file_.ReadAt(0, &length, sizeof(length)));
  if (length > kMostHeaderBytes || length > reader->bytes_ - kLengthBytes) {
    return reader->Damaged("its header is said to have " + std::to_string(length) + " bytes; the file has " +
                           std::to_string(reader->bytes_));
  }
  Bytes head(kLengthBytes + length);
  HET_RETURN_IF_ERROR(reader->file_.ReadAt(0, head.data(), head.size()));
  reader->header_checksum_ = Checksum::Of(head.data(), head.size());
  auto tables = ParseRowHeader({head.data() + kLengthBytes, length}, reader->bytes_);
  if (!tables.ok()) return reader->Damaged(tables.status().message());
  reader->tables_ = std::move(tables.value());
  return reader;
}

Result<const RowTable*> RowReader::Find(const std::string& name) const {
  std::string known;
  for (const RowTable& table : tables_) {
    if (table.name == name) return &table;
    known += (known.empty() ? "'" : ", '") + table.name + "'";
  }
  return Status(Code::kNotFound,
                "no table '" + name + "' in '" + path() + "'; it has " + (known.empty() ? "none" : known));
}

Status RowReader::Read(const RowTable& table, RowColumn column, uint64_t first, uint64_t rows,
                       void* out) const {
  const RowTensor& tensor = table.tensors[column];
  return file_.ReadAt(tensor.begin + first * tensor.row_bytes, out, rows * tensor.row_bytes);
}

Status RowReader::ReadRows(const RowTable& table, uint64_t first, bool slots, RowBatch* batch) const {
  const auto rows = static_cast<size_t>(std::min<uint64_t>(batch->capacity(), table.rows - first));
  HET_RETURN_IF_ERROR(Read(table, kKeysColumn, first, rows, batch->keys()));
  HET_RETURN_IF_ERROR(Read(table, kClocksColumn, first, rows, batch->clocks()));
  HET_RETURN_IF_ERROR(Read(table, kValuesColumn, first, rows, batch->values()));
  if (slots && table.slot_floats > 0)
    HET_RETURN_IF_ERROR(Read(table, kSlotsColumn, first, rows, batch->slots()));
  HET_RETURN_IF_ERROR(Read(table, kLastUsedColumn, first, rows, batch->last_used()));
  HET_RETURN_IF_ERROR(Read(table, kCountsColumn, first, rows, batch->counts()));
  batch->set_size(rows);
  return Status();
}

Status RowReader::VerifyTensor(const RowTable& table, RowColumn column, const Json& entry) const {
  const RowTensor& tensor = table.tensors[column];
  const std::string of = "tensor '" + table.TensorName(column) + "' (bytes " + std::to_string(tensor.begin) +
                         " to " + std::to_string(tensor.begin + tensor.bytes()) + ") ";
  if (!Is(entry, "rows", tensor.rows)) {
    return Damaged(of + "has " + std::to_string(tensor.rows) + " rows; its manifest says " +
                   ShownJson(entry));
  }
  Buffer<uint8_t> some;
  some.Resize(static_cast<size_t>(std::min(kVerifyBytes, tensor.bytes())));
  Checksum checksum;
  bool bad_clock = false;
  for (uint64_t done = 0; done < tensor.bytes();) {
    const auto bytes = static_cast<size_t>(std::min(kVerifyBytes, tensor.bytes() - done));
    HET_RETURN_IF_ERROR(file_.ReadAt(tensor.begin + done, some.data(), bytes));
    checksum.Add(some.data(), bytes);
    for (size_t at = 0; column == kClocksColumn && at < bytes; at += sizeof(Clock)) {
      Clock clock;
      std::memcpy(&clock, some.data() + at, sizeof(clock));
      bad_clock = bad_clock || clock < 0 || clock > Shard::kMaxClock;
    }
    done += bytes;
  }
  const std::string found = Checksum::Text(checksum.value());
  if (!Is(entry, "xxh3", found)) {
    return Damaged(of + "has the checksum " + found + "; its manifest says " + ShownJson(entry));
  }
  return bad_clock ? Damaged(of + "has a clock out of range") : Status();
}

Status RowReader::Verify(const Json& entry) const {
  if (entry.is_null()) return Status();
  if (!entry.is_object())
    return InvalidArgument("the manifest's entry of '" + path() + "' is no JSON object");
  if (!Is(entry, "bytes", bytes_)) {
    return Damaged("it has " + std::to_string(bytes_) + " bytes; its manifest says " +
                   ShownJson(entry.value("bytes", Json())));
  }
  const std::string found = Checksum::Text(header_checksum_);
  if (!Is(entry, "header_xxh3", found)) {
    return Damaged("its header has the checksum " + found + "; its manifest says " +
                   ShownJson(entry.value("header_xxh3", Json())));
  }
  const auto order = InOrder(tables_);
  const Json tensors = entry.value("tensors", Json());
  if (!tensors.is_object() || tensors.size() != order.size()) {
    return Damaged("it has " + std::to_string(order.size()) + " tensors; its manifest names others");
  }
  for (const auto& [table, column] : order) {
    const auto known = tensors.find(tables_[table].TensorName(column));
    HET_RETURN_IF_ERROR(VerifyTensor(tables_[table], column, known == tensors.end() ? Json() : *known));
  }
  return Status();
}

}  // namespace het
