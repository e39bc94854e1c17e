#include "het_tf/ext/serving/cc/follow/partition_scan.h"

#include <algorithm>
#include <iterator>

namespace het::follow {

PartitionScan::PartitionScan(uint32_t partition, const Layout& layout, LiveWriter* writer)
    : partition_(partition), layout_(layout), writer_(writer), notes_(writer->tables()) {
  for (size_t table = 0; table < writer->tables(); ++table) {
    if (layout.OfTable(writer->schema(table).id()).Has(partition)) tables_.push_back(table);
  }
}

bool PartitionScan::Continues(const ChangesPage& page) const {
  return start_ == page.start && kind_ == page.kind;
}

void PartitionScan::Begin(const ChangesPage& page) {
  start_ = page.start;
  kind_ = page.kind;
  for (Notes& notes : notes_) notes = Notes();
}

Status PartitionScan::Add(const ChangesPage& page) {
  for (const Bytes& bytes : page.chunks) {
    HET_RETURN_IF_ERROR(DecodeChanges({bytes.data(), bytes.size()}, &chunk_));
    HET_RETURN_IF_ERROR(AddChunk(chunk_));
  }
  return Status();
}

Status PartitionScan::AddChunk(const ChangedRows& chunk) {
  const int found = writer_->Find(chunk.table);
  if (found < 0) return Status();
  const auto table = static_cast<size_t>(found);
  const TableSchema& schema = writer_->schema(table);
  const TableLayout layout = layout_.OfTable(chunk.table);
  const auto foreign = std::find_if(chunk.keys.begin(), chunk.keys.end(),
                                    [&](Key key) { return layout.OfKey(key) != partition_; });
  if (foreign != chunk.keys.end()) {
    return FailedPrecondition("partition " + std::to_string(partition_) + " has the id " +
                              std::to_string(*foreign) + " of table '" + schema.spec().name +
                              "', which belongs to another one: the store was made anew with other "
                              "partitions. Start the follower again");
  }
  Notes& notes = notes_[table];
  if (chunk.what != ChangedRows::kValues) {
    notes.named.insert(notes.named.end(), chunk.keys.begin(), chunk.keys.end());
    return Status();
  }
  if (chunk.dim != schema.dim()) {
    return FailedPrecondition("table '" + schema.spec().name + "' has dim " + std::to_string(chunk.dim) +
                              " at the store and " + std::to_string(schema.dim()) +
                              " in the export; export the model again");
  }
  HET_RETURN_IF_ERROR(writer_->Put(table, {chunk.keys.data(), chunk.keys.size()}, chunk.values.data()));
  rows_ += chunk.keys.size();
  // In kChanges removals come first.
  if (kind_ != ChangesKind::kChanges || !notes.named.empty()) {
    notes.came.insert(notes.came.end(), chunk.keys.begin(), chunk.keys.end());
  }
  return Status();
}

Vector<Key> PartitionScan::Gone(size_t table, Notes* notes) const {
  Vector<Key> gone;
  std::sort(notes->came.begin(), notes->came.end());
  const auto came = [notes](Key key) {
    return std::binary_search(notes->came.begin(), notes->came.end(), key);
  };
  if (kind_ == ChangesKind::kChanges) {
    std::copy_if(notes->named.begin(), notes->named.end(), std::back_inserter(gone),
                 [&](Key key) { return !came(key); });
    return gone;
  }
  std::sort(notes->named.begin(), notes->named.end());
  const TableLayout layout = layout_.OfTable(writer_->schema(table).id());
  writer_->ForEachKey(table, [&](Key key) {
    if (layout.OfKey(key) != partition_ || came(key)) return;
    if (!std::binary_search(notes->named.begin(), notes->named.end(), key)) gone.push_back(key);
  });
  return gone;
}

void PartitionScan::Finish() {
  for (size_t table : tables_) {
    const Vector<Key> gone = Gone(table, &notes_[table]);
    if (!gone.empty()) writer_->Remove(table, {gone.data(), gone.size()});
    removed_ += gone.size();
  }
  Begin(ChangesPage());
}

}  // namespace het::follow
