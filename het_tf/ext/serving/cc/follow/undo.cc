#include "het_tf/ext/serving/cc/follow/undo.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "het_tf/core/base/hash.h"

namespace het::follow {
namespace {

constexpr char kRolledBack[] = "rolled_back";
constexpr char kNewRolledBack[] = "rolled_back.new";

}  // namespace

bool Undo::Noted::Add(Key key) {
  const uint64_t hash = HashKey(key, 0);
  if (index_.Find(hash, [&](uint32_t row) { return keys_[row] == key; }) != kNoRow) return false;
  index_.Reserve([&](uint32_t row) { return HashKey(keys_[row], 0); });
  keys_.push_back(key);
  index_.Insert(hash, static_cast<uint32_t>(keys_.size() - 1));
  return true;
}

Undo::Undo(LiveWriter* writer, UndoLimits limits)
    : writer_(writer), limits_(limits), noted_(writer->tables()) {
  for (size_t table = 0; table < writer->tables(); ++table) row_bytes_.push_back(writer->row_bytes(table));
}

Undo::~Undo() { writer_->SetBeforeChange(nullptr); }

Result<std::unique_ptr<Undo>> Undo::Open(LiveWriter* writer, UndoLimits limits) {
  std::unique_ptr<Undo> undo(new Undo(writer, limits));
  HET_RETURN_IF_ERROR(undo->ReadJournals());
  HET_RETURN_IF_ERROR(undo->ReadRolledBack());
  if (limits.versions == 0 && !undo->rolled_back_) undo->DropAll("");
  Undo* const made = undo.get();
  writer->SetBeforeChange([made](size_t table, Span<const Key> keys) { made->Note(table, keys); });
  return undo;
}

// Keeps the newest journals up to one that is damaged, or of other live files.
Status Undo::ReadJournals() {
  const LiveDirectory& folder = writer_->folder();
  std::vector<uint64_t> numbers;
  for (const std::string& name : folder.Names()) {
    if (const uint64_t number = UndoJournal::NumberOf(name)) numbers.push_back(number);
  }
  std::sort(numbers.rbegin(), numbers.rend());
  bool whole = true;
  for (const uint64_t number : numbers) {
    next_number_ = std::max(next_number_, number + 1);
    auto journal = UndoJournal::Open(folder, writer_->run(), number, row_bytes_);
    whole = whole && journal.ok() && journal.value()->positions().size() == writer_->positions().size();
    if (whole) {
      journals_.push_front(std::move(journal.value()));
    } else {
      folder.Remove(UndoJournal::FileName(number));
    }
  }
  if (journals_.empty()) return Status();
  // The process may have been killed between the flip and the note of it.
  UndoJournal& last = *journals_.back();
  if (last.head().in_force == 0 && last.head().version.number == writer_->version().number) {
    HET_RETURN_IF_ERROR(last.SetInForce());
  }
  return NoteKeys();
}

Status Undo::NoteKeys() {
  return journals_.back()->ForEach(row_bytes_, [this](uint32_t table, Key key, const uint8_t*) {
    noted_[table].Add(key);
    return Status();
  });
}

Status Undo::ReadRolledBack() {
  const LiveDirectory& folder = writer_->folder();
  folder.Remove(kNewRolledBack);
  const auto file = folder.OpenFile(kRolledBack, O_RDONLY);
  if (!file.ok()) return Status();
  char text[256] = {};
  const ssize_t size = pread(file.value(), text, sizeof text, 0);
  close(file.value());
  const auto json = nlohmann::json::parse(text, text + std::max<ssize_t>(size, 0), nullptr, false);
  if (json.is_object() && json.value("run", uint64_t{0}) == writer_->run()) {
    rolled_back_ = RolledBack{json.value("version", uint64_t{0}), json.value("rows", false),
                              json.value("journal", uint64_t{0})};
    if (!rolled_back_->rows) return Status();
    for (const auto& journal : journals_) {
      if (journal->head().number == rolled_back_->journal) return Apply(*journal);
    }
    rolled_back_.reset();
  }
  folder.Remove(kRolledBack);
  return Status();
}

Status Undo::WriteRolledBack(const RolledBack& to) {
  const std::string text =
      nlohmann::json(
          {{"version", to.version}, {"rows", to.rows}, {"journal", to.journal}, {"run", writer_->run()}})
          .dump();
  const LiveDirectory& folder = writer_->folder();
  HET_ASSIGN_OR_RETURN(const int file, folder.OpenFile(kNewRolledBack, O_WRONLY | O_CREAT | O_TRUNC));
  const ssize_t written = pwrite(file, text.data(), text.size(), 0);
  close(file);
  if (written != static_cast<ssize_t>(text.size())) {
    return Status(Code::kFile, "the file of a rollback cannot be written to '" + folder.path() + "'");
  }
  return folder.Rename(kNewRolledBack, kRolledBack);
}

void Undo::DropOldest() {
  writer_->folder().Remove(UndoJournal::FileName(journals_.front()->head().number));
  journals_.pop_front();
}

void Undo::DropAll(const std::string& why) {
  while (!journals_.empty()) DropOldest();
  noted_ = std::vector<Noted>(writer_->tables());
  error_ = why;
}

void Undo::Begin(const VersionRecord& version) {
  const Span<const PositionRecord> positions = writer_->positions();
  auto journal = UndoJournal::Create(writer_->folder(), writer_->run(), next_number_, version, positions);
  if (!journal.ok()) {
    writer_->folder().Remove(UndoJournal::FileName(next_number_));
    return DropAll(journal.status().message());
  }
  ++next_number_;
  journals_.push_back(std::move(journal.value()));
  noted_ = std::vector<Noted>(writer_->tables());
  error_.clear();
}

Status Undo::Flip(const Version& version) {
  HET_ASSIGN_OR_RETURN(const VersionRecord record, RecordOf(version));
  limits_.versions > 0 ? Begin(record) : DropAll("");
  HET_RETURN_IF_ERROR(writer_->Flip(version));
  if (!journals_.empty()) {
    const Status noted = journals_.back()->SetInForce();
    if (!noted.ok()) DropAll(noted.message());
  }
  while (journals_.size() > limits_.versions + 1) DropOldest();
  return Status();
}

bool Undo::MakeRoom(uint64_t bytes) {
  uint64_t all = bytes;
  for (const auto& journal : journals_) all += journal->bytes();
  while (all > limits_.bytes && journals_.size() > 1) {
    all -= journals_.front()->bytes();
    DropOldest();
  }
  return all <= limits_.bytes;
}

void Undo::Note(size_t table, Span<const Key> keys) {
  if (journals_.empty()) return;
  Status status;
  try {
    status = Append(table, keys);
  } catch (const std::bad_alloc&) {
    status = Status(Code::kResourceExhausted, "out of memory");
  }
  // A journal that lacks a row is of no use.
  if (!status.ok()) DropAll(status.message());
}

Status Undo::Append(size_t table, Span<const Key> keys) {
  Vector<Key> absent, present;
  Vector<uint8_t> rows;
  for (const Key key : keys) {
    if (!noted_[table].Add(key)) continue;
    const uint8_t* row = writer_->Row(table, key);
    (row == nullptr ? absent : present).push_back(key);
    if (row != nullptr) rows.insert(rows.end(), row, row + row_bytes_[table]);
  }
  const size_t key_bytes = (absent.size() + present.size()) * sizeof(Key);
  if (!MakeRoom(2 * UndoJournal::kBlockBytes + key_bytes + rows.size())) {
    return Status(Code::kResourceExhausted,
                  "the rows that have changed since version " + std::to_string(writer_->version().number) +
                      " came into force need more than --undo-bytes " + std::to_string(limits_.bytes));
  }
  const auto number = static_cast<uint32_t>(table);
  UndoJournal& journal = *journals_.back();
  if (!absent.empty()) {
    HET_RETURN_IF_ERROR(journal.Append(number, {absent.data(), absent.size()}, {}));
  }
  if (!present.empty()) {
    HET_RETURN_IF_ERROR(journal.Append(number, {present.data(), present.size()}, {rows.data(), rows.size()}));
  }
  return Status();
}

std::vector<Version> Undo::Targets() const {
  std::vector<Version> targets;
  for (auto it = journals_.begin(); it != journals_.end(); ++it) {
    const VersionRecord& version = (*it)->head().version;
    if (Find(version.number) == it) targets.push_back(VersionOf(version));
  }
  return targets;
}

Undo::Journals::const_iterator Undo::Find(uint64_t version) const {
  for (auto it = journals_.end(); it != journals_.begin();) {
    const UndoHead& head = (*--it)->head();
    if (head.in_force == 1 && head.version.number == version) return it;
  }
  return journals_.end();
}

Status Undo::RollBack(uint64_t version) {
  if (rolled_back_ && rolled_back_->rows && rolled_back_->version == version) return Status();
  const auto found = Find(version);
  if (found == journals_.end()) {
    std::string can;
    for (const Version& one : Targets()) can += (can.empty() ? "" : ", ") + std::to_string(one.number);
    return FailedPrecondition("this follower does not have its rows; " +
                              (can.empty() ? "it can go back to no version" : "it can go back to " + can) +
                              (error_.empty() ? "" : " (" + error_ + ")") +
                              ". --partial takes back the dense weights only");
  }
  if (rolled_back_ && rolled_back_->rows && (*found)->head().number > rolled_back_->journal) {
    return FailedPrecondition("the rows are at the earlier version " + std::to_string(rolled_back_->version) +
                              "; resume first");
  }
  const RolledBack to{version, true, (*found)->head().number};
  HET_RETURN_IF_ERROR(WriteRolledBack(to));
  rolled_back_ = to;
  return Apply(**found);
}

Status Undo::RollBackDense(const Version& version) {
  if (rolled_back_ && rolled_back_->rows) {
    return FailedPrecondition("the rows are at version " + std::to_string(rolled_back_->version) +
                              "; resume first");
  }
  const RolledBack to{version.number, false, 0};
  HET_RETURN_IF_ERROR(WriteRolledBack(to));
  rolled_back_ = to;
  return writer_->Flip(version);
}

Status Undo::Apply(const UndoJournal& journal) {
  HET_RETURN_IF_ERROR(writer_->Flip(VersionOf(journal.head().version)));
  writer_->SetPositions({journal.positions().data(), journal.positions().size()});
  return Status();
}

Status Undo::Restore() {
  for (auto it = journals_.rbegin(); it != journals_.rend(); ++it) {
    HET_RETURN_IF_ERROR((*it)->ForEach(row_bytes_, [this](uint32_t table, Key key, const uint8_t* row) {
      return writer_->Restore(table, key, row);
    }));
    if ((*it)->head().number == rolled_back_->journal) break;
  }
  return Status();
}

Status Undo::Resume() {
  if (!rolled_back_) return Status();
  const LiveDirectory& folder = writer_->folder();
  if (rolled_back_->rows) {
    // From the newest on, so that what is left by a process that is killed leads to the same rows.
    while (journals_.back()->head().number != rolled_back_->journal) {
      folder.Remove(UndoJournal::FileName(journals_.back()->head().number));
      journals_.pop_back();
    }
    // All that its journal has is in the rows: a new one takes its place.
    const UndoHead head = journals_.back()->head();
    Begin(head.version);
    if (journals_.size() > 1) {
      folder.Remove(UndoJournal::FileName(head.number));
      journals_.erase(journals_.end() - 2);
      const Status noted = journals_.back()->SetInForce();
      if (!noted.ok()) DropAll(noted.message());
    }
  }
  folder.Remove(kRolledBack);
  rolled_back_.reset();
  return Status();
}

}  // namespace het::follow
