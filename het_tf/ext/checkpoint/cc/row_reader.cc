#include "het_tf/ext/checkpoint/cc/row_reader.h"

#include <algorithm>

#include "het_tf/core/base/bytes.h"
#include "het_tf/core/base/checksum.h"

namespace het {

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
    return reader->Damaged("it has " + std::to_string(reader->bytes_) + " bytes, too few for a header");
  }
  HET_RETURN_IF_ERROR(reader->file_.ReadAt(0, &length, sizeof(length)));
  if (length > kMostHeaderBytes || length > reader->bytes_ - kLengthBytes) {
    return reader->Damaged("the length of its header is " + std::to_string(length) + " bytes; the file has " +
                           std::to_string(reader->bytes_));
  }
  Bytes head(kLengthBytes + length);
  HET_RETURN_IF_ERROR(reader->file_.ReadAt(0, head.data(), head.size()));
  auto tables = ParseRowHeader({head.data() + kLengthBytes, length}, reader->bytes_);
  if (!tables.ok()) return reader->Damaged(tables.status().message());
  reader->tables_ = std::move(tables.value());
  reader->header_checksum_ = Checksum::Of(head.data(), head.size());
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

}  // namespace het
