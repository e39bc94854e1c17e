#include "het_tf/ext/serving/cc/follow/live_writer.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <utility>

#include "het_tf/core/base/checksum.h"
#include "het_tf/ext/serving/cc/follow/boot_clock.h"

namespace het::follow {
namespace {

constexpr char kPositions[] = "positions";
constexpr char kNewControl[] = "control.new";

uint64_t RandomNumber() {
  std::random_device random;
  return (static_cast<uint64_t>(random()) << 32) | random();
}

uint64_t ChecksumOf(const PositionRecord& position) {
  return Checksum::Of(&position, offsetof(PositionRecord, checksum));
}

bool Valid(const PositionRecord& position) {
  return position.position[sizeof position.position - 1] == 0 && position.checksum == ChecksumOf(position);
}

}  // namespace

LiveWriter::LiveWriter(std::unique_ptr<LiveDirectory> directory, Base base)
    : directory_(std::move(directory)), base_(std::move(base)), base_checksum_(BaseChecksum(base_)) {
  for (const std::string& name : directory_->Names()) {
    next_number_ = std::max(next_number_, TableFileNumber(name) + 1);
  }
}

Result<std::unique_ptr<LiveWriter>> LiveWriter::Open(const std::string& directory,
                                                     const std::vector<std::string>& base_files) {
  HET_ASSIGN_OR_RETURN(Base base, OpenBase(base_files));
  HET_ASSIGN_OR_RETURN(auto locked, LiveDirectory::Open(directory));
  std::unique_ptr<LiveWriter> writer(new LiveWriter(std::move(locked), std::move(base)));
  if (!writer->Resume().ok()) HET_RETURN_IF_ERROR(writer->Begin());
  writer->Clean();
  return writer;
}

TableHead LiveWriter::Like(size_t table, uint64_t number, uint64_t run) const {
  TableHead like = {};
  like.base = base_checksum_;
  like.run = run;
  like.number = number;
  like.table = static_cast<uint32_t>(table);
  return like;
}

Status LiveWriter::Resume() {
  HET_ASSIGN_OR_RETURN(control_, directory_->Map(kControlName));
  Status other(Code::kDataLoss, "the control file is damaged, or of another boot or base");
  const uint64_t bytes = sizeof(Control) + base_.size() * sizeof(uint64_t);
  if (control_.size() != bytes) return other;
  const ControlHead& head = control()->head;
  if (std::memcmp(head.magic, kControlMagic, sizeof kControlMagic) != 0 || head.format != kFormat ||
      head.head_bytes != sizeof head || head.file_bytes != bytes || head.tables != base_.size() ||
      head.base != base_checksum_ || head.checksum != Checksum::Of(&head, offsetof(ControlHead, checksum)) ||
      BootId() != std::string(head.boot_id, strnlen(head.boot_id, sizeof head.boot_id))) {
    return other;
  }
  for (const VersionRecord& version : control()->versions) {
    if (version.dense_path[sizeof version.dense_path - 1] != 0) return other;
  }
  for (size_t table = 0; table < base_.size(); ++table) {
    HET_ASSIGN_OR_RETURN(auto resumed,
                         LiveTable::Resume(*directory_, Like(table, files()[table], head.run), base_[table]));
    tables_.push_back(std::move(resumed));
  }
  // A writer that was killed in Grow may have named a file and not raised this.
  StoreShared(&control()->generation, control()->generation + 1);
  auto positions = directory_->Map(kPositions);
  if (positions.ok()) positions_ = std::move(positions.value());
  return Status();
}

Status LiveWriter::Begin() {
  tables_.clear();
  positions_ = WritableMap();
  directory_->Remove(kPositions);
  const uint64_t bytes = sizeof(Control) + base_.size() * sizeof(uint64_t);
  HET_ASSIGN_OR_RETURN(control_, directory_->Create(kNewControl, bytes));
  ControlHead& head = control()->head;
  std::memcpy(head.magic, kControlMagic, sizeof kControlMagic);
  head.format = kFormat;
  head.head_bytes = sizeof head;
  head.file_bytes = bytes;
  head.base = base_checksum_;
  head.run = RandomNumber();
  head.tables = static_cast<uint32_t>(base_.size());
  const std::string boot = BootId();
  std::memcpy(head.boot_id, boot.data(), std::min(boot.size(), sizeof head.boot_id));
  head.checksum = Checksum::Of(&head, offsetof(ControlHead, checksum));
  control()->versions[0].trained_through = std::numeric_limits<double>::quiet_NaN();
  for (size_t table = 0; table < base_.size(); ++table) {
    HET_ASSIGN_OR_RETURN(auto created,
                         LiveTable::Create(*directory_, Like(table, next_number_, head.run), base_[table]));
    files()[table] = next_number_++;
    tables_.push_back(std::move(created));
  }
  control()->generation = 1;
  return directory_->Rename(kNewControl, kControlName);
}

void LiveWriter::Clean() const {
  std::set<std::string> keep;
  for (size_t table = 0; table < tables(); ++table) keep.insert(TableFileName(table, files()[table]));
  for (const std::string& name : directory_->Names()) {
    if ((TableFileNumber(name) != 0 && keep.count(name) == 0) || name == kNewControl)
      directory_->Remove(name);
  }
}

int LiveWriter::Find(uint64_t table_id) const {
  for (size_t table = 0; table < tables(); ++table) {
    if (schema(table).id() == table_id) return static_cast<int>(table);
  }
  return -1;
}

Status LiveWriter::Put(size_t table, Span<const Key> keys, const float* values) {
  LiveTable& live = *tables_[table];
  const size_t dim = live.schema().dim();
  while (!keys.empty()) {
    size_t done = 0;
    HET_RETURN_IF_ERROR(live.Put(keys, values, &done));
    keys = keys.subspan(done, keys.size() - done);
    values += done * dim;
    if (!keys.empty()) HET_RETURN_IF_ERROR(Grow(table, keys.size()));
  }
  return Status();
}

void LiveWriter::Remove(size_t table, Span<const Key> keys) { tables_[table]->Remove(keys); }

Status LiveWriter::Grow(size_t table, uint64_t more) {
  LiveTable& live = *tables_[table];
  const uint64_t old = live.number();
  HET_ASSIGN_OR_RETURN(TableFile grown, live.Grown(*directory_, next_number_, more));
  // Readers load the generation first: who sees the new one sees the new file.
  StoreShared(&files()[table], next_number_++);
  StoreShared(&control()->generation, control()->generation + 1);
  live.Use(std::move(grown));
  directory_->Remove(TableFileName(table, old));
  return Status();
}

void LiveWriter::ForEachKey(size_t table, const std::function<void(Key)>& visit) const {
  tables_[table]->file().ForEach([&](Key key, const uint8_t*) { visit(key); });
}

Status LiveWriter::SetPartitions(uint32_t partitions) {
  if (positions().size() == partitions) return Status();
  StoreShared(&control()->seen, uint64_t{0});
  HET_ASSIGN_OR_RETURN(positions_, directory_->Create(kPositions, partitions * sizeof(PositionRecord)));
  return Status();
}

std::string LiveWriter::position(uint32_t partition) const {
  const PositionRecord& position = positions()[partition];
  return Valid(position) ? position.position : "";
}

Status LiveWriter::SetPosition(uint32_t partition, const std::string& position, uint64_t seen) {
  PositionRecord& record = positions_.At<PositionRecord>(0)[partition];
  if (position.size() >= sizeof record.position) {
    return InvalidArgument("position '" + position + "' is longer than INCARNATION:NUMBER can be");
  }
  PositionRecord changed = {};
  std::memcpy(changed.position, position.data(), position.size());
  changed.seen = seen;
  changed.checksum = ChecksumOf(changed);
  std::memcpy(&record, &changed, sizeof record);
  TellSeen();
  return Status();
}

void LiveWriter::TellSeen() {
  uint64_t oldest = std::numeric_limits<uint64_t>::max();
  for (const PositionRecord& one : positions()) oldest = std::min(oldest, Valid(one) ? one.seen : 0);
  StoreShared(&control()->seen, oldest);
}

uint64_t LiveWriter::seen() const { return control()->seen; }

Status LiveWriter::Flip(const Version& version) {
  HET_ASSIGN_OR_RETURN(const VersionRecord record, RecordOf(version));
  const uint64_t next = control()->flips + 1;
  BeforeFilling();
  control()->versions[next & 1] = record;
  StoreShared(&control()->flips, next);
  return Status();
}

void LiveWriter::SetSkew(std::optional<uint64_t> skew) {
  StoreShared(&control()->skew, skew ? *skew + 1 : uint64_t{0});
}

Version LiveWriter::version() const { return VersionOf(control()->versions[control()->flips & 1]); }

}  // namespace het::follow
