#include "het_tf/ext/serving/cc/follow/live_file.h"

#include "het_tf/ext/serving/cc/follow/live_base.h"

namespace het::follow {

constexpr MappedFile::Kind kLiveFiles = LiveKind("live file");

Result<std::shared_ptr<const LiveFile>> LiveFile::Open(const std::string& directory,
                                                       const ControlHead& control, uint32_t table,
                                                       uint64_t number,
                                                       std::shared_ptr<const serve::ServeFile> base) {
  const std::string path = directory + "/" + TableFileName(table, number);
  HET_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path, kLiveFiles));
  std::shared_ptr<LiveFile> file(new LiveFile(std::move(mapped)));
  HET_RETURN_IF_ERROR(file->file_.ReadHead(kTableMagic, kFormat, &file->head_));
  const TableHead& head = file->head_;
  if (head.run != control.run) return Status(Code::kNotFound, "'" + path + "' is of another follower");
  if (head.table != table || head.number != number || head.base != control.base || head.dim != base->dim() ||
      head.row_type != base->row_type() || head.row_bytes != base->row_bytes() || head.buckets == 0 ||
      head.buckets > file->file_.size() / sizeof(Bucket) || head.slots == 0 || head.slots > kNoSlot) {
    return file->Damaged("its header does not suit its table");
  }
  HET_ASSIGN_OR_RETURN(file->buckets_, file->file_.Section<Bucket>(kBucketsOffset, head.buckets));
  HET_ASSIGN_OR_RETURN(file->slots_,
                       file->file_.Section<uint8_t>(SlotsOffset(head), head.slots * head.row_bytes));
  file->base_ = std::move(base);
  return std::shared_ptr<const LiveFile>(std::move(file));
}

uint64_t LiveFile::CountRows() const {
  uint64_t rows = 0;
  for (const Bucket& bucket : buckets_) {
    for (const Entry& entry : bucket.entry) {
      const Entry now = LoadShared(entry);
      rows += now != 0 && SlotOf(now) != kNoSlot ? 1 : 0;
    }
  }
  return rows;
}

}  // namespace het::follow
