#include "het_tf/ext/checkpoint/cc/row_writer.h"

#include <algorithm>

namespace het {
namespace {

constexpr size_t kMoveBytes = size_t{4} << 20;
// A smaller file goes to the disk at once, at the end: faster than its columns piece by piece, whose pages at
// the ends go twice.
constexpr uint64_t kEarlyBytes = uint64_t{32} << 20;

}  // namespace

Result<std::unique_ptr<RowWriter>> RowWriter::Create(const std::string& path, std::vector<RowTable> tables) {
  HET_ASSIGN_OR_RETURN(File file, File::Create(path));
  std::unique_ptr<RowWriter> writer(new RowWriter(std::move(file), std::move(tables)));
  writer->head_bytes_ = LayOut(&writer->tables_).size();
  writer->writes_early_ = EndOf(writer->tables_) >= kEarlyBytes;
  for (const RowTable& table : writer->tables_) {
    writer->writes_early_ = writer->writes_early_ && table.removed == 0;
  }
  return writer;
}

Status RowWriter::Write(size_t table, RowColumn column, uint64_t row, const void* data, uint64_t rows) {
  const RowTensor& tensor = tables_[table].tensors[column];
  if (!tensor.present || rows == 0) return Status();
  const uint64_t bytes = rows * tensor.row_bytes;
  state_[table].checksums[column].Add(data, bytes);
  const uint64_t at = tensor.begin + row * tensor.row_bytes;
  HET_RETURN_IF_ERROR(file_.WriteAt(at, data, bytes));
  if (writes_early_) file_.StartWriting(at, bytes);
  return Status();
}

Status RowWriter::Append(size_t table, const RowBatch& rows) {
  State& state = state_[table];
  const auto write = [&](RowColumn column, const void* data) {
    return Write(table, column, state.rows, data, rows.size());
  };
  HET_RETURN_IF_ERROR(write(kKeysColumn, rows.keys()));
  HET_RETURN_IF_ERROR(write(kClocksColumn, rows.clocks()));
  HET_RETURN_IF_ERROR(write(kValuesColumn, rows.values()));
  HET_RETURN_IF_ERROR(write(kSlotsColumn, rows.slots()));
  HET_RETURN_IF_ERROR(write(kLastUsedColumn, rows.last_used()));
  HET_RETURN_IF_ERROR(write(kCountsColumn, rows.counts()));
  state.rows += rows.size();
  return Status();
}

Status RowWriter::AppendRemoved(size_t table, Span<const Key> keys) {
  State& state = state_[table];
  HET_RETURN_IF_ERROR(Write(table, kRemovedColumn, state.removed, keys.data(), keys.size()));
  state.removed += keys.size();
  return Status();
}

// Moves the columns to their places. In file order each moves towards the beginning, over columns that were
// moved before, so no unmoved byte is overwritten.
Status RowWriter::CloseUp() {
  const std::vector<RowTable> planned = tables_;
  for (size_t t = 0; t < tables_.size(); ++t) {
    tables_[t].rows = state_[t].rows;
    tables_[t].removed = state_[t].removed;
  }
  const std::string head = LayOut(&tables_, head_bytes_);
  Buffer<char> some;
  for (const auto& [t, column] : InOrder(planned)) {
    const RowTensor& from = planned[t].tensors[column];
    const RowTensor& to = tables_[t].tensors[column];
    if (from.begin == to.begin) continue;
    some.Resize(kMoveBytes);
    for (uint64_t done = 0; done < to.bytes();) {
      const auto bytes = static_cast<size_t>(std::min<uint64_t>(kMoveBytes, to.bytes() - done));
      HET_RETURN_IF_ERROR(file_.ReadAt(from.begin + done, some.data(), bytes));
      HET_RETURN_IF_ERROR(file_.WriteAt(to.begin + done, some.data(), bytes));
      done += bytes;
    }
  }
  HET_RETURN_IF_ERROR(file_.WriteAt(0, head.data(), head.size()));
  // Without need it would wait until the last page, which is on its way to the disk, is there.
  if (EndOf(tables_) == EndOf(planned)) return Status();
  return file_.Truncate(std::max<uint64_t>(head.size(), EndOf(tables_)));
}

Result<RowFileSummary> RowWriter::Finish() {
  HET_RETURN_IF_ERROR(CloseUp());
  HET_RETURN_IF_ERROR(file_.Sync());
  RowFileSummary summary;
  const std::string head = LayOut(&tables_, head_bytes_);
  summary.header_checksum = Checksum::Of(head.data(), head.size());
  summary.bytes = std::max<uint64_t>(head.size(), EndOf(tables_));
  summary.tables = tables_;
  summary.checksums.resize(state_.size());
  for (size_t t = 0; t < state_.size(); ++t) {
    for (size_t c = 0; c < kRowColumns; ++c) summary.checksums[t][c] = state_[t].checksums[c].value();
  }
  HET_RETURN_IF_ERROR(file_.Close());
  file_.Keep();
  return summary;
}

}  // namespace het
