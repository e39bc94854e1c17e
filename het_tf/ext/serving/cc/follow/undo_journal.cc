#include "het_tf/ext/serving/cc/follow/undo_journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "het_tf/core/base/checksum.h"

namespace het::follow {
namespace {

constexpr char kMagic[8] = {'H', 'E', 'T', 'U', 'N', 'D', 'O', 'J'};
constexpr char kPrefix[] = "undo-";

struct UndoBlock {
  uint32_t table;
  uint32_t present;
  uint64_t count;
  uint64_t checksum;  // XXH3-64 of the bytes before, and of those after
};

static_assert(sizeof(UndoBlock) == UndoJournal::kBlockBytes);

uint64_t ChecksumOf(const UndoBlock& block, const uint8_t* content, size_t bytes) {
  Checksum checksum;
  checksum.Add(&block, offsetof(UndoBlock, checksum));
  checksum.Add(content, bytes);
  return checksum.value();
}

Status Error(const char* during, int error) {
  return Status(Code::kFile, std::string("cannot ") + during + " an undo journal: " + std::strerror(error));
}

Status Write(int file, const void* content, size_t size, uint64_t at) {
  const auto* bytes = static_cast<const uint8_t*>(content);
  while (size > 0) {
    const ssize_t written = pwrite(file, bytes, size, static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Error("write", written < 0 ? errno : ENOSPC);
    bytes += written;
    at += static_cast<uint64_t>(written);
    size -= static_cast<size_t>(written);
  }
  return Status();
}

// Returns false at the end of the file, too.
bool Read(int file, void* content, size_t size, uint64_t at) {
  auto* bytes = static_cast<uint8_t*>(content);
  while (size > 0) {
    const ssize_t read = pread(file, bytes, size, static_cast<off_t>(at));
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) return false;
    bytes += read;
    at += static_cast<uint64_t>(read);
    size -= static_cast<size_t>(read);
  }
  return true;
}

uint64_t SizeOf(int file) {
  struct stat status {};
  return fstat(file, &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

}  // namespace

UndoJournal::~UndoJournal() { close(file_); }

uint64_t UndoJournal::NumberOf(const std::string& name) {
  if (name.compare(0, sizeof kPrefix - 1, kPrefix) != 0) return 0;
  const uint64_t number = std::strtoull(name.c_str() + sizeof kPrefix - 1, nullptr, 10);
  return name == FileName(number) ? number : 0;
}

Result<std::unique_ptr<UndoJournal>> UndoJournal::Create(const LiveDirectory& directory, uint64_t run,
                                                         uint64_t number, const VersionRecord& version,
                                                         Span<const PositionRecord> positions) {
  directory.Remove(FileName(number));
  HET_ASSIGN_OR_RETURN(const int file, directory.OpenFile(FileName(number), O_RDWR | O_CREAT | O_EXCL));
  std::unique_ptr<UndoJournal> journal(new UndoJournal(file));
  UndoHead& head = journal->head_;
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  head.format = kFormat;
  head.partitions = static_cast<uint32_t>(positions.size());
  head.run = run;
  head.number = number;
  head.version = version;
  head.checksum = Checksum::Of(&head, offsetof(UndoHead, checksum));
  journal->positions_.assign(positions.begin(), positions.end());
  journal->bytes_ = sizeof head + positions.size() * sizeof(PositionRecord);
  HET_RETURN_IF_ERROR(Write(file, &head, sizeof head, 0));
  HET_RETURN_IF_ERROR(Write(file, positions.data(), positions.size() * sizeof(PositionRecord), sizeof head));
  return journal;
}

Result<std::unique_ptr<UndoJournal>> UndoJournal::Open(const LiveDirectory& directory, uint64_t run,
                                                       uint64_t number,
                                                       const std::vector<uint32_t>& row_bytes) {
  HET_ASSIGN_OR_RETURN(const int file, directory.OpenFile(FileName(number), O_RDWR));
  std::unique_ptr<UndoJournal> journal(new UndoJournal(file));
  HET_RETURN_IF_ERROR(journal->ReadHead(run, number));
  const auto ignore = [](uint32_t, Key, const uint8_t*) { return Status(); };
  uint64_t end = 0;
  HET_RETURN_IF_ERROR(journal->Blocks(row_bytes, ignore, &end));
  if (ftruncate(file, static_cast<off_t>(end)) != 0) return Error("cut", errno);
  journal->bytes_ = end;
  return journal;
}

Status UndoJournal::ReadHead(uint64_t run, uint64_t number) {
  Status damaged(Code::kDataLoss, "an undo journal is damaged, or of other live files");
  if (!Read(file_, &head_, sizeof head_, 0)) return damaged;
  if (std::memcmp(head_.magic, kMagic, sizeof kMagic) != 0 || head_.format != kFormat || head_.run != run ||
      head_.number != number || head_.checksum != Checksum::Of(&head_, offsetof(UndoHead, checksum)) ||
      head_.version.dense_path[sizeof head_.version.dense_path - 1] != 0 ||
      head_.partitions > SizeOf(file_) / sizeof(PositionRecord)) {
    return damaged;
  }
  positions_.resize(head_.partitions);
  if (!Read(file_, positions_.data(), positions_.size() * sizeof(PositionRecord), sizeof head_))
    return damaged;
  return Status();
}

Status UndoJournal::SetInForce() {
  head_.in_force = 1;
  return Write(file_, &head_.in_force, sizeof head_.in_force, offsetof(UndoHead, in_force));
}

Status UndoJournal::Append(uint32_t table, Span<const Key> keys, Span<const uint8_t> rows) {
  UndoBlock block = {table, rows.empty() ? 0u : 1u, keys.size(), 0};
  const size_t key_bytes = keys.size() * sizeof(Key);
  Vector<uint8_t> bytes(sizeof block + key_bytes + rows.size());
  uint8_t* const content = bytes.data() + sizeof block;
  std::memcpy(content, keys.data(), key_bytes);
  if (!rows.empty()) std::memcpy(content + key_bytes, rows.data(), rows.size());
  block.checksum = ChecksumOf(block, content, key_bytes + rows.size());
  std::memcpy(bytes.data(), &block, sizeof block);
  HET_RETURN_IF_ERROR(Write(file_, bytes.data(), bytes.size(), bytes_));
  bytes_ += bytes.size();
  return Status();
}

Status UndoJournal::Blocks(const std::vector<uint32_t>& row_bytes, const Visit& visit, uint64_t* end) const {
  const uint64_t size = SizeOf(file_);
  *end = sizeof head_ + positions_.size() * sizeof(PositionRecord);
  Vector<uint8_t> content;
  for (;;) {
    UndoBlock block;
    if (!Read(file_, &block, sizeof block, *end) || block.table >= row_bytes.size() || block.present > 1)
      break;
    const uint64_t one = sizeof(Key) + (block.present != 0 ? row_bytes[block.table] : 0);
    if (block.count > size / one) break;
    content.resize(block.count * one);
    if (!Read(file_, content.data(), content.size(), *end + sizeof block) ||
        block.checksum != ChecksumOf(block, content.data(), content.size())) {
      break;
    }
    const uint8_t* row = block.present != 0 ? content.data() + block.count * sizeof(Key) : nullptr;
    for (uint64_t i = 0; i < block.count; ++i) {
      Key key;
      std::memcpy(&key, content.data() + i * sizeof key, sizeof key);
      HET_RETURN_IF_ERROR(visit(block.table, key, row));
      if (row != nullptr) row += row_bytes[block.table];
    }
    *end += sizeof block + content.size();
  }
  return Status();
}

Status UndoJournal::ForEach(const std::vector<uint32_t>& row_bytes, const Visit& visit) const {
  uint64_t end = 0;
  HET_RETURN_IF_ERROR(Blocks(row_bytes, visit, &end));
  return end >= bytes_ ? Status() : Status(Code::kDataLoss, "an undo journal is damaged");
}

}  // namespace het::follow
